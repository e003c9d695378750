"""A server in Redis's place that answers each command with whatever it is told to: values of the protocol, or noise."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Self

__all__ = ["NOISE", "Rubbish", "spelled", "value"]

#: What no server says, or not to this.
NOISE = (
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"*200000\r\n",
    b"*1\r\n" * 20_000 + b":1\r\n",
    b"$999999999999\r\nabc",
    b"$-7\r\n",
    b"*-1\r\n",
    b",nan\r\n",
    b"%1\r\n+a\r\n+b\r\n",
    b">2\r\n+message\r\n+x\r\n",
    b"-\r\n",
    b"-\xff\xfe\r\n",
    b"-MOVED 1 127.0.0.1:1\r\n",
    b"-NOSCRIPT no\r\n",
    b"\x00\xff\x80",
)


class Rubbish:
    """Listens on a TCP port; `answer` makes the reply to each command, an empty one closes the connection."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        self.answer = answer
        #: Connections that were made.
        self.accepted = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            while True:
                name = await self._command(reader)
                reply = b"+OK\r\n" if name in (b"SELECT", b"CLIENT") else self.answer()
                if not reply:
                    break
                writer.write(reply)
                await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    @staticmethod
    async def _command(reader: asyncio.StreamReader) -> bytes:
        words = []
        for _ in range(int((await reader.readuntil(b"\r\n"))[1:])):
            size = int((await reader.readuntil(b"\r\n"))[1:])
            words.append((await reader.readexactly(size + 2))[:-2])
        return words[0].upper()


def value(chance: random.Random, depth: int = 0) -> object:
    """Make a value of the protocol: often nearly what a load, a commit or a question is answered with."""
    texts = (
        b"",
        b"e",
        b"1",
        b"-5",
        b"9" * 400,
        b"1\n",
        b"1\n1 1 a " + b"9" * 30 + b"\nx",
        b"done",
        b"\xff\xfe",
        b"nan",
    )
    plain = (None, *texts, 0, 1, -1, 2**62, True, Exception("ERR no"), Exception("WRONGTYPE no"))
    if depth > 2 or chance.random() < 0.3:
        return chance.choice(plain)
    if depth == 0 and chance.random() < 0.5:
        lists = [[chance.choice(texts) for _ in range(chance.choice((0, 1, 2)))] for _ in range(2)]
        load = [chance.choice(plain), chance.choice(plain), chance.choice(plain), *lists, chance.choice(plain)]
        return [value(chance, 2) if chance.random() < 0.1 else one for one in load]
    return [value(chance, depth + 1) for _ in range(chance.choice((0, 1, 2, 2, 6)))]


def spelled(one: object) -> bytes:
    """Spell a value as the protocol does."""
    match one:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % one
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(one), one)
        case list():
            return b"*%d\r\n" % len(one) + b"".join(map(spelled, one))
        case _:
            return f"-{one}\r\n".encode()
