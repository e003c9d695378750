"""Planning a replacement: what makes a surface, what does not, and what it shows one by one."""

from __future__ import annotations

import pytest

from proxy.core.replacement import replace
from proxy.core.surface import Carry, Keep, Put, matching, pack, raw_projection, unpack
from proxy.dialects.chat import CHAT
from tests.core.plans import STEPS, TALK, applied, certain, entry, planned, put, raws
from tests.transcripts import result, says, spelt, system, transcript, user

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


def test_a_text_that_nothing_can_spell_is_carried_without_it() -> None:
    """Half of a cut emoji in a user's words must not keep a conversation from ever being packed."""
    halves = Carry(task="fix \ud83d", words=("\udc00", "whole"), outline={"done": ("a\ud800b",)})
    plan = replace(raw_projection(transcript(*TALK)), [put(user("packed"))], 1, CHAT.item, carry=halves, summary="S4")
    assert plan is not None
    assert unpack(pack(plan.surface)) == plan.surface
    assert plan.surface.carry == Carry(task="fix ?", words=("?", "whole"), outline={"done": ("a?b",)})


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
