"""A bounded mapping."""

from __future__ import annotations

from proxy.store.bounded import Bounded


def test_what_was_used_least_recently_is_forgotten_first() -> None:
    """Reading counts as use."""
    held: Bounded[str, int] = Bounded(3)
    for number, name in enumerate("abc"):
        held.put(name, number)
    assert held.get("a") == 0
    held.put("d", 3)
    assert [held.get(name) for name in "abcd"] == [0, None, 2, 3]


def test_the_weights_never_exceed_the_limit() -> None:
    """Replacing and dropping give room back; what is too heavy alone is not kept."""
    held: Bounded[str, bytes] = Bounded(10)
    held.put("a", b"x", 6)
    held.put("a", b"y", 4)
    held.put("b", b"z", 5)
    assert (held.weight, len(held)) == (9, 2)
    held.put("c", b"w", 11)
    assert (held.get("c"), len(held)) == (None, 2)
    held.drop("a")
    held.drop("a")
    assert held.weight == 5


def test_all_that_belong_together_are_forgotten_at_once() -> None:
    """And give their room back."""
    held: Bounded[tuple[str, int], int] = Bounded(10)
    for number in range(4):
        held.put(("ab"[number % 2], number), number, 2)
    held.drop_each(lambda key: key[0] == "a")
    assert [held.get((name, number)) for number, name in enumerate("abab")] == [None, 1, None, 3]
    assert held.weight == 4
