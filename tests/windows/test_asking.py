"""Asking an upstream for its windows: whatever it answers, and whoever else asks."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.shape import Settings
from proxy.store.bounded import Bounded
from proxy.windows import asking, reported
from proxy.windows.asking import Asked, Headers
from proxy.windows.reported import EVERY, Reported

ONE: Headers = (("authorization", "Bearer one"),)
OTHER: Headers = (("authorization", "Bearer other"),)
LISTED = {"data": [{"id": "m", "max_model_len": 65536}]}


class Upstream:
    """An upstream behind the door: answers by path, and by credential where it is told to."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.now = 0.0
        self.among = self.most = 0

    async def ask(self, upstream: str, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        """Answer; a number is a status, bytes are sent as they are, a function is given credential and model."""
        assert (upstream, method) == ("local", "POST" if body else "GET")
        path = url.rpartition("/")[2]
        credential = dict(headers).get("authorization", "")
        model = json.loads(body)["model"] if body else ""
        self.asked.append((path, credential, model))
        self.among += 1
        self.most = max(self.most, self.among)
        await self.open.wait()
        self.among -= 1
        found = self.answers.get(path, 404)
        if callable(found):
            found = found(credential, model)
        if isinstance(found, int):
            return found, b""
        return 200, found if isinstance(found, bytes) else json.dumps(found).encode()

    def asks(self) -> Asked:
        """What asks it."""
        settings = Settings.model_validate({"upstreams": {"local": "http://local.test/v1"}})
        return Asked(settings.default_upstream, self.ask, lambda: self.now)


async def _told(asked: Asked, model: str, headers: Headers = ONE, tenant: str = "") -> int | None:
    """Ask as a request does, wait, look again; the window."""
    asked.report(model, headers, tenant)
    await asked.settled(model)
    found = asked.report(model, headers, tenant)
    return found.tokens if found else None


# --- hostile answers ------------------------------------------------------------------------------------

#: Every key that any reader looks at.
KEYS = sorted(
    {step for path, *_ in reported._SHAPES for step in path}
    | {"data", "models", "id", "name", "model", "aliases", "parameters", "model_info", "n_ctx", "x.context_length"}
    | {"default_generation_settings"}
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["m", "m:latest", "", "65536", "num_ctx 4096", "num_ctx -1", "models/", "\x00"])
    | st.text(max_size=8)
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
)
READERS = (reported.listed, reported.props, reported.shown, reported.running)


@given(JSON)
def test_no_answer_makes_a_reader_raise(answer: Any) -> None:
    """Any value under any key that is looked at: what it gives is windows by name, or nothing."""
    data = json.dumps(answer).encode()  # NaN and Infinity as Python's own servers spell them
    for read in READERS:
        for name, report in read(data, "m").items():
            assert name == EVERY or reported.is_name(name)
            assert 128 <= report.tokens <= 100_000_000
            assert type(report.tokens) is int


#: What stands where a name, a number, a list or an object should.
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, math.nan, math.inf, 10**4000, "65536", "", [], [[]], ["m"], {}, {"m": 1}, [None] * 3000,
    "m" * 100_000, "\ud800",
)  # fmt: skip


def _answers(wrong: Any) -> list[dict[str, Any]]:
    """Answers that are right but for one value."""
    entry = {"id": "m", "max_model_len": 65536}
    running = {"name": "m", "model": "m", "context_length": 4096}
    return [
        *({"models": value} for value in (wrong, {"data": wrong}, {"models": wrong}, {"data": [wrong]})),
        *({"models": {"data": [{**entry, key: wrong}]}} for key in (*entry, "name", "aliases", "meta", "capabilities")),
        *({"models": {"data": [{"id": "m", "meta": {"n_ctx": wrong}}]}},),
        *({"props": value} for value in (wrong, {"default_generation_settings": wrong})),
        *({"props": {"default_generation_settings": {"n_ctx": wrong}}},),
        *({"show": value} for value in (wrong, {"parameters": wrong, "model_info": wrong})),
        *({"show": {"model_info": {"a.context_length": wrong, "b": wrong}}},),
        *(
            {"show": {"model_info": {"a.context_length": 131072}}, "ps": {"models": value}}
            for value in (wrong, [wrong], *([{**running, key: wrong}] for key in running))
        ),
    ]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: f"{value!r:.12}")
