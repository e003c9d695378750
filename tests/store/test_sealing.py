"""Keys: the first seals, all open."""

from __future__ import annotations

from itertools import pairwise

from proxy.store.sealing import Seals

OLD, NEW = b"the old secret of ours", b"the new secret of ours"


def test_the_first_key_seals_and_all_open() -> None:
    """A key is brought in behind, moved to the front, and the old one goes: neighbours on that way read each other."""
    steps = [Seals([OLD]), Seals([OLD, NEW]), Seals([NEW, OLD]), Seals([NEW])]
    for here, there in (*pairwise(steps), *pairwise(reversed(steps[:3]))):
        assert there.open(here.seal(b"text", ["place"]), ["place"]) == b"text"


def test_another_key_opens_nothing() -> None:
    """Nor does a cut seal."""
    sealed = Seals([OLD]).seal(b"text", ["place"])
    assert Seals([NEW]).open(sealed, ["place"]) is None
    assert Seals([OLD]).open(sealed[:11], ["place"]) is None


def test_two_seals_of_one_text_differ() -> None:
    """The nonce is drawn anew."""
    seals = Seals([OLD])
    assert seals.seal(b"text", ["place"]) != seals.seal(b"text", ["place"])
