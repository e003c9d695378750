"""The names under which things lie in Redis."""

from __future__ import annotations

import re

import pytest

from proxy.store import keys
from proxy.store.keys import Keys


def test_a_conversations_keys_share_one_hash_slot() -> None:
    """The part in braces decides the slot, and it is the same in all three."""
    names = Keys.of("ab.cd")
    assert (names.record, names.marks, names.notes) == (
        "carryon:1:{ab.cd}",
        "carryon:1:{ab.cd}:m",
        "carryon:1:{ab.cd}:n",
    )
    assert {re.findall(r"{(.*?)}", name)[0] for name in (names.record, names.marks, names.notes)} == {"ab.cd"}


def test_no_conversation_can_name_another_kind_of_key() -> None:
    """Models and the secret lie apart from conversations."""
    assert keys.model("ab") == "carryon:1:model:{ab}"
    assert keys.SECRET == "carryon:1:secret"


TENANT, OWN = "a" * 32, "0123456789abcdef" * 2


@pytest.mark.parametrize("tenant", [TENANT, "anonymous"])
@pytest.mark.parametrize("end", ["", ":m", ":n"])
def test_a_key_tells_its_conversation(tenant: str, end: str) -> None:
    """Record, marks and notes alike."""
    assert keys.conversation(f"carryon:1:{{{tenant}.{OWN}}}{end}".encode()) == f"{tenant}.{OWN}"


@pytest.mark.parametrize(
    "key",
    [
        b"carryon:1:secret", b"carryon:1:model:{ab}", f"carryon:2:{{{TENANT}.{OWN}}}".encode(),
        f"carryon:1:{{{TENANT}.{OWN}}}:x".encode(), f"x:carryon:1:{{{TENANT}.{OWN}}}".encode(),
        f"carryon:1:{{{TENANT}.{OWN}}}\n".encode(), f"carryon:1:{{*.{OWN}}}".encode(), b"carryon:1:{.}", b"\xff",
    ],
)  # fmt: skip
def test_any_other_key_is_nobodys(key: bytes) -> None:
    """Whoever shares the database may call things as they like."""
    assert keys.conversation(key) is None


def test_a_pattern_meets_what_was_asked_for() -> None:
    """All records; those of a tenant; those whose id begins so; with their marks and notes."""
    assert keys.pattern() == "carryon:1:{*.*}"
    assert keys.pattern("anonymous", "0a") == "carryon:1:{anonymous.0a*}"
    assert keys.pattern(TENANT, notes=True) == f"carryon:1:{{{TENANT}.*}}*"


@pytest.mark.parametrize("text", ["*", "?", "[a]", "a\\", "g", "A", "0" * 33, "0\n", "}"])
def test_no_sign_of_a_pattern_comes_from_outside(text: str) -> None:
    """What is typed is hex digits or refused."""
    with pytest.raises(ValueError, match="hex digits"):
        keys.pattern(beginning=text)
    with pytest.raises(ValueError, match="hex digits"):
        keys.pattern(tenant=text)
