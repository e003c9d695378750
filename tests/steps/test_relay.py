"""Handing replies to the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from proxy.errors import Answer
from proxy.steps.relay import outgoing, refusal, unreached
from proxy.steps.report import Report
from proxy.upstream import Delivered, ErrorKind, UpstreamError
from proxy.upstream.reply import Reply
from tests.phrases import chunks_of

HEADERS = (("X-Twice", "1"), ("X-Twice", "2"), ("Content-Length", "3"))


def a_reply(source: AsyncIterator[bytes], closed: list[int]) -> Reply:
    """A reply that notes its closing."""

    async def close() -> None:
        closed.append(1)

    return Reply(status=201, reason="Made", headers=HEADERS, held=(b"a",), source=source, close=close)


async def test_a_reply_goes_out_as_it_came_with_our_headers_behind() -> None:
    """Status, reason, headers in order, bytes; then it is told that it ended, once it was read whole."""
    closed: list[int] = []
    ended: list[Reply] = []
    cut: list[Reply] = []
    sent = outgoing(
        Delivered(reply=a_reply(chunks_of(b"b", b"c"), closed)), Report(), ended=ended.append, cut=cut.append
    )
    assert (sent.status, sent.reason) == (201, "Made")
    assert sent.headers == (*HEADERS, ("x-carryon-action", "pass"))
    assert not isinstance(sent.body, bytes)
    assert [chunk async for chunk in sent.body] == [b"a", b"b", b"c"]
    assert len(ended) == 1
    await sent.aclose()
    assert (closed, cut) == ([1], [])


async def test_a_reply_that_breaks_off_has_not_ended() -> None:
    """The failure passes to the door, which cuts the connection; what was relayed may hold an overflow all the same."""

    async def breaking() -> AsyncIterator[bytes]:
        yield b"b"
        raise UpstreamError("dropped", "gone")

    ended: list[Reply] = []
    cut: list[Reply] = []
    sent = outgoing(Delivered(reply=a_reply(breaking(), [])), Report(), ended=ended.append, cut=cut.append)
    assert not isinstance(sent.body, bytes)
    with pytest.raises(UpstreamError):
        _ = [chunk async for chunk in sent.body]
    assert (ended, cut) == ([], [])
    await sent.aclose()
    assert (len(ended), len(cut)) == (0, 1)


async def test_every_reply_is_logged_once_when_it_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Relayed or not: the client may have gone before the first byte."""
    with caplog.at_level("INFO", logger="carryon"):
        sent = outgoing(Delivered(reply=a_reply(chunks_of(), [])), Report(upstream="up"))
        assert caplog.records == []
        await sent.aclose()
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["status"], record.__dict__["upstream"]) == ("request", 201, "up")


@pytest.mark.parametrize(("dialect", "top"), [("chat", {"error"}), (None, {"error"}), ("messages", {"type", "error"})])
def test_our_own_answers_have_the_dialect_s_shape(
    dialect: str | None, top: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """JSON, the code as a header; logged like every reply."""
    with caplog.at_level("INFO", logger="carryon"):
        sent = refusal(Answer(status=413, code="PROXY_BODY_TOO_LARGE", message="too large"), Report(), dialect)
    assert isinstance(sent.body, bytes)
    assert set(json.loads(sent.body)) == top
    assert dict(sent.headers)["x-carryon-error"] == "PROXY_BODY_TOO_LARGE"
    assert [(record.__dict__["status"], record.__dict__["error"]) for record in caplog.records] == [
        (413, "PROXY_BODY_TOO_LARGE")
    ]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("connect", 502),
        ("connect_timeout", 504),
        ("tls", 502),
        ("first_byte", 504),
        ("dropped", 502),
        ("malformed", 502),
        ("invalid", 502),
    ],
)
def test_an_upstream_that_cannot_be_reached_is_502_or_504(kind: ErrorKind, status: int) -> None:
    """Too slow is 504, all else 502; never a 500."""
    answer = unreached(UpstreamError(kind, "text"))
    assert (answer.status, answer.code) == (status, f"PROXY_UPSTREAM_{kind.upper()}")


@pytest.mark.parametrize("whole", [True, False])
async def test_work_beside_a_request_ends_with_a_client_that_leaves(*, whole: bool) -> None:
    """Where the reply was not relayed whole; else it goes on (rule 3.6)."""
    work = asyncio.ensure_future(asyncio.sleep(60))
    sent = outgoing(Delivered(reply=a_reply(chunks_of(b"b"), [])), Report(aside=work))
    assert not isinstance(sent.body, bytes)
    async for _ in sent.body:
        if not whole:
            break
    await sent.aclose()
    await asyncio.sleep(0)
    assert work.cancelled() is not whole
    work.cancel()
