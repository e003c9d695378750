"""Surfaces: bound to content, prefix-stable, and never spelled with what they do not cover."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.surface import (
    Carry,
    Keep,
    Projection,
    Put,
    Replacement,
    Surface,
    matching,
    pack,
    project,
    raw_projection,
    replace,
    unpack,
)
from proxy.core.transcript import Transcript
from proxy.dialects.chat import CHAT
from tests.transcripts import (
    WORDS,
    Message,
    Stored,
    calls,
    conversations,
    result,
    says,
    spelt,
    system,
    transcript,
    user,
)

QUICK = settings(max_examples=60, deadline=None)


def stored(plan: Replacement, generation: int = 1, *, retired: bool = False) -> Stored:
    """The entry a commit of this plan would make."""
    return Stored(generation=generation, digest=plan.digest, covered=plan.surface.covered, retired=retired)


def planned(now: Projection, parts: list[Put | Keep], through: int) -> Replacement | None:
    """A plan as a compactor would make it."""
    return replace(now, parts, through, CHAT.item, carry=Carry(), summary="S4")


def certain(now: Projection, parts: list[Put | Keep], through: int) -> Replacement:
    """A plan that must succeed."""
    plan = planned(now, parts, through)
    assert plan is not None
    return plan


def applied(surface: Surface, to: Transcript, generation: int = 1) -> Projection:
    """A surface laid on a transcript it is bound to."""
    found = project(to, surface, CHAT.item, generation=generation, operation="op")
    assert found is not None
    return found


def put(message: Message) -> Put:
    """A rendered item."""
    return Put(spelt(message))


def raws(projection: Projection) -> list[bytes]:
    """What the model sees, item by item."""
    return [item.raw for item in projection.items]


@st.composite
def plans(draw: st.DrawFn, now: Projection) -> Replacement | None:
    """A random replacement along units: summarised, pruned, kept, with the system text between."""
    edges = [stop for _, stop in units(now.items) if stop >= now.fixed]
    if not edges:
        return None
    through = draw(st.sampled_from(edges))
    parts: list[Put | Keep] = [put(user(draw(WORDS)))] if draw(st.booleans()) else []
    for at in range(through):
        if now.items[at].facts.role == "system" or draw(st.booleans()):
            parts.append(Keep(at, at + 1))
        elif draw(st.booleans()):
            parts.append(put(says(draw(WORDS))))
    return planned(now, parts, through)


@QUICK
@given(conversations(), st.lists(WORDS, max_size=3), st.data())
def test_a_projection_is_prefix_stable(messages: list[Message], later: list[str], data: st.DataObject) -> None:
    """What was projected once is projected again, byte for byte, however long the conversation grows."""
    now = raw_projection(transcript(*messages))
    plan = data.draw(plans(now))
    if plan is None:
        return
    longer = transcript(*messages, *(user(text) for text in later))
    again = applied(plan.surface, longer)
    assert raws(again)[: len(plan.projection.items)] == raws(plan.projection)
    assert raws(again)[len(plan.projection.items) :] == [spelt(user(text)) for text in later]
    assert matching([stored(plan)], longer) == [stored(plan)]
    assert (again.fixed, again.covered) == (plan.projection.fixed, plan.surface.covered)


@QUICK
@given(conversations(), st.data())
def test_kept_items_stand_as_the_client_sent_them(messages: list[Message], data: st.DataObject) -> None:
    """Origins name the client's items; what the surface put there has none; the tail is all that is not covered."""
    now = raw_projection(transcript(*messages))
    plan = data.draw(plans(now))
    if plan is None:
        return
    found = plan.projection
    own = [(index, origin) for index, origin in enumerate(found.origins) if origin >= 0]
    assert all(found.items[index] is now.items[origin] for index, origin in own)
    assert [origin for _, origin in own] == sorted({origin for _, origin in own})
    assert found.origins[found.fixed :] == tuple(range(found.transcript.end(found.covered), len(now.items)))


