"""What agents do beside and between their turns: titles, sub-agents, own pruning, own summaries, canned openings."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from tests.e2e import agent, scribe
from tests.e2e.scribe import Scribe
from tests.e2e.stored import PATIENT, records, stored
from tests.e2e.story import OVER, Story
from tests.e2e.talk import Client, Message, history, step
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

ENVIRONMENT = PATIENT

#: Steps after which a packed history is over the threshold once more.
AGAIN = 24


@pytest.fixture
def story(client: Client, upstream: Scribe, request: pytest.FixtureRequest) -> Story:
    """A client with a credential of the test's own."""
    return Story(client, upstream, f"sk-{request.node.name}")


TITLE: list[Message] = [
    {"role": "system", "content": "You write titles."},
    {"role": "user", "content": "Write a title of three words for this conversation."},
    {"role": "user", "content": agent.TASK},
]


async def test_a_title_call_under_the_same_session_id_disturbs_nothing(story: Story, ledger: Server) -> None:
    """Before the session is packed and after: forwarded as it is, another conversation, with nothing stored."""
    before, seen, sent = await story.turn(TITLE)
    assert (before.action, seen.body) == ("pass", sent)
    await story.pack(history(OVER))
    found = await stored(ledger, story.conversation)
    after, seen, sent = await story.turn(TITLE)
    assert (after.action, seen.body) == ("pass", sent)
    assert before.conversation == after.conversation != story.conversation
    assert records(ledger, after.conversation) == []
    now = await stored(ledger, story.conversation)
    assert (now.record.epoch, now.record.generation) == (found.record.epoch, found.record.generation)
    assert now.surfaces == found.surfaces
    await story.reads_packed(history(OVER + 1))


def _memory(steps: int) -> list[Message]:
    """A sub-agent's request: the whole history under another system prompt, and one message more."""
    asked = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Which facts are worth keeping?"}]
    return [{"role": "system", "content": "You keep notes."}, *history(steps)[1:], *asked]


async def test_a_sub_agent_that_sends_the_history_again_is_projected_and_disturbs_nothing(
    story: Story, ledger: Server
) -> None:
    """It gets the main session's surface under its own prompt and its fewer tools; the next main turn does too."""
    await story.pack(history(OVER))
    sent = story.spelled(_memory(OVER), tools=agent.TOOLS[:1])
    asked = len(story.summaries)
    reply, seen, _ = await story.said(sent)
    assert (reply.action, reply.generation) == ("projected", 1)
    covered, shown = story.packed[1]
    start, own, end = scribe.split(sent)
    assert scribe.split(seen.body) == (start, [own[0], shown, *own[1 + covered :]], end)
    reply, _, _ = await story.turn(history(OVER + 1))
    assert (reply.action, reply.generation) == ("projected", 1)
    assert len(story.summaries) == asked
    assert (await stored(ledger, story.conversation)).record.generation == 1


async def test_what_a_sub_agent_had_to_pack_first_serves_the_session(story: Story) -> None:
    """The sub-agent's request is the one that crosses the threshold: one summary for both."""
    await story.pack(_memory(OVER))
    await story.reads_packed(history(OVER))
    await story.reads_packed(history(OVER + 1))


def _pruned(messages: list[Message], start: int, stop: int) -> list[Message]:
    """The history as an agent sends it that cleared these tool results by itself."""
    found = deepcopy(messages)
    for one in found[start:stop]:
        if one["role"] == "tool":
            one["content"] = "[Old tool result content cleared]"
    return found


async def test_a_history_that_its_client_pruned_gets_no_surface_of_the_unpruned_one(story: Story) -> None:
    """Raw while it fits, packed for itself when it does not; a surface whose items are untouched goes on serving."""
    first = await story.pack(history(OVER))
    for start in (1, 9):  # with the opening, and after it
        await story.reads_raw(_pruned(history(OVER), start, 30))
    await story.reads_packed(_pruned(history(OVER), 1 + first, len(history(OVER))))
    second = await story.pack(history(AGAIN), generation=2)
    await story.reads_packed(_pruned(history(AGAIN), 1 + first, 1 + second), generation=1)
    await story.pack(_pruned(history(OVER + 3), 9, 30), generation=3)
    await story.reads_packed(_pruned(history(OVER + 4), 9, 30), generation=3)
    await story.reads_packed(history(AGAIN), generation=2)


