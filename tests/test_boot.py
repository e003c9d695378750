"""From settings to a running house, and back."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
from pathlib import Path

import pytest

from proxy.boot import _asking, opened, secret_of, state_dir, stored
from proxy.compaction.job import Job
from proxy.errors import ConfigError
from proxy.house import policies
from proxy.settings import Settings, load
from proxy.store import StoreConfigError
from proxy.upstream import Answered, Call, UpstreamError
from proxy.windows import Windows
from tests.houses import seen, turned
from tests.phrases import LONG
from tests.shelf import body, shelve
from tests.sockets import raw_upstream, reply
from tests.store.servers import Server

UPSTREAM = {"upstream": "http://127.0.0.1:9/v1"}
SECRET = "a secret of at least thirty-two characters"


def on(url: str, **more: object) -> Settings:
    """Settings for a store by URL."""
    return Settings.model_validate(
        {"redis": {"url": url, "durability": "memory", "timeout": "2s"}, "secret": SECRET, **more}
    )


async def test_a_house_is_opened_on_a_store_by_url(valkey: Server) -> None:
    """Ledger, doors and windows work."""
    valkey.client().delete("carryon:1:secret")
    async with opened(on(valkey.url)) as house:
        turn = turned(house, LONG)
        _, sight = await seen(house, turn)
        assert sight.looked


async def test_another_secret_on_the_same_store_is_refused(valkey: Server) -> None:
    """All replicas need the same (rule 5.11)."""
    valkey.client().delete("carryon:1:secret")
    async with opened(on(valkey.url)):
        pass
    with pytest.raises(StoreConfigError):
        async with opened(on(valkey.url, secret="another one of sixteen characters")):
            pass


async def test_without_a_url_the_embedded_store_is_owned(tmp_path: Path) -> None:
    """A store and a secret in the state directory; the secret stays, readable for its owner only."""
    settings = Settings.model_validate({"state_dir": str(tmp_path / "state"), "redis": {"timeout": "2s"}})
    secrets = []
    for _ in range(2):
        async with opened(settings) as house:
            secrets.append(house.secret)
            assert (await seen(house, turned(house, LONG)))[1].looked
    assert secrets[0] == secrets[1]
    assert len(secrets[0]) == 64
    assert (tmp_path / "state" / "secret").stat().st_mode & 0o777 == 0o600


def test_processes_that_start_together_make_one_secret(tmp_path: Path) -> None:
    """Whoever is first: all have the same, and none finds half of it."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = pool.map(_made, [tmp_path] * 6)
    assert len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def _made(place: Path) -> bytes:
    return secret_of(Settings.model_validate({"state_dir": str(place)}))


def test_an_empty_secret_is_refused_with_its_cure(tmp_path: Path) -> None:
    """It would be the same for everybody."""
    (tmp_path / "secret").touch()
    with pytest.raises(ConfigError, match="empty"):
        secret_of(Settings.model_validate({"state_dir": str(tmp_path)}))


async def test_a_command_opens_the_same_store_and_nothing_else(tmp_path: Path) -> None:
    """Beside a house and alone; what the one has written the other reads."""
    settings = Settings.model_validate({"state_dir": str(tmp_path / "state"), "redis": {"timeout": "2s"}})
    name = f"{'a' * 32}.{'1' * 32}"
    async with opened(settings) as house:
        await shelve(house.ledger, name, body(4))  # type: ignore[arg-type]
        async with stored(settings) as beside:
            assert (await beside.load(name)).generation == 1
        assert (await house.ledger.load(name)).generation == 1
    async with stored(settings) as alone:
        assert (await alone.load(name)).generation == 1
    assert not (tmp_path / "state" / "store" / "valkey.pid").exists()


async def test_an_unknown_compactor_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """With the names that are installed."""
    with pytest.raises(ConfigError, match="no installed package offers"):
        async with opened(Settings.model_validate({"compactor": "none-such", "state_dir": str(tmp_path / "state")})):
            pass
    assert not (tmp_path / "state").exists()


