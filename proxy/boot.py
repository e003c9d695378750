"""From settings to a running house, and back: what is opened here is closed here, in reverse order."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import platformdirs

from proxy.compaction.aside import Aside
from proxy.compaction.builtin import Builtin
from proxy.compaction.job import Compactor
from proxy.compaction.landing import landed
from proxy.dialects.chat import CHAT
from proxy.dialects.messages import MESSAGES
from proxy.dialects.responses import RESPONSES
from proxy.errors import ConfigError, Mistake
from proxy.house import Background, House, Measures, Reading, destinations, policies
from proxy.learning import Learning
from proxy.message import Headers
from proxy.settings import Settings
from proxy.store.embedded import EmbeddedStore
from proxy.store.redis import RedisLedger, fingerprint
from proxy.store.sealing import Seals
from proxy.tokens import count_with
from proxy.upstream import Bounds, Call, Peer, UpstreamError
from proxy.upstream.client import Client
from proxy.windows import Ask, Windows

__all__ = ["opened", "secret_of", "state_dir", "stored"]

_BACKGROUND_WAIT = 2.0
_ASK_WAIT = 10.0
_COMPACTORS = "carryon.compactors"


def state_dir(settings: Settings) -> Path:
    """Where the embedded store and its secret live."""
    return settings.state_dir or Path(platformdirs.user_state_dir("carryon", appauthor=False))


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[House]:
    """Start store and doors; yields the house. Raises `ConfigError` or `StoreConfigError` where that cannot be done."""
    compactor = _compactor(settings.compactor)
    async with _server(settings) as (url, secret), _furnished(settings, url, secret, compactor) as house:
        yield house


@asynccontextmanager
async def stored(settings: Settings) -> AsyncIterator[RedisLedger]:
    """Open the store that `serve` uses, and nothing else: for commands. Raises as `opened` does."""
    async with _server(settings) as (url, secret):
        ledger = _ledger(settings, url, secret)
        try:
            await ledger.start()
            yield ledger
        finally:
            await ledger.close()


@asynccontextmanager
async def _server(settings: Settings) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the URL of the store's server, our own where none is named, and the secret."""
    store = None if settings.redis.url else EmbeddedStore(state_dir(settings))
    try:
        url = settings.redis.url.get_secret_value() if settings.redis.url else await _started(store)
        yield url, secret_of(settings)
    finally:
        if store is not None:
            await store.stop()


@asynccontextmanager
async def _furnished(settings: Settings, url: str, secret: bytes, compactor: Compactor) -> AsyncIterator[House]:
    ledger = _ledger(settings, url, secret)
    client = _client(settings)
    background, aside, measures, reading = Background(), Aside(), Measures(), Reading()
    resolved = policies(settings)
    windows = Windows(resolved, _asking(client))
    try:
        await ledger.start()
        await asyncio.gather(asyncio.to_thread(count_with, "o200k_base"), windows.warm())
        yield House(
            settings=settings,
            policies=resolved,
            upstreams=destinations(settings),
            dialects={dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)},
            ledger=ledger,
            upstream=client,
            windows=windows,
            compactor=compactor,
            learning=Learning(ledger, background.spawn),
            secret=secret,
            background=background,
            aside=aside,
            measures=measures,
            reading=reading,
            summaries=asyncio.Semaphore(settings.defaults.summary.max_concurrent),
        )
    finally:
        await aside.abandon()
        await background.close(_BACKGROUND_WAIT)
        await landed(_BACKGROUND_WAIT)
        measures.close()
        reading.close()
        await windows.close()
        await client.close()
        await ledger.close()


async def _started(store: EmbeddedStore | None) -> str:
    return await store.start() if store is not None else ""


def _ledger(settings: Settings, url: str, secret: bytes) -> RedisLedger:
    redis = settings.redis
    return RedisLedger(
        url,
        ttl=redis.ttl,
        durability=redis.durability,
        timeout=redis.timeout,
        connect_timeout=redis.connect_timeout,
        wait_timeout=redis.wait_timeout,
        fingerprint=fingerprint(secret),
        seals=Seals([*(key.get_secret_value().encode() for key in settings.encryption_keys), secret]),
    )


