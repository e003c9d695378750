"""What client and upstream say in the stories: bodies as a client spells them, and replies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from tests.playbook import Copy, Says

# --- what the client says -----------------------------------------------------------------------------

NOTE = "note: all that went before"
STEP = "note: the first half"
_WORDS = ("the", "harbour", "lights", "were", "lit", "when", "every", "ship", "had", "come", "back", "over", "a", "bar")


def text_of(seed: int, words: int) -> str:
    """So many words, others for another seed."""
    return " ".join(f"{_WORDS[(seed * 5 + at * 3) % len(_WORDS)]}" for at in range(words))


def message(role: str, text: str) -> bytes:
    """A message in a spelling of its own: nothing we render looks like it."""
    return b'{ "role" : "%s",  "content" :%s }' % (role.encode(), json.dumps(text).encode())


SYSTEM = message("system", "You are a pilot.")
#: Thirteen messages of about 220 tokens: 14 kB, some 2,900 tokens.
HISTORY = tuple(message(("user", "assistant")[at % 2], f"{at} " + text_of(at, 220)) for at in range(13))
#: Another branch of the same conversation: its newest message differs.
BRANCH = (*HISTORY[:-1], message("user", "something else, " + text_of(99, 220)))

#: The same conversation with one character changed in what was packed.
EDITED = (*HISTORY[:5], HISTORY[5].replace(b"the ", b"The ", 1), *HISTORY[6:])


def body(*messages: bytes, extra: bytes = b"") -> bytes:
    """A request as the client spells it."""
    return b'{ "x_unknown": 1.50, "model" :"m",\n "messages":[ %s ]%s }' % (b" ,\n ".join((SYSTEM, *messages)), extra)


def packed(*messages: bytes, extra: bytes = b"") -> bytes:
    """The same request with these messages after the system text, as a projection must spell it."""
    return b'{ "x_unknown": 1.50, "model" :"m",\n "messages":[%s]%s }' % (b",".join((SYSTEM, *messages)), extra)


def note(text: str = NOTE) -> bytes:
    """A rendered user item, as the dialect makes it."""
    return json.dumps({"role": "user", "content": text}, separators=(",", ":")).encode()


LONG = body(*HISTORY)
SHORT = packed(note(), HISTORY[-1])
HALF = packed(note(STEP), *HISTORY[6:])

# --- what the upstream says ---------------------------------------------------------------------------

OK = Says(
    chunks=(
        json.dumps(
            {
                "id": "r1",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "aye"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 250, "completion_tokens": 1, "total_tokens": 251},
            }
        ).encode(),
    )
)
SSE = (("Content-Type", "text/event-stream"), ("X-Upstream", "yes"))


def overflow(text: str = "This model's maximum context length was exceeded. Please reduce the length.") -> Says:
    """A refusal as too long."""
    return Says(
        status=400,
        chunks=(
            json.dumps(
                {
                    "error": {
                        "message": text,
                        "type": "invalid_request_error",
                        "param": "messages",
                        "code": "context_length_exceeded",
                    }
                }
            ).encode()
            + b"\n",
        ),
    )


def refuses(status: int, text: str = "roles must alternate user and assistant") -> Says:
    """Any other refusal."""
    return Says(
        status=status,
        chunks=(json.dumps({"error": {"message": text, "code": None}}).encode(),),
        headers=(("Content-Type", "application/json"), ("Retry-After", "7"), ("X-Upstream", "no")),
    )


def stream(*frames: str) -> Says:
    """An event stream, a chunk for each frame."""
    return Says(chunks=tuple(f"data: {frame}\n\n".encode() for frame in frames), headers=SSE)


def delta(**fields: object) -> str:
    """A chunk of a chat stream."""
    return json.dumps({"id": "r", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


OVER = overflow()
NUMBERS = overflow(
    "This model's maximum context length is 2048 tokens. However, your messages resulted in 2900 tokens."
)
ERROR_FRAME = json.dumps({"error": {"message": "maximum context length exceeded", "code": "context_length_exceeded"}})
RAW = Copy(sees=None, says=OVER)
GOOD = Copy(sees=SHORT, says=OK)


async def chunks_of(*chunks: bytes) -> AsyncIterator[bytes]:
    """A body that is known already."""
    for chunk in chunks:
        yield chunk
