"""Whose surface, and when: clients rewind, fork, edit, regenerate and re-spell; `carryon serve` and Valkey are real.

A reading with `x-carryon: no-store` shows which stored surface applies, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from copy import deepcopy

import pytest
import pytest_asyncio

from tests.e2e import scribe
from tests.e2e.scribe import Scribe
from tests.e2e.stored import PATIENT, proxied, stored
from tests.e2e.story import OVER, Story
from tests.e2e.talk import WINDOW, Client, Message, body, history, step
from tests.store.servers import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

ENVIRONMENT = PATIENT

#: Steps after which a packed history is over the threshold once more.
AGAIN = 24


@pytest.fixture
def story(client: Client, upstream: Scribe, request: pytest.FixtureRequest) -> Story:
    """A client with a credential of the test's own."""
    return Story(client, upstream, f"sk-{request.node.name}")


def _other(steps: int, *numbers: int) -> list[Message]:
    """A branch: so many steps as always, then others."""
    return [*history(steps), *(message for number in numbers for message in step(number))]


async def test_a_rewound_conversation_is_raw_and_one_that_comes_back_is_packed(story: Story) -> None:
    """Before the covered range ends no surface applies; after it, it does again."""
    covered = await story.pack(history(OVER))
    await story.reads_raw(history(5))
    await story.reads_raw(history(OVER)[: covered - 1])
    await story.reads_packed(history(OVER))


async def test_a_rewind_behind_the_newest_surface_finds_the_one_before(story: Story) -> None:
    """Packed twice: the deepest surface whose items are all there applies, and none where none has."""
    first = await story.pack(history(OVER))
    second = await story.pack(history(AGAIN), generation=2)
    assert second > first
    await story.reads_packed(history(AGAIN), generation=2)
    await story.reads_packed(history(OVER), generation=1)
    await story.reads_packed(history(AGAIN)[:second], generation=1)
    await story.reads_raw(history(5))
    await story.reads_packed(history(AGAIN + 1), generation=2)


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
    await story.pack(history(OVER))
    await story.reads_packed(_other(OVER, 14))
    await story.reads_packed(_other(OVER, 40))
    await story.reads_raw(_other(6, 40, 41, 42, 43, 44, 45, 46))


async def test_branches_that_take_turns_each_keep_their_own_surface(story: Story, ledger: Server) -> None:
    """Two forks of one packed prefix and one that left inside it are packed by themselves, and never as another."""
    await story.pack(history(OVER))
    branches = {2: (OVER, range(40, 51)), 3: (OVER, range(60, 71)), 4: (4, range(80, 89))}
    for generation, (steps, numbers) in branches.items():
        await story.pack(_other(steps, *numbers), generation)
    asked = len(story.summaries)
    for more in (1, 2):
        for generation, (steps, numbers) in branches.items():
            reply, seen, _ = await story.turn(_other(steps, *numbers, *(numbers[-1] + one + 1 for one in range(more))))
            assert (reply.action, reply.generation) == ("projected", generation)
            assert scribe.split(seen.body)[1][1] == story.packed[generation][1]
        await story.reads_packed(history(OVER + more))
    assert len(story.summaries) == asked
    assert (await stored(ledger, story.conversation)).record.generation == 4


async def test_a_regenerated_answer_after_the_covered_range_leaves_the_surface(story: Story) -> None:
    """The same request again, then another answer to it than before: projected both times."""
    await story.pack(history(OVER))
    await story.reads_packed(history(OVER))
    for answer in ("One way.", "Another way."):
        said = [{"role": "assistant", "content": answer}, {"role": "user", "content": "Go on."}]
        await story.reads_packed([*history(OVER), *said])


async def test_a_regenerated_answer_inside_the_covered_range_is_another_history(story: Story) -> None:
    """It is raw while it is short, and packed for itself once it is long; the first history keeps its surface."""
    await story.pack(history(OVER))
    regenerated = history(OVER)
    regenerated[7] = {"role": "assistant", "content": "Module 1 needed no change."}
    await story.reads_raw(regenerated[:40])
    await story.pack(regenerated, generation=2)
    await story.reads_packed(history(OVER), generation=1)
    await story.reads_packed([*regenerated, *step(OVER + 1)], generation=2)


async def test_one_changed_character_inside_the_covered_range_and_the_surface_does_not_apply(story: Story) -> None:
    """In the first item, in a tool result, in arguments, and in the last covered item."""
    covered = await story.pack(history(OVER))
    for at, change in ((1, "content"), (4, "content"), (2, "arguments"), (covered, "content")):
        messages = history(OVER)
        holder = messages[at]["tool_calls"][0]["function"] if change == "arguments" else messages[at]
        holder[change] = holder[change].replace("e", "a", 1)
        await story.reads_raw(messages)


