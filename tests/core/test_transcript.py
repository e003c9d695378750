"""A transcript: what is significant, and where coverage ends."""

from __future__ import annotations

from proxy.core.transcript import Facts
from tests.transcripts import says, system, transcript, user


def test_only_what_normalises_to_something_is_significant() -> None:
    """An empty digest does not count."""
    assert Facts(role="user", digest=b"d").significant
    assert not Facts(role="assistant", digest=b"").significant


def test_significant_items_are_counted_without_the_empty_ones() -> None:
    """`significant` names their places in order, `digests` what they are."""
    found = transcript(system("s"), user("a"), says(""), says(""), user("b"), says(""))
    assert found.significant == (0, 3)
    assert found.digests == (found.items[0].facts.digest, found.items[3].facts.digest)


def test_coverage_ends_behind_the_empty_items_that_belong_to_the_next() -> None:
    """An insignificant item lies in the span of the next significant one; those at the end in none."""
    found = transcript(user("a"), says(""), user("b"), says(""))
    assert [found.end(covered) for covered in (0, 1, 2)] == [0, 1, 3]
