"""The names under which things lie in Redis."""

from __future__ import annotations

import re

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