@QUICK
@given(conversations(), st.lists(WORDS, min_size=1, max_size=3), st.data())
def test_replacements_stack(messages: list[Message], later: list[str], data: st.DataObject) -> None:
    """A second surface built on the first covers at least as much and stands alone."""
    first = data.draw(plans(raw_projection(transcript(*messages))))
    if first is None:
        return
    longer = transcript(*messages, *(user(text) for text in later))
    now = applied(first.surface, longer)
    second = data.draw(plans(now))
    if second is None:
        return
    assert second.surface.covered >= first.surface.covered
    assert raws(applied(second.surface, longer, 2)) == raws(second.projection)
    assert matching([stored(first), stored(second, 2)], longer)[0] == stored(second, 2)


@QUICK
@given(conversations(), st.data())
def test_one_changed_message_in_the_covered_range_and_it_does_not_apply(
    messages: list[Message], data: st.DataObject
) -> None:
    """An edit before the cut unbinds the surface; one behind it does not."""
    before = transcript(*messages)
    plan = data.draw(plans(raw_projection(before)))
    if plan is None:
        return
    at = data.draw(st.sampled_from(before.significant))
    edited = [dict(message) for message in messages]
    edited[at]["content"] = f"{edited[at].get('content') or ''}x"
    covered_too = at < before.end(plan.surface.covered)
    assert bool(matching([stored(plan)], transcript(*edited))) != covered_too


TALK = [user("task"), says("one"), user("two"), says("three"), user("four")]


def test_a_rewind_falls_back_to_the_shallower_surface() -> None:
    """The deepest match wins; at equal depth the higher generation; a retired one never."""
    whole = transcript(*TALK)
    now = raw_projection(whole)
    shallow, deep = certain(now, [put(user("s"))], 2), certain(now, [put(user("d"))], 4)
    entries = [stored(shallow, 1), stored(deep, 2), stored(shallow, 3), stored(deep, 4, retired=True)]
    assert [entry.generation for entry in matching(entries, whole)] == [2, 3, 1]
    assert [entry.generation for entry in matching(entries, transcript(*TALK[:3]))] == [3, 1]
    assert matching(entries, transcript(*TALK[:1])) == []


def test_the_clients_new_bytes_stand_for_kept_items() -> None:
    """Items written anew with the same meaning still match, and are sent as the client sends them now."""
    first = transcript(user("task"), calls("c", arguments='{"a": 1, "b": 2}'), result("c"), user("go on"))
    plan = certain(raw_projection(first), [put(user("s")), Keep(1, 3)], 3)
    anew = calls("c", arguments='{"b":2,"a":1.0}') | {"content": "", "reasoning_content": "hm"}
    second = transcript(user("task", cache_control={"type": "ephemeral"}), anew, result("c"), user("go on"))
    assert matching([stored(plan)], second) == [stored(plan)]
    assert raws(applied(plan.surface, second)) == [
        spelt(user("s")),
        spelt(anew),
        spelt(result("c")),
        spelt(user("go on")),
    ]


NOTHING_MADE = {
    "less than what is covered": ([Keep(0, 1)], 1),
    "more than there is": ([], 99),
    "a negative cut": ([], -1),
    "out of range": ([Keep(0, 9)], 4),
    "behind the cut": ([Keep(3, 5)], 4),
    "empty": ([Keep(2, 2)], 4),
    "backwards": ([Keep(3, 2)], 4),
    "negative": ([Keep(-1, 1)], 4),
    "out of order": ([Keep(3, 4), Keep(2, 3)], 4),
    "twice": ([Keep(2, 3), Keep(2, 3)], 4),
    "no item of the dialect": ([Put(b"{}")], 4),
    "no JSON": ([Put(b"\xff")], 4),
}


