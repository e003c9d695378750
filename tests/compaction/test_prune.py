"""Pruning: old tool results get shorter, by levels; nothing else is touched, and a second pass changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.compaction.job import View
from proxy.compaction.prune import LEVELS, Changes, for_overflow, for_pressure
from proxy.core.ranges import units
from proxy.dialects.chat import CHAT
from proxy.policy import Policy, PrunePolicy
from tests.compaction.graphs import Messages, conversations
from tests.compaction.scripted import METER, ScriptedJob, call, calls, conversation, result, says, user

LONG = "\n".join(f"line {at} of a long output" for at in range(2_000))


def view(
    *messages: dict[str, object],
    window: int = 1_000,
    trigger: Literal["pressure", "overflow"] = "pressure",
    policy: Policy | None = None,
) -> View:
    """A view of a conversation; a small window leaves few tokens protected."""
    return ScriptedJob(conversation(*messages), window=window, trigger=trigger, policy=policy).view


def texts(changes: Changes) -> dict[int, str]:
    """The new text of each changed result."""
    return {at: CHAT.said(raw).results[0].text for at, raw in changes}


def step(id_: str, text: str, name: str = "bash") -> Messages:
    """One tool step."""
    return [call(id_, name), result(id_, text)]


NEWER = [*step("y", "fine"), *step("z", "fine"), says("done")]


def applied(seen: View, changes: Changes) -> View:
    """The view after a pruning was committed."""
    items = list(seen.items)
    for at, raw in changes:
        item = CHAT.item(raw)
        assert item is not None
        items[at] = item
    tokens = tuple(METER.item(item) for item in items)
    return replace(seen, items=tuple(items), tokens=tokens, units=units(items))


def test_an_old_long_result_keeps_half_of_the_limit_and_an_eighth() -> None:
    """The limit is 8,192 code points, in a smaller window as many as its tokens."""
    for window, limit in ((1_000, 1_000), (16_000, 8_192)):
        [text] = texts(for_pressure(view(user("hi"), *step("a", LONG), *NEWER, window=window))).values()
        assert text.startswith(LONG[: limit // 2])
        assert text.endswith(LONG[-(limit // 8) :])
        assert f"[… {len(LONG) - limit // 2 - limit // 8} characters elided …]" in text


def test_the_last_two_steps_are_left_alone() -> None:
    """Messages in between do not count as steps."""
    messages = [
        user("hi"),
        *step("a", LONG),
        *step("b", LONG),
        *step("c", LONG),
        says("so"),
        user("go on"),
        says("yes"),
    ]
    assert [at for at, _ in for_pressure(view(*messages))] == [2]


def test_the_newest_tool_tokens_are_left_alone() -> None:
    """A fifth of the window, results that lie in it whole."""
    tokens = METER.raw(json.dumps(result("a", LONG)).encode())
    messages = [user("hi"), *step("a", LONG), *step("b", LONG), *step("c", LONG), *NEWER]
    assert [at for at, _ in for_pressure(view(*messages, window=5 * (2 * tokens + 20)))] == [2]
    assert [at for at, _ in for_pressure(view(*messages, window=5 * (2 * tokens - 20)))] == [2, 4]


def test_results_the_model_has_not_seen_are_left_alone() -> None:
    """However many calls one step makes."""
    wanted = [(f"p{at}", "bash", {"n": at}) for at in range(9)]
    trailing = [result(f"p{at}", LONG) for at in range(9)]
    assert for_pressure(view(user("hi"), calls(*wanted), *trailing)) == []


@pytest.mark.parametrize("text", [f"Error: {LONG}", "Traceback (most recent call last):\n" + LONG])
def test_errors_are_left_alone_under_pressure(text: str) -> None:
    """Their exact text is what is needed later."""
    assert for_pressure(view(user("hi"), *step("a", text), *NEWER)) == []


def test_one_liners_are_left_alone_under_pressure() -> None:
    """Even where the configured limit is lower; a long single line is a document."""
    policy = Policy(prune=PrunePolicy(threshold_chars=64, head_chars=32, tail_chars=8))
    assert for_pressure(view(user("hi"), *step("a", "x" * 150), *NEWER, policy=policy)) == []
    assert len(for_pressure(view(user("hi"), *step("a", "x" * 1_500), *NEWER, policy=policy))) == 1


def test_exempt_tools_are_left_alone_under_pressure() -> None:
    """By name or glob; where an id is used again its newest call names the tool."""
    policy = Policy(prune=PrunePolicy(exempt_tools=("read_*",)))
    messages = [user("hi"), *step("a", LONG, "read_file"), *step("a", LONG, "bash"), *NEWER]
    assert [at for at, _ in for_pressure(view(*messages, policy=policy))] == [4]


def test_calls_and_messages_are_never_touched() -> None:
    """However long they are."""
    messages = [user(LONG), call("a", content=LONG), result("a", "ok"), says(LONG), *NEWER]
    seen = view(*messages, trigger="overflow")
    assert for_pressure(seen) == []
    assert all(for_overflow(seen, level, newest=True) == [] for level in range(LEVELS - 1))


def test_on_overflow_the_first_level_cuts_every_result() -> None:
    """The newest unit's as well."""
    messages = [user("hi"), *step("a", LONG), *step("b", LONG)]
    assert [at for at, _ in for_overflow(view(*messages, window=16_000), 0)] == [2, 4]