@pytest.mark.parametrize("keeps", [0, 2], ids=["nothing", "two steps"])
async def test_a_session_that_its_client_compacted_starts_raw_and_leaves_the_old_one_alone(
    story: Story, ledger: Server, keeps: int
) -> None:
    """Its own summary stands for the history: another conversation, to which no surface of the old one applies."""
    await story.pack(history(OVER))
    summary = {"role": "user", "content": f"The conversation so far, in short: {agent.TASK} Modules 1 to 11 are done."}
    kept = [message for number in range(OVER - keeps + 1, OVER + 1) for message in step(number)]
    compacted = [history(0)[0], summary, *kept, *([] if kept else [{"role": "user", "content": "Go on."}])]
    reply, seen, sent = await story.turn(compacted)
    assert (reply.action, reply.generation, seen.body) == ("pass", 0, sent)
    assert records(ledger, reply.conversation) == []
    grown = [*compacted, *(message for number in range(60, 60 + OVER) for message in step(number))]
    old = story.packed[1], story.conversation
    await story.pack(grown)
    story.packed[1], story.conversation = old
    await story.reads_packed(history(OVER + 1))
    assert (await stored(ledger, story.conversation)).record.generation == 1


_OWN_COMPACTION = {
    "deepseek-harness": {"x-deepseek-harness-compact": "1"},
    "codex": {"x-codex-turn-metadata": '{"request_kind": "compaction"}'},
}


@pytest.mark.parametrize("marks", _OWN_COMPACTION.values(), ids=_OWN_COMPACTION)
async def test_a_client_s_own_compaction_call_starts_no_summary_and_gets_what_is_stored(
    story: Story, marks: dict[str, str]
) -> None:
    """Over the threshold it goes as it is; once the session was packed, with the surface that applies (rule 4.8)."""
    call = [*history(OVER), {"role": "user", "content": "Summarise this conversation."}]
    asked = len(story.summaries)
    reply, seen, sent = await story.turn(call, **marks)
    assert (reply.action, seen.body, len(story.summaries)) == ("pass", sent, asked)
    await story.pack(history(OVER))
    await story.reads_packed(call, **marks)


SUFFIX = "\n\nReply in unified diffs only."


def _aider(session: str, turns: int, files: str = "as they were") -> list[Message]:
    """Seven canned messages, then the session's own; the newest user message has a suffix that is gone next turn."""
    system = {"role": "system", "content": agent.SYSTEM}
    canned = [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Example {at}: the repository's files, {files}."}
        for at in range(6)
    ]
    own = []
    for turn in range(turns):
        listing = agent._source(turn, 3_000)
        own += [
            {"role": "user", "content": f"{session} asks for change {turn}.\n{listing}"},
            {"role": "assistant", "content": f"{session} has change {turn}."},
        ]
    asked = {"role": "user", "content": f"{session} asks for change {turns}.{SUFFIX}"}
    return [system, *canned, *own, asked]


#: Turns after which such a session is over the threshold.
TURNS = 20


async def test_sessions_with_the_same_first_seven_messages_never_get_each_others_surface(
    story: Story, ledger: Server
) -> None:
    """They share a record and its counter; each keeps its own surface, over turns and vanished suffixes."""
    sessions = ("Session-1", "Session-2")

    async def turn(number: int, turns: int) -> tuple[str, int]:
        reply, seen, _ = await story.turn(_aider(sessions[number], turns), x_session_id="")
        assert [name.encode() in seen.body for name in sessions] == [number == 0, number == 1]
        assert seen.body.count(SUFFIX.encode("unicode_escape")) == 1
        story.conversation = reply.conversation
        return reply.action, reply.generation

    assert [await turn(number, TURNS) for number in (0, 1)] == [("pressure", 1), ("pressure", 2)]
    found = await stored(ledger, story.conversation)
    assert [entry.generation for entry in found.entries] == [1, 2]
    for more in (1, 2):
        assert [await turn(number, TURNS + more) for number in (0, 1)] == [("projected", 1), ("projected", 2)]


def _rewritten(messages: list[Message], at: int) -> list[Message]:
    found = deepcopy(messages)
    found[at]["content"] = found[at]["content"].replace("as they were", "as they are now")
    return found


@pytest.mark.parametrize("change", [lambda one: _rewritten(one, 5), lambda one: _rewritten(one, 1)], ids=["5", "1"])
async def test_files_rewritten_in_the_prefix_are_never_hidden_by_an_old_surface(
    story: Story, change: Callable[[list[Message]], list[Message]]
) -> None:
    """A changed file is another history: packed for itself; when the file is as before, the first surface serves."""
    own = {"x-session-id": ""}
    await story.pack(_aider("it", TURNS), **own)
    changed = change(_aider("it", TURNS + 1))
    reply, _, _ = await story.turn(changed, **own)
    assert reply.action == "pressure"
    assert b"as they are now" in story.summaries[-1].body
    await story.reads_packed(_aider("it", TURNS + 2), **own)
    reply, _, _ = await story.turn(change(_aider("it", TURNS + 2)), **own)
    assert reply.action == "projected"
