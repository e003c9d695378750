"""The normalisation that all dialects share."""

from __future__ import annotations

import base64

from proxy.dialects.digest import arguments, content_fields, hashed, others


def fields(content: object, *, thinks: bool = False) -> list[str]:
    """The fields of content."""
    return list(content_fields(content, thinks=thinks))


def test_adjacent_text_is_one_text_and_stripped() -> None:
    """However many parts it is spelt in, and whatever they are called."""
    given = [{"type": "text", "text": " a"}, {"type": "output_text", "text": "b "}, "c\n"]
    assert fields(given) == fields(" ab c") == ["text", "ab c"]
    assert fields(None) == fields("") == fields([]) == fields("  ") == []


def test_thinking_is_left_out_of_what_an_assistant_said() -> None:
    """At its beginning, and as parts of its own."""
    assert fields("<think>hm</think> a", thinks=True) == ["text", "a"]
    assert fields("<think>hm</think> a") == ["text", "<think>hm</think> a"]
    assert fields([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]) == ["text", "a"]


def test_what_is_no_text_stands_between_texts() -> None:
    """And what a text part says beside its text counts."""
    given = ["a", {"type": "image", "source": 1}, "b", {"type": "text", "text": "c", "citations": [1]}]
    picture = '{"source":1,"type":"image"}'
    assert fields(given) == ["text", "a", "part", picture, "text", "bc", "part", '{"citations":[1]}']


def test_inline_media_are_known_by_their_bytes() -> None:
    """However the base64 is written; what is no base64 stands as it is."""
    data = base64.b64encode(b"picture").decode()
    one = hashed({"url": f"data:image/png;base64,{data}"})
    assert one == hashed({"url": f"data:image/png;base64,{data}"}) != hashed({"url": "data:image/png;base64,YQ=="})
    assert hashed("data:image/png;base64,?") == "data:image/png;base64,?"
    assert hashed("https://x") == "https://x"


def test_arguments_are_canonical_where_they_are_json() -> None:
    """Order and white space do not count; free text stays."""
    assert arguments('{"b": 1, "a":2}') == arguments('{"a":2,"b":1}')
    assert arguments("ls -l") == "ls -l"
    assert arguments('{"a":1,"a":2}') == '{"a":1,"a":2}'


def test_empty_fields_and_reasoning_are_nothing() -> None:
    """In a fixed order, whatever order they came in."""
    given = {"z": 1, "reasoning_content": "hm", "a": "x", "b": None, "c": [], "d": {}, "e": "", "f": False}
    assert list(others(given, frozenset({"z"}))) == [("a", "x"), ("f", False)]
