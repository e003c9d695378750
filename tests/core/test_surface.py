"""Surfaces: bound to content, prefix-stable, and never spelled with what they do not cover."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.ranges import units
from proxy.core.replacement import Replacement
from proxy.core.surface import (
    Carry,
    Keep,
    Projection,
    Provenance,
    Put,
    Surface,
    matching,
    pack,
    project,
    raw_projection,
    unpack,
)
from proxy.dialects.chat import CHAT
from tests.core.plans import STEPS, TALK, applied, certain, entry, planned, put, raws, stored
from tests.transcripts import (
    WORDS,
    Message,
    calls,
    conversations,
    result,
    says,
    spelt,
    transcript,
    user,
)

QUICK = settings(max_examples=60, deadline=None)


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


def test_an_unknown_format_counts_as_absent() -> None:
    """A later version's surface is not guessed at."""
    packed = msgspec.msgpack.decode(pack(Surface(parts=(), covered=1)))
    assert unpack(msgspec.msgpack.encode(packed)) is not None
    assert unpack(msgspec.msgpack.encode({**packed, "format": 2})) is None
    assert unpack(msgspec.msgpack.encode({"format": 2, "new": True})) is None
    assert unpack(b"") is None


def test_a_surface_knows_who_wrote_it_and_an_older_one_is_read_without() -> None:
    """One format (rule 5.8): what an earlier version stored lacks the field, and a reader that lacks it skips it."""
    source = Provenance(model="m-1", prompt=100, completion=10, calls=2, operation="op")
    surface = Surface(parts=(put(user("s")),), covered=1, summary="S3", provenance=source)
    assert unpack(pack(surface)) == surface
    packed = msgspec.msgpack.decode(pack(surface))
    older = {key: value for key, value in packed.items() if key != "provenance"}
    assert unpack(msgspec.msgpack.encode(older)) == msgspec.structs.replace(surface, provenance=None)
    assert unpack(msgspec.msgpack.encode({**packed, "later": 1})) == surface


def test_a_client_that_goes_back_to_where_a_summary_ends_gets_its_newest_unit_raw() -> None:
    """The summary of a longer history stands for the newest unit of the shorter one: it does not apply there."""
    plan = certain(raw_projection(transcript(*STEPS)), [Put(spelt(user("summary")))], 4)
    assert plan.surface.summarised == 4
    assert matching([entry(plan)], transcript(*STEPS)) == [entry(plan)]
    assert matching([entry(plan)], transcript(*STEPS[:4])) == []