def secret_of(settings: Settings) -> bytes:
    """Return the configured secret, else one made once beside the embedded store."""
    if settings.secret is not None:
        return settings.secret.get_secret_value().encode()
    place = state_dir(settings) / "secret"
    try:
        if not place.exists():
            _make_secret(place)
        return _read_secret(place)
    except OSError as error:
        message = f"cannot be kept here: {error.strerror or error}"
        cure = "make it a file that Carryon may read, in a directory it may write, or set secret"
        raise ConfigError(Mistake(key="secret", file=str(place), message=message, cure=cure)) from error


def _make_secret(place: Path) -> None:
    """Write it beside its place and link it there: another process sees all of it or none, and the first one stays."""
    descriptor, name = tempfile.mkstemp(prefix=".secret-", dir=place.parent)  # ours alone; its name is nobody else's
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            place.hardlink_to(draft)
    finally:
        draft.unlink()


def _read_secret(place: Path) -> bytes:
    """Read a secret file. Raises `OSError`, and `ConfigError` where it is empty."""
    found = place.read_bytes().strip()
    if not found:
        mistake = Mistake(
            key="secret", file=str(place), message="the file is empty", cure="remove it; a new secret is made"
        )
        raise ConfigError(mistake)
    return found


def _client(settings: Settings) -> Client:
    try:
        return Client(_peers(settings), _bounds(settings))
    except OSError as error:  # an `SSLError` is one; the files were there when the settings were checked
        files = ", ".join(str(upstream.ca_file) for upstream in settings.upstreams.values() if upstream.ca_file)
        mistake = Mistake(
            key="upstreams.*.ca_file",
            message=f"no certificate can be read from {files}",
            cure="name a PEM file with the authorities to trust",
        )
        raise ConfigError(mistake) from error


def _bounds(settings: Settings) -> Bounds:
    times = settings.timeouts
    return Bounds(
        connect=times.connect,
        first_byte=times.first_byte,
        stream_idle=times.stream_idle,
        hold_bytes=settings.hold.bytes,
        hold_time=settings.hold.time,
    )


def _peers(settings: Settings) -> dict[str, Peer]:
    return {
        known.name: Peer(
            proxy=upstream.proxy.get_secret_value() if upstream.proxy else None,
            ca_file=str(upstream.ca_file) if upstream.ca_file else None,
            overflow_patterns=known.overflow_patterns,
        )
        for known, upstream in zip(destinations(settings), settings.upstreams.values(), strict=True)
    }


def _asking(client: Client) -> Ask:
    """Make the door through which windows are asked for: each question goes through the upstream it is about."""

    async def ask(upstream: str, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        call = Call(upstream=upstream, method=method, url=url, headers=headers, body=body)
        try:
            answered = await client.ask(call, within=_ASK_WAIT)
        except UpstreamError:
            return 0, b""
        return answered.status, answered.body

    return ask


def _compactor(name: str) -> Compactor:
    """Make the built-in compactor, or that of the entry point of this name."""
    if name == "builtin":
        return Builtin()
    found = importlib.metadata.entry_points(group=_COMPACTORS, name=name)
    if not found:
        known = sorted(point.name for point in importlib.metadata.entry_points(group=_COMPACTORS))
        mistake = Mistake(
            key="compactor",
            message=f"no installed package offers a compactor named {name}",
            cure=f"write builtin, or one of: {', '.join(known) or 'none is installed'}",
        )
        raise ConfigError(mistake)
    try:
        made: Compactor = next(iter(found)).load()()
    except Exception as error:  # protects the operator from a stranger's traceback
        message = f"the compactor named {name} cannot be made: {type(error).__name__}: {error}"
        raise ConfigError(
            Mistake(key="compactor", message=message, cure="mend its package, or write builtin")
        ) from error
    return made