async def test_an_edit_between_two_surfaces_falls_back_to_the_shallower(story: Story) -> None:
    """What was edited is after the first covered range and inside the second."""
    first = await story.pack(history(OVER))
    second = await story.pack(history(AGAIN), generation=2)
    for at in (first + 1, second):
        messages = history(AGAIN)
        messages[at]["content"] = f"{messages[at]['content']} Changed."
        await story.reads_packed(messages, generation=1)


async def test_an_edit_after_the_covered_range_leaves_the_surface_and_is_sent_as_it_is(story: Story) -> None:
    """The first raw message and the newest one are changed."""
    covered = await story.pack(history(OVER))
    for at in (1 + covered, -1):
        messages = history(OVER)
        messages[at]["content"] += " Changed."
        await story.reads_packed(messages)


async def test_new_system_text_and_other_tools_leave_the_surface_and_are_sent_as_they_are(story: Story) -> None:
    """What surrounds the history is no part of it: a new prompt, no prompt at all, fewer tools, another limit."""
    await story.pack(history(OVER))
    messages = history(OVER)
    messages[0]["content"] = "You are another agent now."
    await story.reads_body_packed(story.spelled(messages))
    await story.reads_body_packed(story.spelled(messages, tools=[], max_tokens=500, temperature=0.5, x_unknown=1))


async def test_another_session_id_is_another_conversation_and_a_shared_scope_is_one(story: Story) -> None:
    """A fork under a new id, or with none, packs for itself; `x-carryon-scope` stands above the ids agents send."""
    await story.pack(history(OVER))
    for other in ("talk-2", "", None):
        await story.reads_raw(history(OVER), x_session_id=other)
    await story.pack(history(OVER), x_session_id="talk-2")
    await story.pack(history(OVER), x_session_id="talk-3", x_carryon_scope="team")
    await story.reads_packed(history(OVER), x_session_id="talk-4", x_carryon_scope="team")


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


def _padded(messages: list[Message]) -> None:
    for one in messages[1:]:
        one["content"] = f"\n{one['content']}  \n"


@pytest.mark.parametrize(
    "change", [_marked, _respelt, _thought, _renamed, _padded], ids=lambda one: one.__name__.strip("_")
)
@pytest.mark.parametrize("direction", ["appears", "vanishes"])
async def test_what_clients_respell_between_turns_leaves_the_surface(
    story: Story, change: Callable[[list[Message]], None], direction: str
) -> None:
    """`cache_control` moves, arguments are written anew, reasoning comes or goes, messages get ids: it applies."""
    plain, changed = history(OVER), deepcopy(history(OVER))
    change(changed)
    first, later = (plain, changed) if direction == "appears" else (changed, plain)
    await story.pack(first)
    await story.reads_packed(later)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def windows(upstream: Scribe, ledger: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a proxy that knows the windows of three models and of no other."""
    state = tmp_path_factory.mktemp("windows")
    sizes = {"story": WINDOW, "larger": 2 * WINDOW, "smaller": 12_288}
    models = [{"model": name, "context_window": size} for name, size in sizes.items()]
    (state / "carryon.yaml").write_text(json.dumps({"models": models}))
    running = proxied(ledger, upstream.url, state, "--config", str(state / "carryon.yaml"), **PATIENT)
    async with Client(await running.start()) as found:
        yield found
    assert await running.stop() == 0
    assert not running.events("internal-fault")


async def test_another_model_gets_a_surface_only_where_its_history_needs_one(
    windows: Client, upstream: Scribe, ledger: Server
) -> None:
    """Below its threshold the history goes raw; over it, and where nobody knows its window, the surface serves."""
    story = Story(windows, upstream, "sk-switch")
    await story.pack(history(OVER))
    larger = Story(windows, upstream, "sk-switch", "larger")
    await larger.reads_raw(history(OVER))
    await larger.reads_raw(history(OVER + 6))
    for model in ("smaller", "unheard-of"):
        await story.reads_body_packed(story.spelled(history(OVER), model=model))
    await story.reads_packed(history(OVER + 1))
    asked = len(larger.summaries)
    await story.reads_body_packed(story.spelled(history(2 * OVER + 2), model="larger"))
    assert len(larger.summaries) == asked
    assert (await stored(ledger, story.conversation)).record.generation == 1


async def test_a_model_that_packed_by_itself_keeps_its_own_surface(windows: Client, upstream: Scribe) -> None:
    """After a switch and back, each model's turns go on with what was packed for it."""
    # A summary that only repeats the one it is built on would be none.
    upstream.summarisers["larger"] = lambda request, number: scribe.summarises_well(request, 1_000 + number)
    story, larger = (Story(windows, upstream, "sk-switch-back", model) for model in ("story", "larger"))
    await story.pack(history(OVER))
    long = history(3 * OVER)
    reply, seen, _ = await larger.turn(long)
    assert reply.generation == 2
    shown = scribe.split(seen.body)[1]
    reply, seen, _ = await larger.turn([*long, *step(50)])
    assert (reply.action, reply.generation) == ("projected", 2)
    assert scribe.split(seen.body)[1][:2] == shown[:2]
    await story.reads_packed(history(OVER + 1), generation=1)
