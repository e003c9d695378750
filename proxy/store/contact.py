"""One call to Redis: breaker, connection, whose server it is, then the talk; all trouble becomes one error.

What is made of a reply belongs into the talk: a reply that cannot be read is trouble as well, and its connection goes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import RedisError

from proxy.store import StoreConfigError, StoreError, durability, keys
from proxy.store.breaker import Breaker, Interval
from proxy.store.durability import Demand
from proxy.store.scripts import Command
from proxy.store.wire import UNREACHED, Line, Talk, Wire

__all__ = ["REFRESH", "Contact", "Terms", "answered", "fingerprint", "milliseconds"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

#: What expires is refreshed at most this often, and the secret compared this often (seconds).
REFRESH = 600.0
WARN_EVERY = 30.0


def fingerprint(secret: bytes) -> str:
    """Return what may be stored of a secret: enough to tell two apart, nothing to derive one from."""
    return hmac.new(secret, f"{keys.PREFIX}:fingerprint".encode(), hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How Redis is talked to; times in seconds. `fingerprint` None: nobody else can share the server."""

    ttl: float
    durability: str
    timeout: float
    connect_timeout: float
    wait_timeout: float
    fingerprint: str | None


class Contact:
    """The way to one server. Raises `StoreConfigError` for an unreadable URL or an unknown durability."""

    def __init__(self, url: str, terms: Terms, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._wire = Wire(url, connect_timeout=terms.connect_timeout)
        self._demand = _demand(terms.durability)
        self._terms = terms
        self._clock = clock
        self.breaker = Breaker(clock=clock)
        self._trouble = Interval(WARN_EVERY, clock=clock)
        self._doubt = Interval(float("inf"), clock=clock)
        self._compare_again = float("-inf")

    async def start(self) -> None:
        """Compare the secret and see that the durability can be had. Raises `StoreConfigError`.

        A server that is merely away is a warning; its secret is compared at first contact.
        """

        async def talk(line: Line) -> None:
            await self._compare_secret(line)
            await self.level(line)

        try:
            await self._wire.call(talk, max(self._terms.timeout, self._terms.wait_timeout))
        except StoreConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - see `run`
            if not isinstance(error, RedisError) or isinstance(error, UNREACHED):
                self.breaker.missed()
            self.warn(error)

    async def run(self, talk: Talk[T], wait: float | None = None) -> T:
        """Talk to the server within `wait` seconds (None: the configured time-out). Raises `StoreError`."""
        if wait is not None and wait <= 0:  # says nothing of the server: the breaker is not told
            raise StoreError("no time is left for the store")
        if not self.breaker.allows():
            raise StoreError("Redis is being left alone after repeated failures")

        async def known(line: Line) -> T:
            await self._compare_secret(line)
            return await talk(line)

        try:
            result = await self._wire.call(known, self._terms.timeout if wait is None else wait)
        except UNREACHED as error:
            self.breaker.failed()
            raise StoreError(self.warn(error)) from error
        except (RedisError, StoreConfigError) as error:  # it answered: an error, or what may not be
            self.breaker.succeeded()
            raise StoreError(self.warn(error)) from error
        except Exception as error:  # what answers is no server of ours: no reply of one raises
            self.breaker.failed()
            raise StoreError(self.warn(error)) from error
        except BaseException:
            self.breaker.abandoned()
            raise
        self.breaker.succeeded()
        return result

    async def one(self, command: Command, wait: float | None = None, *, read: Callable[[Any], T]) -> T:
        """Send one command and return what `read` makes of its reply. Raises `StoreError`."""

        async def talk(line: Line) -> T:
            return read(answered(await line.ask(command))[0])

        return await self.run(talk, wait)

    async def tell(self, command: Command, wait: float | None = None) -> None:
        """Send one command whose reply says nothing. Raises `StoreError`."""
        await self.one(command, wait, read=lambda _reply: None)

    async def level(self, line: Line) -> durability.Level:
        """Ask this server what durability it gives. Raises `StoreConfigError` where less than demanded."""
        if self._demand is Demand.MEMORY:
            return durability.Level.MEMORY
        known = durability.facts(await line.ask(*durability.QUESTIONS))
        level, warning = durability.decide(self._demand, known)
        if warning is not None and self._doubt.due():
            _LOG.warning("redis.durability is `%s`: %s", self._demand.value, warning)
        return level

    def warn(self, error: Exception) -> str:
        """Warn of a failure, once per interval; return its text."""
        text = f"{type(error).__name__}: {error}"
        if self._trouble.due():
            _LOG.warning("the store failed, traffic flows without it: %s", text)
        return text

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.close()

    async def _compare_secret(self, line: Line) -> None:
        """Claim the server for our secret or see that it is ours, at first contact and then every ten minutes.

        A full or read-only server cannot be claimed, but one that was claimed by us is still ours to read.
        """
        mine = self._terms.fingerprint
        if mine is None or self._clock() < self._compare_again:
            return
        expiry = milliseconds(self._terms.ttl)
        claim, stored = await line.ask(
            Command(("SET", keys.SECRET, mine, "NX", "PX", expiry)), Command(("GET", keys.SECRET))
        )
        if stored is None:
            answered([claim])
        answered([stored])
        if not isinstance(stored, bytes):
            raise TypeError("the stored fingerprint is no text")
        if stored != mine.encode():
            raise StoreConfigError(
                "this Redis holds conversations of another `secret`",
                key="secret",
                cure="give every replica the same `secret`, or this one another database in redis.url "
                f"(after a deliberate change: delete the key {keys.SECRET})",
            )
        await line.ask(Command(("PEXPIRE", keys.SECRET, expiry)))
        self._compare_again = self._clock() + REFRESH


def answered(replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first that is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, as Redis counts."""
    return int(seconds * 1000)


def _demand(setting: str) -> Demand:
    try:
        return Demand(setting)
    except ValueError as error:
        known = ", ".join(f"`{demand.value}`" for demand in Demand)
        raise StoreConfigError(f"is `{setting}`", key="redis.durability", cure=f"write one of {known}") from error
