"""Whose surface, and when: clients rewind, fork, edit and re-spell histories; `carryon serve` and Valkey are real.

A reading with `x-carryon: no-store` shows which stored surface applies, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy

import pytest

from tests.e2e import agent, scribe
from tests.e2e.scribe import Request, Scribe
from tests.e2e.stored import records, stored
from tests.e2e.talk import Client, Message, Reply, body, history, step
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(60)]

LIMIT = 1_000
#: Steps after which a history is over the threshold.
OVER = 13


class Story:
    """One client's conversation, packed once, with what the upstream saw of each turn."""

    def __init__(self, client: Client, upstream: Scribe, key: str) -> None:
        self._client, self._upstream, self._key = client, upstream, key
        self.packed: Request
        self.conversation = ""

    async def turn(self, messages: list[Message], **headers: str) -> tuple[Reply, Request, bytes]:
        """The client's reply, what the upstream saw, and what the client sent."""
        sent = body("story", messages, tools=agent.TOOLS, max_tokens=LIMIT)
        reply = await self._client.post(sent, key=self._key, **headers)
        assert reply.status == 200
        return reply, self._upstream.of("story", summaries=False)[-1], sent

    async def pack(self, messages: list[Message], **headers: str) -> int:
        """Send a history over the threshold; how many of its messages were replaced."""
        reply, self.packed, sent = await self.turn(messages, **headers)
        assert (reply.action, reply.generation) == ("pressure", 1)
        self.conversation = reply.conversation
        return len(scribe.split(sent)[1]) - len(scribe.split(self.packed.body)[1]) + 1

    async def reads_raw(self, messages: list[Message], **headers: str) -> None:
        """No stored surface applies to this history."""
        reply, seen, sent = await self.turn(messages, x_carryon="no-store", **headers)
        assert (reply.action, reply.generation, seen.body) == ("pass", 0, sent)

    async def reads_packed(self, messages: list[Message], covered: int, **headers: str) -> None:
        """The surface applies: its bytes as packed, then the client's messages as sent now."""
        reply, seen, sent = await self.turn(messages, x_carryon="no-store", **headers)
        assert (reply.action, reply.generation) == ("projected", 1)
        own, items = scribe.split(sent)[1], scribe.split(seen.body)[1]
        assert items == [own[0], scribe.split(self.packed.body)[1][1], *own[1 + covered :]]


@pytest.fixture
def story(client: Client, upstream: Scribe, request: pytest.FixtureRequest) -> Story:
    """A client with a credential of the test's own."""
    return Story(client, upstream, f"sk-{request.node.name}")


async def test_two_tenants_with_the_same_bytes_share_nothing(
    story: Story, client: Client, upstream: Scribe, ledger: Server
) -> None:
    """Another credential finds no surface, and makes a record and a summary of its own with its own credential."""
    covered = await story.pack(history(OVER))
    other = Story(client, upstream, "sk-other")
    await other.reads_raw(history(OVER))
    asked = len(upstream.of("story", summaries=True))
    assert await other.pack(history(OVER)) == covered
    summaries = upstream.of("story", summaries=True)
    assert len(summaries) == asked + 1
    assert ("Authorization", "Bearer sk-other") in summaries[-1].headers
    assert other.conversation != story.conversation
    tenants = [records(ledger, one.conversation)[0].partition(".")[0] for one in (story, other)]
    assert len(set(tenants)) == 2
    assert (await stored(ledger, story.conversation)).record.generation == 1


async def test_a_rewound_conversation_is_raw_and_one_that_comes_back_is_packed(story: Story) -> None:
    """Before the covered range ends no surface applies; after it, it does again."""
    covered = await story.pack(history(OVER))
    await story.reads_raw(history(5))
    await story.reads_raw(history(OVER)[: covered - 1])
    await story.reads_packed(history(OVER), covered)


async def test_a_conversation_sent_anew_from_its_start_always_shows_its_newest_step(story: Story) -> None:
    """Going back to just where the packed head ends, the last step is not shown as part of a summary."""
    covered = await story.pack(history(OVER))
    whole = history(OVER)
    for length in (covered, covered + 1):
        newest = scribe.split(body("story", whole[: length + 1]))[1][-1]
        _, seen, _ = await story.turn(whole[: length + 1], x_carryon="no-store")
        assert scribe.split(seen.body)[1][-1] == newest
    await story.reads_raw(whole[: covered + 1])


async def test_a_fork_after_the_covered_range_keeps_the_surface_and_one_inside_does_not(story: Story) -> None:
    """Two branches grow from the packed prefix; a third leaves before its end."""
    covered = await story.pack(history(OVER))
    await story.reads_packed([*history(OVER), *step(14)], covered)
    await story.reads_packed([*history(OVER), *step(40)], covered)
    await story.reads_raw([*history(6), *step(40), *step(41), *step(42), *step(43), *step(44), *step(45), *step(46)])


