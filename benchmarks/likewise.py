"""The questions of `alternatives.py`: one client, one upstream that writes down what it hears, one thing to see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from priced import Bill

from tests.e2e.scribe import good
from tests.sockets import Peer, Raw, client, raw_upstream, reply

WINDOW = 16_384
_BYTES = 4
_PATH = b"/v1/chat/completions"
_CANARY = "canary-of-the-first-user"
#: The newest message of a client's turn ends like this; a request that does not was made by the program.
_TURN = "turn of the client."


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A running program."""

    port: int
    start: Callable[[], Awaitable[None]]
    kill: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Heard:
    """What the upstream was sent: turns, and what the program asked by itself."""

    turns: list[Raw] = field(default_factory=list)
    own: list[Raw] = field(default_factory=list)
    refusals: int = 0
    bill: Bill = field(default_factory=Bill)


@dataclass(frozen=True, slots=True)
class Question:
    """`ask` tells what was seen, and whether that is what one would wish for."""

    name: str
    ask: Callable[[Address, Heard], Awaitable[tuple[str, bool]]]
    upstream: Callable[[], AbstractAsyncContextManager[tuple[str, Heard]]]
    window_known: bool = True


# --- the upstream ---------------------------------------------------------------------------------------

_STREAM = (
    b": a comment\n\n"
    b'data: {"id":"r","x_own": 1.0,"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    b'data:{"id":"r","choices":[{"index":0,"delta":{"content":"Done \\u00e9"},"finish_reason":null}]}\r\n\r\n'
    b'data: {"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_JSON = b"Content-Type: application/json\r\n"
_EVENTS = b"Content-Type: text/event-stream\r\n"
_OWN = b"x-request-id: req-1\r\nx-own: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nopenai-processing-ms: 7\r\n"
_ERROR = b'{ "error" : {"message":"no such thing \\u00e9", "type":"x_own_error", "code":null, "x_own":1.0} }'


def _too_long(size: int, window: int) -> bytes:
    said = f"This model's maximum context length is {window} tokens. However, your messages resulted in {size} tokens."
    error = {"message": said, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return json.dumps({"error": error}, indent=1).encode()


def _said(text: str, prompt: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps(
        {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    ).encode()


@asynccontextmanager
async def _upstream(
    *, window: int | None = None, stream: bool = False, broken: bool = False, summary: Callable[[int], str] = good
) -> AsyncIterator[tuple[str, Heard]]:
    """Answers turns, refuses beyond its window, writes summaries as told; models and windows it does not tell."""
    heard, numbers = Heard(), count(1)

    async def serve(peer: Peer) -> None:
        while True:
            raw = await peer.message()
            if not raw.start.startswith(b"POST " + _PATH):
                await peer.send(reply(b'{"error":{"message":"not here"}}', status="404 Not Found"))
                continue
            size = len(raw.body) // _BYTES
            theirs = _is_turn(raw.body)
            if window is not None and size > window:
                heard.refusals += 1
                (heard.turns if theirs else heard.own).append(raw)
                await peer.send(reply(_too_long(size, window), status="400 Bad Request"))
                continue
            heard.bill.asked(raw.body, summary=not theirs)
            if not theirs:
                heard.own.append(raw)
                await peer.send(_answered(raw, summary(next(numbers)), size))
            elif broken:
                heard.turns.append(raw)
                await peer.send(reply(_ERROR, status="422 Own Reason", headers=_JSON + _OWN))
            elif stream:
                heard.turns.append(raw)
                await peer.send(reply(_STREAM, headers=_EVENTS + _OWN))
            else:
                heard.turns.append(raw)
                await peer.send(reply(_said("Done.", size)))

    async with raw_upstream(serve) as found:
        yield found.url, heard


def _is_turn(body: bytes) -> bool:
    """Whether the newest message is the client's, however the body was spelled anew."""
    newest = json.loads(body)["messages"][-1]
    return newest["role"] == "user" and str(newest["content"]).endswith(_TURN)


def _answered(raw: Raw, text: str, size: int) -> bytes:
    """A summary, streamed where the program asks for that."""
    if not json.loads(raw.body).get("stream"):
        return reply(_said(text, size))
    part = json.dumps({"id": "r", "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]})
    end = json.dumps({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return reply(
        f"data: {part}\n\ndata: {end}\n\ndata: [DONE]\n\n".encode(), headers=b"Content-Type: text/event-stream\r\n"
    )


# --- the client -----------------------------------------------------------------------------------------


def _history(turns: int) -> list[dict[str, object]]:
    """System, task, and steps of 2,200 characters: half in a tool's result, half in what the assistant says."""
    items: list[dict[str, object]] = [
        {"role": "system", "content": "You are an agent. " * 40},
        {"role": "user", "content": "Mend the ledger. Never change the schema."},
    ]
    for number in range(turns):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": f'{{"n": {number}}}'}}
        items.append({"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]})
        items.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number} of a file\n" * 50})
        items.append({"role": "assistant", "content": f"Step {number} is done. " * 50})
        items.append({"role": "user", "content": f"Go on with {number}: a {_TURN}"})
    return items


def _body(items: list[dict[str, object]], **more: object) -> bytes:
    return json.dumps({"model": "m", "messages": items, **more}).encode()


async def _send(port: int, body: bytes, key: str = "sk-1", headers: bytes = b"") -> Raw:
    head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s"
    async with client(port) as peer:
        await peer.send(
            head % (_PATH, port, key.encode(), headers),
            b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body),
        )
        return await peer.message()


# --- the questions --------------------------------------------------------------------------------------

_ODD = (
    b'{ "model":"m" ,"messages":[ {"role":"user","content":"caf\\u00e9 \xc3\xa9, a turn of the client."} ],\n'
    b'  "x_own": 1.0, "temperature":1E0, "stream":%s }'
)


async def _request_bytes(address: Address, heard: Heard) -> tuple[str, bool]:
    sent = _ODD % b"false"
    await _send(address.port, sent, headers=b"X-Own: 1\r\ntraceparent: 00-a-b-01\r\n")
    if not heard.turns:
        return "it did not arrive", False
    came = heard.turns[-1]
    headers = [name for name in (b"x-own", b"traceparent", b"authorization") if not came.values(name)]
    same = came.body == sent
    return f"body {'the same' if same else 'another'}, headers lost: {_names(headers)}", same and not headers


async def _reply_bytes(address: Address, _heard: Heard) -> tuple[str, bool]:
    came = await _send(address.port, _ODD % b"true")
    lost = [n for n in (b"x-request-id", b"x-own", b"openai-processing-ms") if not came.values(n)]
    lost += [b"set-cookie"] * (len(came.values(b"set-cookie")) != 2)
    same = came.body == _STREAM
    return f"stream {'the same' if same else 'another'}, headers lost: {_names(lost)}", same and not lost


async def _error_bytes(address: Address, heard: Heard) -> tuple[str, bool]:
    came = await _send(address.port, _ODD % b"false")
    same = (came.status, came.body) == (422, _ERROR)
    return f"{came.status}, body {'the same' if same else 'another'}, {len(heard.turns)} sent", same and len(
        heard.turns
    ) == 1


async def _overflow(address: Address, heard: Heard) -> tuple[str, bool]:
    """A history of 1.4 windows under a window that nobody told."""
    came = await _send(address.port, _body(_history(46)))
    return f"client got {came.status}; upstream: {_came(heard)}", came.status == 200


async def _hopeless(address: Address, heard: Heard) -> tuple[str, bool]:
    """One message alone is larger than the window: nothing can be cut."""
    items = [{"role": "user", "content": "x " * WINDOW * 3 + " a " + _TURN}]
    sent = _body(items)
    came = await _send(address.port, sent)
    same = came.body == _too_long(len(sent) // _BYTES, WINDOW)
    copies = len(heard.turns) + len(heard.own)
    return (
        f"client got {came.status}, the error's bytes {'the same' if same else 'others'}; {copies} sent",
        same and copies == 1,
    )


async def _liar(address: Address, heard: Heard) -> tuple[str, bool]:
    """The summariser answers with ten windows of text."""
    came = await _send(address.port, _body(_history(46)))
    copies = len(heard.turns) + len(heard.own)
    return f"client got {came.status}; upstream: {_came(heard)}", came.status == 200 and copies <= 6


async def _two_users(address: Address, heard: Heard) -> tuple[str, bool]:
    """Two keys send the same history; what the first one's key was spent on is not the second one's."""
    for turns in (44, 45, 46):
        await _send(address.port, _body(_history(turns)), "sk-first")
    mine = sum(_CANARY.encode() in raw.body for raw in heard.turns)
    before = len(heard.turns)
    for turns in (44, 45, 46):
        await _send(address.port, _body(_history(turns)), "sk-second")
    # What the second user paid for itself is its own: only text from before that counts.
    leaked = [raw for raw in heard.turns[before:] if _CANARY.encode() + b"-1." in raw.body]
    return f"{mine} turns of the first key hold its summary, {len(leaked)} of the second key's do", not leaked


async def _cache(address: Address, heard: Heard) -> tuple[str, bool]:
    """A session of 100 turns: what of all prompts was the same as the last time, from the start."""
    answered = 0
    for turns in range(4, 104):
        answered += (await _send(address.port, _body(_history(turns)))).status == 200
    bill = heard.bill
    share = bill.cached / max(bill.cached + bill.fresh, 1)
    told = f"{answered} of 100 answered, {share:.0%} of all input from the cache, {bill.fresh:,} tokens not"
    return f"{told}, {len(heard.own)} own calls", answered == 100 and share > 0.8


async def _killed(address: Address, heard: Heard) -> tuple[str, bool]:
    """Packed, killed with -9, started again."""
    for turns in (44, 45):
        await _send(address.port, _body(_history(turns)))
    before, sizes = len(heard.own), len(heard.turns[-1].body)
    await address.kill()
    await address.start()
    came = await _send(address.port, _body(_history(45)))
    again, after = len(heard.own) - before, len(heard.turns[-1].body)
    told = f"{came.status}, {again} summaries again, the turn sent as {after:,} bytes ({sizes:,} before)"
    return told, came.status == 200 and not again and after == sizes


def _came(heard: Heard) -> str:
    return f"{len(heard.turns)} turns, {heard.refusals} refused, {len(heard.own)} own calls"


def _names(names: list[bytes]) -> str:
    return ", ".join(sorted({name.decode() for name in names})) or "none"


_LIMITED = partial(_upstream, window=WINDOW)
_LYING = partial(_upstream, window=WINDOW, summary=lambda _: "All is well. " * WINDOW * 3)
_MARKED = partial(_upstream, summary=lambda number: good(number) + f"\n{_CANARY}-{number}.")
QUESTIONS = (
    Question("a small request arrives byte for byte", _request_bytes, _upstream),
    Question("a streamed reply comes back byte for byte", _reply_bytes, partial(_upstream, stream=True)),
    Question("an error comes back byte for byte", _error_bytes, partial(_upstream, broken=True)),
    Question("a refusal as too long is recovered", _overflow, _LIMITED, window_known=False),
    Question("what cannot be recovered is sent once", _hopeless, _LIMITED, window_known=False),
    Question("a summariser that does not shrink is survived", _liar, _LYING),
    Question("a summary made with one key is not sent with another", _two_users, _MARKED),
    Question("a long session keeps the prompt cache", _cache, _LIMITED),
    Question("what was packed outlives kill -9", _killed, _LIMITED),
)
