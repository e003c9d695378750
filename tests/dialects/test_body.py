"""The values of a body, read by name."""

from __future__ import annotations

from proxy.dialects.body import Body


def test_values_are_parsed_when_asked_for() -> None:
    """What is not there, or of another kind, is nothing."""
    raw = b'{"a":"x","n":3,"t":true}'
    body = Body(raw, {"a": (5, 8), "n": (13, 14), "t": (19, 23)})
    assert (body.text("a"), body.count("n"), body.value("t")) == ("x", 3, True)
    assert (body.text("n"), body.count("a"), body.count("t"), body.value("z")) == ("", None, None, None)
    assert ("a" in body, "z" in body, body.raw("n")) == (True, False, b"3")
