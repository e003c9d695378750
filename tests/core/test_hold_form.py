from __future__ import annotations

import pytest

from proxy.core.hold_form import Form, form_of


@pytest.mark.parametrize("said", [None, Form.EVENTS, Form.JSON, Form.OTHER])
@pytest.mark.parametrize(
    ("beginning", "form"),
    [
        (b'{"error"', Form.JSON),
        (b"[", Form.JSON),
        (b"\xef\xbb\xbf \r\n {", Form.JSON),
        (b"data: {", Form.EVENTS),
        (b"\xef\xbb\xbfdata:", Form.EVENTS),
        (b"\n\nevent: error", Form.EVENTS),
        (b"id: 1", Form.EVENTS),
        (b"retry: 1", Form.EVENTS),
        (b"error: {", Form.EVENTS),
        (b": comment", Form.EVENTS),
        (b"", None),
        (b"\xef\xbb", None),
        (b" \r\n", None),
        (b"even", None),
    ],
)
def test_the_first_bytes_tell_whatever_the_content_type_says(
    beginning: bytes, form: Form | None, said: Form | None
) -> None:
    """JSON is called a stream, streams are called JSON or text; half a field's name is waited for."""
    assert form_of(beginning, said) is form


@pytest.mark.parametrize("beginning", [b"plain text", b"\x00\x01", b"database", b'"text"'])
def test_where_they_do_not_the_content_type_decides(beginning: bytes) -> None:
    """And where that says nothing, nothing is looked for."""
    assert [form_of(beginning, said) for said in (Form.EVENTS, Form.JSON, None)] == [
        Form.EVENTS,
        Form.JSON,
        Form.OTHER,
    ]


@pytest.mark.parametrize("beginning", [b"", b" ", b"\xef\xbb", b"even"])
def test_at_the_end_nothing_is_waited_for(beginning: bytes) -> None:
    """What has ended has a form."""
    assert form_of(beginning, None, ended=True) is Form.OTHER
    assert form_of(beginning, Form.EVENTS, ended=True) is Form.EVENTS