def test_on_overflow_deeper_levels_cut_to_2000_1000_500_and_spare_the_newest_unit() -> None:
    """The newest unit stays as the first level leaves it."""
    seen = view(user("hi"), *step("a", LONG), *step("b", LONG), window=16_000)
    for level, limit in ((1, 2_000), (2, 1_000), (3, 500)):
        found = texts(for_overflow(seen, level))
        assert found[2].startswith(LONG[: limit // 2] + "\n[…")
        assert found[4].startswith(LONG[:4_096] + "\n[…")
        assert len(texts(for_overflow(seen, level, newest=True))[4]) < limit


def test_the_last_level_masks_all_but_the_last_ten_results() -> None:
    """Masked is the marker alone; short texts are not worth a marker."""
    messages = [one for at in range(14) for one in step(f"c{at}", "short" if at == 1 else LONG[:300])]
    found = texts(for_overflow(view(user("hi"), *messages, window=16_000), LEVELS - 1))
    assert found == dict.fromkeys((2, 6, 8), "[… 300 characters elided …]")


def test_on_overflow_errors_are_cut_to_the_first_level_only() -> None:
    """An error that is longer is a log; below that its text stays."""
    error = "Error: it broke\n" + LONG
    seen = view(*[one for at in range(14) for one in step(f"c{at}", error)], window=16_000)
    assert {len(text) for text in texts(for_overflow(seen, LEVELS - 1)).values()} == {4_096 + 1_024 + 31}


def test_media_and_other_fields_of_a_result_stay() -> None:
    """Only texts change."""
    content = [{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    one: dict[str, object] = {"role": "tool", "tool_call_id": "a", "name": "shot", "content": content}
    [(_, raw)] = for_pressure(view(user("hi"), call("a"), one, *NEWER))
    new = json.loads(raw)
    assert new["content"][1] == content[1]
    assert new["name"] == "shot"


@given(conversations(), st.sampled_from([512, 2_000, 60_000]))
@settings(max_examples=40, deadline=None)
def test_a_second_pass_changes_nothing(messages: Messages, window: int) -> None:
    """Under pressure, and on overflow at every level."""
    seen = view(*messages, window=window)
    assert for_pressure(applied(seen, for_pressure(seen))) == []
    for level in range(LEVELS):
        once = applied(seen, for_overflow(seen, level))
        assert for_overflow(once, level) == []


@given(messages=conversations(), window=st.sampled_from([512, 2_000, 60_000]), newest=st.booleans())
@settings(max_examples=40, deadline=None)
def test_each_level_is_at_least_as_short_as_the_one_before(messages: Messages, window: int, *, newest: bool) -> None:
    """So the deepest level is the most that pruning can do; calls, order and roles never change."""
    seen = view(*messages, window=window)
    totals = []
    for level in range(LEVELS):
        after = applied(seen, for_overflow(seen, level, newest=newest))
        totals.append(after.total)
        assert CHAT.invalid(after.items, seen.items) is None
        assert [one.facts.opens for one in after.items] == [one.facts.opens for one in seen.items]
    assert totals == sorted(totals, reverse=True)


@given(conversations())
@settings(max_examples=20, deadline=None)
def test_levels_may_follow_one_another(messages: Messages) -> None:
    """A deeper level after a shallower one gives what it would have given at once."""
    seen = view(*messages, window=60_000)
    shallow = applied(seen, for_overflow(seen, 0))
    for level in range(1, LEVELS):
        twice = applied(shallow, for_overflow(shallow, level))
        assert [one.raw for one in twice.items] == [one.raw for one in applied(seen, for_overflow(seen, level)).items]