async def test_a_hostile_answer_costs_no_task_and_is_not_asked_for_again(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells a window or is a failure; either is remembered, and what other answers told is not lost."""
    for answers in _answers(wrong):
        upstream = Upstream(**{path: json.dumps(answer).encode() for path, answer in answers.items()})
        asked = upstream.asks()
        found = await _told(asked, "m")
        if "ps" in answers:
            assert found in {4096, 131072}
        count = len(upstream.asked)
        assert await _told(asked, "m") == found
        assert len(upstream.asked) == count
    assert "background-failed" not in caplog.text


async def test_what_one_question_told_survives_a_hostile_answer_to_the_next() -> None:
    """Ollama's own two questions: a list for a name in the second leaves the first its answer."""
    show = {"model_info": {"llama.context_length": 131072}}
    upstream = Upstream(show=show, ps={"models": [{"name": ["m"], "context_length": 4096}]})
    assert await _told(upstream.asks(), "m") == 131072


async def test_long_blanks_are_read_in_the_time_of_one_look() -> None:
    """A pattern that tried each line end anew would need hours for these."""
    show = {"parameters": "\n" * 1_000_000 + "num_ctx" + " " * 1_000_000 + "x\nnum_ctx 4096\n"}
    assert reported.shown(json.dumps(show).encode(), "m")["m"].tokens == 4096


async def test_a_fault_of_ours_is_logged_once_and_remembered_as_a_failure(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the task: its end is told, and no request asks anew until the time of a failure is over."""

    def broken(*_: object) -> dict[str, Reported]:
        raise TypeError("content of an answer")

    monkeypatch.setattr(reported, "listed", broken)
    upstream = Upstream(models=LISTED)
    asked = upstream.asks()
    for _ in range(3):
        assert await _told(asked, "m") is None
    assert len(upstream.asked) == 1
    (line,) = [record for record in caplog.records if record.message == "background-failed"]
    assert "TypeError at test_asking.py" in vars(line)["error"]
    assert "content" not in str(vars(line))
    monkeypatch.undo()
    upstream.now = asking.FAILED_SECONDS + 1
    assert await _told(asked, "m") == 65536


# --- several tenants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenants", [("", ""), ("one", "other")], ids=["by credential", "by tenant"])
async def test_names_that_one_tenant_invents_evict_no_window_of_another(
    tenants: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are evicted by answers alone; what was asked in vain is remembered of the one who asked."""
    monkeypatch.setattr(asking, "REMEMBERED", 4)
    monkeypatch.setattr(asking, "MISSED", 64)
    upstream = Upstream(models=LISTED)
    asked = upstream.asks()
    headers = (ONE, ONE) if tenants[0] else (ONE, OTHER)  # one lent key for all is no reason to mix them
    assert await _told(asked, "m", headers[0], tenants[0]) == 65536
    assert await _told(asked, "unknown", headers[0], tenants[0]) is None
    for number in range(20):
        assert await _told(asked, f"invented-{number}", headers[1], tenants[1]) is None
    count = len(upstream.asked)
    assert await _told(asked, "m", headers[0], tenants[0]) == 65536
    assert await _told(asked, "unknown", headers[0], tenants[0]) is None
    assert len(upstream.asked) == count


async def test_names_that_one_tenant_invents_do_not_stand_before_anothers_question() -> None:
    """Of one tenant only so many are under way, fewer than are sent at a time."""
    upstream = Upstream(models=LISTED)
    upstream.open.clear()
    asked = upstream.asks()
    for number in range(100):
        asked.report(f"invented-{number}", OTHER)
    asked.report("m", ONE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    senders = [credential for _, credential, _ in upstream.asked]
    assert senders == [*asking.EACH * ["Bearer other"], "Bearer one"]
    upstream.open.set()
    await asked.settled("m")
    assert await _told(asked, "m") == 65536
    await asked.close()


async def test_all_tenants_together_ask_so_much_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd at the start: few are sent, a bounded number waits, and the first answer serves them all."""
    monkeypatch.setattr(asking, "WAITING", 8)
    upstream = Upstream(models={"data": [{"id": f"m{number}", "max_model_len": 4096} for number in range(50)]})
    upstream.open.clear()
    asked = upstream.asks()
    for number in range(50):
        asked.report(f"m{number}", (("authorization", f"Bearer {number}"),))
    assert len(asked._flights) == 8
    upstream.open.set()
    await asyncio.gather(*(asked.settled(f"m{number}") for number in range(50)))
    assert upstream.most <= asking.CONCURRENT
    assert len(upstream.asked) <= asking.CONCURRENT
    assert [found for number in range(50) if (found := asked.report(f"m{number}", ONE)) is None] == []


def _of_one(credential: str, _model: str) -> Any:
    """What is told to one credential alone."""
    return LISTED if credential == "Bearer one" else {"data": []}


def _to_one(credential: str, _model: str) -> Any:
    return LISTED if credential == "Bearer one" else 401


def _found_by_one(credential: str, _model: str) -> Any:
    return LISTED if credential == "Bearer one" else 404


@pytest.mark.parametrize("answer", [_of_one, _to_one, _found_by_one], ids=["another list", "denied", "absent"])
async def test_what_another_asked_in_vain_is_asked_with_ones_own_credential(answer: Callable[..., Any]) -> None:
    """Neither a bad credential nor one that sees other models keeps a window from who may see it."""
    asked = Upstream(models=answer).asks()
    assert await _told(asked, "m", OTHER) is None
    assert await _told(asked, "m", ONE) == 65536
    assert await _told(asked, "m", OTHER) == 65536  # what was told serves everybody


async def test_one_list_tells_all_its_models() -> None:
    """None of them is asked for by itself."""
    upstream = Upstream(models={"data": [{"id": f"m{number}", "max_model_len": 4096} for number in range(20)]})
    asked = upstream.asks()
    for number in range(20):
        assert await _told(asked, f"m{number}") == 4096
    assert [path for path, *_ in upstream.asked] == ["models"]


@pytest.mark.parametrize("name", ["", "n" * 513, "\ud800"], ids=["empty", "long", "no text"])
async def test_what_can_be_no_name_is_never_asked_for(name: str) -> None:
    """Nor does it fill a memory; what holds for every name holds for it."""
    upstream = Upstream(props={"default_generation_settings": {"n_ctx": 4096}})
    asked = upstream.asks()
    assert await _told(asked, name) is None
    assert upstream.asked == []
    assert await _told(asked, "n" * 512) == 4096
    assert await _told(asked, name) == 4096


def test_a_memory_of_misses_is_weighed_by_its_names() -> None:
    """The longest name fits, and eight of them fill it: this is all that one tenant can make us hold."""
    misses: Bounded[str, float] = asking._Asker().misses
    for number in range(20):
        misses.put(f"{number:0512d}", 1.0, weight=512)
    assert len(misses) == 8


async def test_an_answer_of_megabytes_does_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in a thread, as long as it is read at all."""
    threads: list[object] = []

    async def to_thread(*call: Any) -> Any:
        threads.append(call[0])
        return call[0](*call[1:])

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    big = {**LISTED, "padding": "x" * asking.INLINE_BYTES}
    assert await _told(Upstream(models=big).asks(), "m") == 65536
    assert threads == [reported.listed]