class Door:
    """Notes for which upstream it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, call: Call, *, within: float, limit: int = 1 << 24) -> Answered:
        """Answer the first, fail the second."""
        self.asked.append(call.upstream)
        if len(self.asked) > 1:
            raise UpstreamError("connect", "away")
        return Answered(status=200, body=b"{}")


async def test_a_window_is_asked_through_the_upstream_it_is_of() -> None:
    """By its name: of two with one address the second keeps its own proxy and authorities. A failure is status 0."""
    door = Door()
    upstreams = {"a": "http://h.test/v1", "b": {"base_url": "http://h.test/v1", "proxy": "http://way.test:3128"}}
    given = Settings.model_validate({"upstreams": upstreams})
    windows = Windows(policies(given), _asking(door))  # type: ignore[arg-type]
    for upstream in reversed(given.upstreams.values()):
        assert await windows.ask(upstream, "m") is None
    assert door.asked == [*3 * ["b"], *3 * ["a"]]
    assert await _asking(door)("a", "GET", "http://h.test/props", (), b"") == (0, b"")  # type: ignore[arg-type]
    await windows.close()


def settings(state: Path, **given: object) -> Settings:
    """Settings with a state directory of one's own."""
    return load(None, {}, {**UPSTREAM, "state_dir": str(state), **given})


class Other:
    """A compactor as another package offers it."""

    async def compact(self, job: Job) -> None:
        """Do nothing."""


class Broken:
    """A compactor that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no licence")


def offer(monkeypatch: pytest.MonkeyPatch, **classes: str) -> None:
    """Let an installed package offer compactors by entry point."""
    group = "carryon.compactors"
    points = importlib.metadata.EntryPoints(
        importlib.metadata.EntryPoint(name, f"tests.test_boot:{value}", group) for name, value in classes.items()
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", points.select)


def test_state_lives_where_the_platform_says_or_the_settings_do(tmp_path: Path) -> None:
    """A folder of Carryon's own in the user's state directory, unless one is configured."""
    assert state_dir(settings(tmp_path)) == tmp_path
    assert state_dir(load(None, {}, UPSTREAM)).name == "carryon"


async def test_a_fault_inside_closes_everything_as_well(tmp_path: Path) -> None:
    """The store is stopped whatever ends the house."""
    with pytest.raises(RuntimeError, match="inside"):
        async with opened(settings(tmp_path)):
            raise RuntimeError("inside")
    assert not (tmp_path / "store" / "valkey.pid").exists()


async def test_a_configured_secret_stands_over_the_file(tmp_path: Path) -> None:
    """And none is made."""
    async with opened(settings(tmp_path, secret="b" * 64)) as house:
        assert house.secret == b"b" * 64
    assert not (tmp_path / "secret").exists()


@pytest.mark.parametrize("kind", ["empty", "folder"])
async def test_a_secret_that_cannot_be_read_is_a_mistake_with_its_cure(tmp_path: Path, kind: str) -> None:
    """No new one is made in its place: that would lose every conversation without a word."""
    place = tmp_path / "secret"
    place.mkdir() if kind == "folder" else place.touch()
    with pytest.raises(ConfigError) as raised:
        async with opened(settings(tmp_path)):
            pass
    assert (raised.value.key, raised.value.file) == ("secret", str(place))
    assert raised.value.cure


async def test_redis_by_url_needs_no_state(tmp_path: Path, valkey: Server) -> None:
    """Nothing is written to the state directory, and no server is started."""
    valkey.client().delete("carryon:1:secret")
    async with opened(on(valkey.url, state_dir=str(tmp_path / "state"))) as house:
        assert (await house.ledger.load("t.c")).generation == 0
    assert not (tmp_path / "state").exists()


async def test_a_compactor_comes_from_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class is made once, without arguments."""
    offer(monkeypatch, other="Other")
    async with opened(settings(tmp_path, compactor="other")) as house:
        assert type(house.compactor).__name__ == "Other"


@pytest.mark.parametrize(("name", "cure"), [("broken", "mend its package"), ("absent", "write builtin or broken")])
async def test_a_compactor_that_cannot_be_had_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cure: str
) -> None:
    """Found before anything starts."""
    offer(monkeypatch, broken="Broken")
    with pytest.raises(ConfigError) as raised:
        async with opened(settings(tmp_path, compactor=name)):
            pass
    assert cure in raised.value.cure
    assert not (tmp_path / "store").exists()


async def test_windows_are_asked_through_the_upstreams_door(tmp_path: Path) -> None:
    """What the upstream lists becomes the window of its model."""
    listed = reply(b'{"object": "list", "data": [{"id": "m", "max_model_len": 4096}]}')
    async with raw_upstream(listed, keep=True) as up:
        given = load(None, {}, {"upstream": f"{up.url}/v1", "state_dir": str(tmp_path)})
        async with opened(given) as house:
            await house.windows.ask(given.default_upstream, "m")
            window = house.windows.known(given.default_upstream, "m")
    assert window is not None
    assert (window.tokens, window.source) == (4096, "asked")
    assert all(request.start.startswith(b"GET ") or b"/api/show" in request.start for request in up.requests)
