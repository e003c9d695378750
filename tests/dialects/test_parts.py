"""JSON values and the parts of content, as all dialects spell them."""

from __future__ import annotations

import base64
import json
import math
import struct

import pytest

from proxy.dialects import Dialect, parts
from proxy.dialects.chat import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.parts import MAY_BE_HEAVY
from proxy.dialects.responses import RESPONSES

PICTURE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"x" * 300_000).decode()},
}

#: The beginning of a PNG of 640 by 480.
SMALL = base64.b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480) + bytes(99)).decode()


def test_json_is_written_compact_and_readable() -> None:
    """Text stays as it is; a lone surrogate becomes its escape; what JSON cannot spell is a ValueError."""
    assert parts.dumps({"a": ["é", 1]}) == '{"a":["é",1]}'.encode()
    assert parts.dumps("\ud800é") == b'"\\ud800\\u00e9"'
    with pytest.raises(ValueError, match="float"):
        parts.dumps(math.inf)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", "[" * 9_999, b"1" * 5_000])
def test_what_is_no_json_is_nothing(raw: bytes | str) -> None:
    """None, or an object without fields."""
    assert parts.parse(raw) is None
    assert parts.loads(raw) == {}
    assert parts.loads(b"[1]") == {}


@pytest.mark.parametrize(
    ("text", "says_so"),
    [
        ("Error: no such file", True),
        ("  \n** FAILED **", True),
        ('{"ok": false, "error": "x"}', True),
        ('{"is_error": true}', True),
        ("Traceback (most recent call last)", True),
        ('{"error": null}', False),
        ("no errors", False),
        ("x" * 400 + ' "error": true', False),
        ("", False),
    ],
)
def test_a_failure_is_told_by_how_it_begins(text: str, says_so: bool) -> None:  # noqa: FBT001 - pytest passes it by name
    """First words, or an error field near the beginning."""
    assert parts.says_error(text) == says_so


def test_texts_are_changed_and_the_shape_stays() -> None:
    """Text stays text, a list stays a list, media stay as they are."""
    assert parts.changed("ab", str.upper) == "AB"
    assert parts.changed(None, str.upper) is None
    given = [{"type": "text", "text": "a", "x": 1}, PICTURE, "b", 3]
    assert parts.changed(given, str.upper) == [{"type": "text", "text": "A", "x": 1}, PICTURE, "B", 3]


def test_a_reader_sees_what_was_said() -> None:
    """Texts of every spelling and refusals; media as markers, no reasoning."""
    given = [{"type": "output_text", "text": "a"}, {"type": "reasoning", "text": "hm"}, PICTURE, "b", 3]
    assert list(parts.said_parts(given)) == ["a", "[image_url]", "b", "[text]"]
    assert list(parts.said_parts([{"type": "refusal", "refusal": "no"}])) == ["no"]
    assert list(parts.said_parts("a")) == ["a"]
    assert list(parts.said_parts(None)) == []


@pytest.mark.parametrize(
    ("part", "fixed"),
    [
        (PICTURE, 1_105),
        ({"type": "input_image", "image_url": "data:image/png;base64,x", "detail": "low"}, 85),
        ({"type": "input_image", "image_url": "data:image/png;base64,x"}, 1_105),
        ({"type": "image", "source": {"type": "base64", "data": "x" * 400_000}}, 1_105),
        ({"type": "input_file", "file_data": "x" * 400_000}, 1_500),
    ],
)
def test_media_weigh_what_they_are(part: object, fixed: int) -> None:
    """Never their base64."""
    assert parts.weighed([part]) == ([""], fixed)


def test_a_changed_item_is_spelt_anew_without_cache_marks() -> None:
    """None where nothing changes, or where it holds what no JSON can spell."""
    marked = {"content": [{"text": "a", "cache_control": {}}], "cache_control": {}, "n": 1}
    assert parts.respelled(marked, "n", 2) == b'{"content":[{"text":"a"}],"n":2}'
    assert parts.respelled(marked, "n", 1) is None
    assert parts.respelled({**marked, "x": math.inf}, "n", 2) is None


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    "kind",
    ["text", "input_text", "refusal", "thinking", "reasoning", "image_url", "input_image", "image", "document",
     "file", "input_file", "input_audio", "computer_screenshot", "what nobody has heard of"],
)  # fmt: skip
def test_what_weighs_more_tokens_than_bytes_is_seen_in_the_bytes(wire: Dialect, kind: str) -> None:
    """Else a request full of pictures would pass for a small one, by its size."""
    raw = json.dumps({"type": "message", "role": "user", "content": [{"type": kind}] * 20}).encode()
    heavy = wire.weigh(raw).fixed > len(raw)
    assert not heavy or MAY_BE_HEAVY.search(raw)
    assert heavy is bool(MAY_BE_HEAVY.search(raw))


@pytest.mark.parametrize(
    ("wire", "part", "tokens"),
    [
        (CHAT, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SMALL}"}}, 425),
        (CHAT, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SMALL}", "detail": "low"}}, 85),
        (CHAT, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, 1_105),
        (RESPONSES, {"type": "input_image", "image_url": f"data:image/png;base64,{SMALL}"}, 425),
        (MESSAGES, {"type": "image", "source": {"type": "base64", "data": SMALL}}, 410),
        (MESSAGES, {"type": "tool_result", "content": [{"type": "image", "source": {"data": SMALL}}]}, 410),
    ],
)  # fmt: skip
def test_a_picture_weighs_by_its_size(wire: Dialect, part: dict[str, object], tokens: int) -> None:
    """640 by 480 as its provider counts it; a link by what a large one would take."""
    raw = json.dumps({"type": "message", "role": "user", "content": [part]}).encode()
    assert wire.weigh(raw).fixed == tokens + 4
