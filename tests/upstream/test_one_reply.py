"""One reply to a request, however its bytes are cut and whatever stands beside it."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from aiohttp.http_exceptions import HttpProcessingError

from proxy.core.overflow import Kind
from proxy.upstream import Call, Delivered, Overflowed, Refused, UpstreamError
from proxy.upstream.one_reply import INFORMATIONAL, Protocol
from tests.sockets import raw_upstream, reply, sse
from tests.upstream.conftest import Calling

HINT = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
BODY = b'{"choices":[{"message":{"content":"hi\\n\\n"},"finish_reason":"stop"}]}'
TOO_LONG = b'{"error":{"message":"too long","code":"context_length_exceeded"}}'
WHOLE = {
    "of known length": (reply(BODY), BODY),
    "in chunks": (sse(BODY[:9], BODY[9:]), BODY),
    "behind hints": (HINT * 3 + reply(BODY), BODY),
    "without a body": (b"HTTP/1.1 204 No\r\n\r\n", b""),
    "empty": (reply(b""), b""),
    "with bare line feeds": (reply(BODY).replace(b"\r\n", b"\n"), BODY),
}
SURPLUS = {
    "a line": b"\r\n",
    "a line feed": b"\n",
    "a byte": b"x",
    "text": b"1}trailing",
    "a reply": reply(b"poison"),
    "half a reply": b"HTTP/1.1 200 OK\r\nContent-Le",
    "the beginning of one": b"HTTP/1.",
    "a line and a reply": b"\r\n" + reply(b"poison"),
    "a hint": HINT,
}


class End:
    """A connection without a network: what is fed to it, and whether it was closed."""

    def __init__(self) -> None:
        self.transport = Mock(spec=asyncio.Transport)
        self.protocol = Protocol(asyncio.get_running_loop())
        self.protocol.connection_made(self.transport)
        self.protocol.set_response_params(read_until_eof=True, auto_decompress=False)

    def feed(self, data: bytes, *cuts: int) -> None:
        """Feed it, in pieces."""
        for start, stop in zip((0, *cuts), (*cuts, len(data)), strict=True):
            if start < stop:
                self.protocol.data_received(data[start:stop])

    async def heard(self) -> tuple[int, bytes]:
        """Give status and body of the reply."""
        while (message := await self.protocol.read())[0].code < 200:  # what aiohttp does
            pass
        return message[0].code, await message[1].read()

    @property
    def closed(self) -> bool:
        """Whether it was closed, and is given to nobody again."""
        assert self.transport.close.called is self.protocol.should_close
        return self.protocol.should_close


@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("surplus", SURPLUS)
async def test_a_reply_is_kept_and_what_follows_is_dropped(whole: str, surplus: str) -> None:
    """Wherever the two are cut: also in one segment. The connection carries nothing more."""
    sent, body = WHOLE[whole]
    data = sent + SURPLUS[surplus]
    for cut in (0, *range(len(sent) - 5, len(data))):
        end = End()
        end.feed(data, cut)
        status, got = await end.heard()
        assert (cut, status, got) == (cut, int(sent.rpartition(b"HTTP/1.1 ")[2][:3]), body)
        # A line break behind chunks is not told from their own.
        assert end.closed or (whole == "in chunks" and not data[max(cut, len(sent)) :].strip(b"\r\n")), cut
        assert len(end.protocol) == 0


@pytest.mark.parametrize("whole", WHOLE)
async def test_a_reply_alone_leaves_its_connection_to_others(whole: str) -> None:
    """However it is cut."""
    sent, body = WHOLE[whole]
    for cut in range(len(sent)):
        end = End()
        end.feed(sent, cut)
        assert (await end.heard())[1] == body
        assert not end.closed, cut


@pytest.mark.parametrize("whole", WHOLE)
async def test_a_reply_byte_by_byte_is_the_same(whole: str) -> None:
    """No head and no body depends on the segments."""
    sent, body = WHOLE[whole]
    end = End()
    end.feed(sent, *range(1, len(sent)))
    assert (await end.heard())[1] == body


async def test_a_body_that_waits_for_its_reader_is_followed_by_nothing() -> None:
    """A large body pauses the parser: what came behind it is still seen when the body was read."""
    end = End()
    end.feed(reply(b"x" * (1 << 20)) + b"surplus")
    assert (await end.heard())[1] == b"x" * (1 << 20)
    assert end.closed


async def test_informational_replies_are_read_up_to_a_bound() -> None:
    """So many are skipped; one more and the upstream is not understood."""
    end = End()
    end.feed(HINT * INFORMATIONAL + reply(BODY))
    assert await end.heard() == (200, BODY)
    flooded = End()
    flooded.feed(HINT * (INFORMATIONAL + 1) + reply(BODY), 10_000)
    assert flooded.transport.close.called
    with pytest.raises(HttpProcessingError):
        await flooded.heard()


async def test_a_flood_of_informational_replies_is_malformed(calling: Calling) -> None:
    """What was sent of it beyond the bound is not parsed."""
    async with raw_upstream(HINT * 50_000 + reply(BODY)) as up, calling() as client:
        with pytest.raises(UpstreamError) as caught:
            await client.send(Call(upstream="up", method="POST", url=up.url, body=b"{}"))
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [("200 OK", BODY, Delivered), ("400 Bad", TOO_LONG, Overflowed), ("400 Bad", b'{"error":"no"}', Refused)],
    ids=["delivered", "overflowed", "refused"],
)
async def test_surplus_changes_no_outcome(
    calling: Calling, status: str, body: bytes, outcome: type, surplus: str
) -> None:
    """A refusal is inspected and handed over as any other (rule 3.2); the next call has a connection of its own."""
    async with raw_upstream(reply(body, status=status) + SURPLUS[surplus], keep=True) as up, calling() as client:
        for _ in range(2):
            call = Call(upstream="up", method="POST", url=f"{up.url}/v1/chat/completions", body=b"{}")
            found = await client.send(call, dialect="chat", inspect=True)
            assert isinstance(found, outcome)
            assert b"".join([chunk async for chunk in found.reply]) == body
            if isinstance(found, Overflowed):
                assert found.verdict.kind is Kind.CONTEXT_WINDOW_EXCEEDED
        assert up.connections == 2