@pytest.mark.parametrize(("parts", "through"), NOTHING_MADE.values(), ids=NOTHING_MADE)
def test_parts_that_spell_nothing_make_no_surface(parts: list[Put | Keep], through: int) -> None:
    """What cannot be stored is refused at the plan. Here two items spell a surface that covers three."""
    now = applied(
        certain(raw_projection(transcript(*TALK)), [put(user("s")), Keep(2, 3)], 3).surface, transcript(*TALK)
    )
    assert (now.fixed, len(now.items)) == (2, 4)
    assert planned(now, parts, through) is None


def test_a_cut_before_anything_covers_nothing_and_is_refused() -> None:
    """A surface of nothing would be bound to nothing."""
    assert planned(raw_projection(transcript(*TALK)), [put(user("s"))], 0) is None


def test_a_surface_can_be_replaced_where_it_stands() -> None:
    """Pruning inside what is already put covers the same, no more."""
    now = applied(certain(raw_projection(transcript(*TALK)), [put(user("long"))], 3).surface, transcript(*TALK))
    again = certain(now, [put(user("s"))], 1)
    assert again.surface.covered == 3
    assert raws(again.projection) == [spelt(message) for message in (user("s"), *TALK[3:])]


def test_a_cut_between_an_empty_message_and_its_next_is_none() -> None:
    """No coverage can name it."""
    now = raw_projection(transcript(user("a"), says(""), user("b")))
    assert planned(now, [put(user("s"))], 2) is None


def test_empty_messages_at_the_very_end_stay_raw() -> None:
    """They belong to no significant one: a cut behind or among them covers all that counts."""
    now = raw_projection(transcript(user("a"), user("b"), says(""), says("")))
    for through in (2, 3, 4):
        plan = certain(now, [put(user("s"))], through)
        assert plan.surface.covered == 2
        assert raws(plan.projection) == [spelt(user("s")), spelt(says("")), spelt(says(""))]


def test_what_was_put_is_put_again_and_neighbours_are_kept_as_one() -> None:
    """A second surface is spelled with the client's items and rendered bytes, never with another surface."""
    now = applied(
        certain(raw_projection(transcript(*TALK)), [put(user("s")), Keep(1, 3)], 3).surface, transcript(*TALK)
    )
    plan = certain(now, [Keep(0, 4)], 4)
    assert plan.surface.parts == (put(user("s")), Keep(1, 4))


def test_system_text_between_stays_in_its_place() -> None:
    """A kept item brings the empty ones that belong to it."""
    whole = transcript(user("a"), says(""), system("rule"), says("b"), user("c"))
    plan = certain(raw_projection(whole), [put(user("s")), Keep(2, 3)], 4)
    assert raws(plan.projection) == [spelt(m) for m in (user("s"), says(""), system("rule"), user("c"))]


@pytest.mark.parametrize(
    "surface",
    [
        Surface(parts=(put(user("s")),), covered=9),
        Surface(parts=(put(user("s")),), covered=-1),
        Surface(parts=(Keep(0, 3),), covered=2),
        Surface(parts=(Keep(-1, 1),), covered=2),
        Surface(parts=(Keep(1, 1),), covered=2),
        Surface(parts=(Put(b"?"),), covered=2),
    ],
)
def test_a_surface_that_does_not_fit_the_transcript_is_not_applied(surface: Surface) -> None:
    """Stored bytes are not trusted to be sound."""
    assert project(transcript(*TALK), surface, CHAT.item, generation=1, operation="op") is None


CARRIES = st.builds(
    Carry,
    task=st.text(max_size=5),
    rules=st.lists(WORDS, max_size=2).map(tuple),
    outline=st.dictionaries(WORDS, st.lists(WORDS, max_size=2).map(tuple), max_size=2),
)
SURFACES = st.builds(
    Surface,
    parts=st.lists(
        st.one_of(st.builds(Put, st.binary(max_size=8)), st.builds(Keep, st.integers(0, 9), st.integers(0, 9))),
        max_size=5,
    ).map(tuple),
    covered=st.integers(0, 1_000),
    summary=st.sampled_from(["prune", "S1", "S4"]),
    carry=CARRIES,
)