async def test_one_changed_character_inside_the_covered_range_and_the_surface_does_not_apply(story: Story) -> None:
    """In the first item, in a tool result, in arguments, and in the last covered item."""
    covered = await story.pack(history(OVER))
    for at, change in ((1, "content"), (4, "content"), (2, "arguments"), (covered, "content")):
        messages = history(OVER)
        holder = messages[at]["tool_calls"][0]["function"] if change == "arguments" else messages[at]
        holder[change] = holder[change].replace("e", "a", 1)
        await story.reads_raw(messages)


async def test_an_edit_after_the_covered_range_leaves_the_surface_and_is_sent_as_it_is(story: Story) -> None:
    """The first raw message and the newest one are changed."""
    covered = await story.pack(history(OVER))
    for at in (1 + covered, -1):
        messages = history(OVER)
        messages[at]["content"] += " Changed."
        await story.reads_packed(messages, covered)


def _marked(messages: list[Message]) -> None:
    for at in (1, 3):
        text = {"type": "text", "text": messages[at]["content"], "cache_control": {"type": "ephemeral"}}
        messages[at]["content"] = [text]


def _respelt(messages: list[Message]) -> None:
    for one in messages:
        for call in one.get("tool_calls", ()):
            arguments = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = json.dumps(dict(reversed(arguments.items())), indent=1)


def _thought(messages: list[Message]) -> None:
    messages[2]["reasoning_content"] = "Let me think."
    messages[2]["content"] = f"<think>Hm.</think>\n{messages[2]['content']}"


def _renamed(messages: list[Message]) -> None:
    for number, one in enumerate(messages[1:]):
        one["id"] = f"msg_{number}"


@pytest.mark.parametrize("change", [_marked, _respelt, _thought, _renamed], ids=lambda one: one.__name__.strip("_"))
@pytest.mark.parametrize("direction", ["appears", "vanishes"])
async def test_what_clients_respell_between_turns_leaves_the_surface(
    story: Story, change: Callable[[list[Message]], None], direction: str
) -> None:
    """`cache_control` moves, arguments are written anew, reasoning comes or goes, messages get ids: it applies."""
    plain, changed = history(OVER), deepcopy(history(OVER))
    change(changed)
    first, later = (plain, changed) if direction == "appears" else (changed, plain)
    covered = await story.pack(first)
    await story.reads_packed(later, covered)


async def test_a_title_call_under_the_same_session_id_disturbs_nothing(story: Story, ledger: Server) -> None:
    """It is forwarded as it is; generation and surfaces of the main conversation stay; the next turn is projected."""
    covered = await story.pack(history(OVER))
    before = await stored(ledger, story.conversation)
    title = [
        {"role": "system", "content": "You write titles."},
        {"role": "user", "content": "Write a title of three words for this conversation."},
        {"role": "user", "content": agent.TASK},
    ]
    reply, seen, sent = await story.turn(title)
    assert (reply.action, seen.body) == ("pass", sent)
    assert reply.conversation != story.conversation
    after = await stored(ledger, story.conversation)
    assert (after.record.epoch, after.record.generation) == (before.record.epoch, before.record.generation)
    assert after.surfaces == before.surfaces
    await story.reads_packed(history(OVER + 1), covered)


async def test_a_sub_agent_that_sends_the_history_again_disturbs_nothing(story: Story, ledger: Server) -> None:
    """Another system prompt, one message more: it may use the surface, and the main turn finds it unchanged."""
    covered = await story.pack(history(OVER))
    memory = [{"role": "system", "content": "You keep notes."}, *history(OVER)[1:]]
    memory.append({"role": "user", "content": "Which facts are worth keeping?"})
    await story.turn(memory)
    assert (await stored(ledger, story.conversation)).record.generation == 1
    await story.reads_packed(history(OVER + 1), covered)


SUFFIX = "\n\nReply in unified diffs only."


def _aider(session: str, turns: int) -> list[Message]:
    """Seven canned messages, then the session's own; the newest user message has a suffix that is gone next turn."""
    system = {"role": "system", "content": agent.SYSTEM}
    canned = [
        {"role": "user" if at % 2 == 0 else "assistant", "content": f"Example {at}: these files are in the repository."}
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


async def test_sessions_with_the_same_first_seven_messages_never_get_each_others_surface(
    story: Story, upstream: Scribe, ledger: Server
) -> None:
    """They share a record and its counter; each keeps its own surface, over turns and vanished suffixes."""
    turns = 20
    for number, session in enumerate(("Alice", "Bob"), start=1):
        reply, seen, _ = await story.turn(_aider(session, turns), x_session_id="")
        assert (reply.action, reply.generation) == ("pressure", number)
        assert (b"Alice" in seen.body, b"Bob" in seen.body) == (session == "Alice", session == "Bob")
    found = await stored(ledger, reply.conversation)
    assert [entry.generation for entry in found.entries] == [1, 2]
    for more in (1, 2):
        for number, session in enumerate(("Alice", "Bob"), start=1):
            reply, seen, _ = await story.turn(_aider(session, turns + more), x_session_id="")
            assert (reply.action, reply.generation) == ("projected", number)
            assert (b"Alice" in seen.body, b"Bob" in seen.body) == (session == "Alice", session == "Bob")
            assert seen.body.count(SUFFIX.encode("unicode_escape")) == 1
