"""What form a reply has, told by its first bytes: its content type is only a hint, and often wrong."""

from __future__ import annotations

import re
from enum import Enum

__all__ = ["Form", "form_of"]


class Form(Enum):
    """How a reply is to be read."""

    EVENTS = "events"
    JSON = "json"
    OTHER = "other"  # nothing to look for: neither can hold an error that we know


_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
#: The fields of server-sent events, llama.cpp's legacy one among them; a line that begins with `:` is a comment.
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_FIELD = re.compile(rb"(?:data|event|id|retry|error)?:")


def form_of(beginning: bytes, said: Form | None, *, ended: bool = False) -> Form | None:
    """Tell the form of a reply that begins so; None where more bytes are needed, which `ended` says do not come.

    `said` is what the content type says: None where there is none, or where it says nothing.
    """
    if not ended and len(beginning) < len(_BOM) and _BOM.startswith(beginning):
        return None
    text = beginning.removeprefix(_BOM).lstrip(_SPACE)
    if text[:1] in (b"{", b"["):
        return Form.JSON
    if _FIELD.match(text):
        return Form.EVENTS
    if not ended and any(field.startswith(text) for field in _FIELDS):
        return None
    return said or Form.OTHER