@given(SURFACES)
def test_a_stored_surface_is_read_back(surface: Surface) -> None:
    """Packed and unpacked it is the same."""
    assert unpack(pack(surface)) == surface


@given(SURFACES, st.data())
def test_damaged_bytes_are_absent_or_a_surface_and_never_raise(surface: Surface, data: st.DataObject) -> None:
    """Whatever the store gives back, it is a surface or None."""
    raw = bytearray(pack(surface))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert unpack(bytes(raw)) is None or isinstance(unpack(bytes(raw)), Surface)


def test_a_text_that_nothing_can_spell_is_carried_without_it() -> None:
    """Half of a cut emoji in a user's words must not keep a conversation from ever being packed."""
    halves = Carry(task="fix \ud83d", words=("\udc00", "whole"), outline={"done": ("a\ud800b",)})
    plan = replace(raw_projection(transcript(*TALK)), [put(user("packed"))], 1, CHAT.item, carry=halves, summary="S4")
    assert plan is not None
    assert unpack(pack(plan.surface)) == plan.surface
    assert plan.surface.carry == Carry(task="fix ?", words=("?", "whole"), outline={"done": ("a?b",)})


def test_an_unknown_format_counts_as_absent() -> None:
    """A later version's surface is not guessed at."""
    packed = msgspec.msgpack.decode(pack(Surface(parts=(), covered=1)))
    assert unpack(msgspec.msgpack.encode(packed)) is not None
    assert unpack(msgspec.msgpack.encode({**packed, "format": 2})) is None
    assert unpack(msgspec.msgpack.encode({"format": 2, "new": True})) is None
    assert unpack(b"") is None


def entry(plan: Replacement) -> Stored:
    """The entry of a plan with all that the ledger holds of it."""
    surface = plan.surface
    return Stored(generation=1, digest=plan.digest, covered=surface.covered, summarised=surface.summarised)


#: A task, a step, what was made of it, another step.
STEPS = (user("task"), calls("a"), result("a", "long " * 50), says("so"), calls("b"), result("b", "long " * 50))


def test_a_client_that_goes_back_to_where_a_summary_ends_gets_its_newest_unit_raw() -> None:
    """The summary of a longer history stands for the newest unit of the shorter one: it does not apply there."""
    plan = certain(raw_projection(transcript(*STEPS)), [Put(spelt(user("summary")))], 4)
    assert plan.surface.summarised == 4
    assert matching([entry(plan)], transcript(*STEPS)) == [entry(plan)]
    assert matching([entry(plan)], transcript(*STEPS[:4])) == []


def test_a_pruned_newest_unit_still_applies_to_it() -> None:
    """A tool result put in the place of the same result is shown; a summary before it stays one."""
    whole = transcript(*STEPS)
    shorter = Put(spelt(result("b", "short")))
    plan = certain(raw_projection(whole), [Keep(0, 5), shorter], 6)
    assert (plan.surface.covered, plan.surface.summarised) == (6, 0)
    assert matching([entry(plan)], whole) == [entry(plan)]
    both = certain(raw_projection(whole), [Put(spelt(user("summary"))), Keep(4, 5), shorter], 6)
    assert (both.surface.covered, both.surface.summarised) == (6, 4)
    assert matching([entry(both)], whole) == [entry(both)]


def test_what_a_summary_swallowed_of_an_earlier_surface_counts_as_all_it_covers() -> None:
    """Inside a surface nobody knows which item stood where, so a cut there counts as the whole of it."""
    whole = transcript(*STEPS, says("and so"))
    pruned = certain(raw_projection(whole), [Keep(0, 2), Put(spelt(result("a", "x"))), Keep(3, 4)], 4).projection
    assert pruned.summarised == 0
    plan = certain(pruned, [Put(spelt(user("summary"))), Keep(3, 4)], 4)
    assert plan.surface.summarised == 4
    later = certain(plan.projection, [Keep(0, 2)], 2)
    assert later.surface.summarised == 4
