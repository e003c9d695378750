"""No body makes a 500, a second copy or a byte changed but where the rules allow it (rules 2.2, 3.1, 3.4, 3.5; I9).

Every body goes through the whole of Carryon on real sockets, before an upstream that accepts it and one that refuses it
as too long, with a window that nobody knows and with one that it outgrows: so splitting, measuring, packing and
recovery work on it. `CARRYON_THOROUGH=1` tries twenty times as many.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile

import brotli
import pytest
import zstandard
from hypothesis import HealthCheck, Phase, given, settings

from proxy.server import ServerBounds
from tests.e2e.apis import APIS
from tests.e2e.bodies import CHAT, CONVERSATION, WINDOW, Corpus, reading, spelt
from tests.e2e.corpora import CORPORA
from tests.e2e.hostile import OVERFLOW, THOROUGH, Run, Seen, Witness, answered, between, own, spelled, witness
from tests.e2e.scribe import INSTRUCTION, good
from tests.sockets import client, reply
from tests.store.servers import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What stands around the bodies: a window or none, and how often the upstream refuses one as too long."""

    window: int | None = None
    refusals: int = 0


MODES = {
    "window unknown": Mode(),
    "window outgrown": Mode(window=WINDOW),
    "refused once, window unknown": Mode(refusals=1),
    "refused once, window outgrown": Mode(window=WINDOW, refusals=1),
    "always refused": Mode(window=WINDOW, refusals=9),
}
_SLOWLY = {"suppress_health_check": list(HealthCheck), "deadline": None, "database": None}
_FUZZ = {**_SLOWLY, "phases": (Phase.generate, Phase.shrink), "derandomize": THOROUGH == 1}
_ACCEPTED = reply(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}')
_REFUSED = reply(OVERFLOW % 6_000, status="400 Bad Request")
#: Why a refusal is handed over where the packed request was refused too, or could not be made small enough.
_TOO_LARGE = [b"too-large"]
#: What the upstream gives for a summary, by dialect.
_SUMMARIES = {api.name: reply(json.dumps(api.whole(good(1), 9)).encode()) for api in APIS}


@dataclass(slots=True, kw_only=True)
class Trial:
    """One running Carryon to which bodies are sent; each is a case with a credential of its own."""

    run: Run
    upstream: Witness
    mode: Mode
    corpus: Corpus = CHAT
    path: bytes = b"/v1/chat/completions"
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    async def send(self, body: bytes, *headers: bytes) -> tuple[Seen, list[Seen]]:
        """Send a body; gives the reply and the copies that reached the upstream, summaries left out."""
        self.cases += 1
        got = await answered(self.run.port, spelled(body, *headers, target=self.path, case=self.cases))
        assert own(got), got.head
        copies = [one for one in self.upstream.of(self.cases) if not _asks_for_summary(one)]
        self.outcomes[b" ".join((b"%d" % got.status, *got.values(b"x-carryon-action"))).decode()] += 1
        return got, copies

    async def judge(self, name: str, body: bytes, *headers: bytes) -> None:
        """Send a body that goes on, and hold against the rules what came of it."""
        got, copies = await self.send(body, *headers)
        action = b"".join(got.values(b"x-carryon-action"))
        again = self.mode.refusals > 1 and got.values(b"x-carryon-refused") == _TOO_LARGE and len(copies) > 1
        assert len(copies) == 1 + (again or action == b"overflow-retry"), name
        refused = len(copies) <= self.mode.refusals
        assert got.status == (400 if refused else 200), name
        assert got.body == (_REFUSED if refused else _ACCEPTED).partition(b"\r\n\r\n")[2], name
        for copy in copies:
            _allowed(self.corpus, name, body, copy.body)
        if len(copies) > 1:
            assert copies[0].body != copies[1].body, name
        if name in self.corpus.untouched:
            assert [copy.body for copy in copies] == [body], name
        if action == b"pass":
            assert copies[0].body == body, name
        assert not self.run.faults, (name, self.run.faults)


def _asks_for_summary(seen: Seen) -> bool:
    return INSTRUCTION.removesuffix(" above").encode() in seen.body


def _allowed(corpus: Corpus, name: str, body: bytes, sent: bytes) -> None:
    """The very bytes, or a projection: only of a body that may be touched, and only in its items."""
    if sent == body:
        return
    try:
        _projected(corpus, name, body, sent)
    except RecursionError:  # deeper than this reader goes
        return


def _projected(corpus: Corpus, name: str, body: bytes, sent: bytes) -> None:
    before, after = reading(corpus, body), reading(corpus, sent)
    assert before is not None, name
    assert after is not None, name
    assert after[0] == before[0], name
    leading = list(takewhile(lambda item: dict(item).get("role") in {"system", "developer"}, before[1]))
    assert after[1][: len(leading)] == leading, name
    ends = [(dict(found[-1]).get("role"), dict(found[-1]).get("type")) for found in (before[1], after[1])]
    assert ends[0] == ends[1], name


@asynccontextmanager
async def trying(mode: Mode, store: Server, corpus: Corpus = CHAT, **bounds: float) -> AsyncIterator[Trial]:
    """Carryon before an upstream that refuses as the mode says."""

    def answer(seen: Seen) -> bytes:
        if seen.start.startswith(b"GET"):
            return reply(b"{}", status="404 No")
        if _asks_for_summary(seen):
            json.loads(seen.body)
            return _SUMMARIES[corpus.name]
        copies = [one for one in upstream.of(int(seen.case)) if not _asks_for_summary(one)]
        return _REFUSED if len(copies) <= mode.refusals else _ACCEPTED

    made = ServerBounds(linger=0.2, **bounds)  # type: ignore[arg-type]
    async with witness(answer) as upstream, between(upstream.url, store, window=mode.window, bounds=made) as run:
        yield Trial(run=run, upstream=upstream, mode=mode, corpus=corpus, path=corpus.path)
    assert "PROXY_INTERNAL" not in run.log.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/responses", b"/u/none/v1/chat/completions"])
async def test_named_bodies_on_another_path_get_no_500_and_no_third_copy(path: bytes, valkey: Server) -> None:
    """Bodies of one dialect where another is spoken: one or two copies, and as it came where nothing was packed."""
    listed = b'"input"' if path == b"/v1/responses" else b'"messages"'
    async with trying(MODES["refused once, window outgrown"], valkey) as trial:
        trial.path = path
        for name, chat in [*list(_NAMED["chat"].items())[::2], *_TYPES["chat"][::40]]:
            body = chat.replace(b'"messages"', listed)
            got, copies = await trial.send(body)
            action = b"".join(got.values(b"x-carryon-action"))
            assert len(copies) <= (2 if action == b"overflow-retry" else 1), name
            unpacked = not got.values(b"x-carryon-generation")
            assert all(copy.body == body for copy in copies) or not unpacked, name
            assert (got.status == 404) is (not copies), name
            assert not trial.run.faults, (name, trial.run.faults)
        _told(trial, f"bodies on {path.decode()}")


def _told(trial: Trial, what: str) -> None:
    """Print how many were tried and what came of them, for whoever runs this with -s."""
    asked = sum(map(_asks_for_summary, trial.upstream.requests))
    print(f"\n{what}: {trial.cases} bodies, {asked} summaries asked, {dict(trial.outcomes.most_common())}")


#: The first proves what is verbatim, the second that packing and recovery stand it; the others are slow.
_QUICK = {"window unknown", "refused once, window outgrown"}
_SPREAD = [
    pytest.param(mode, marks=[] if name in _QUICK else pytest.mark.slow, id=name) for name, mode in MODES.items()
]


_NAMED = {corpus.name: corpus.named() for corpus in CORPORA}
_TYPES = {corpus.name: corpus.mistyped() for corpus in CORPORA}
_BOTH = pytest.mark.parametrize(
    "mode", [MODES["window unknown"], MODES["refused once, window outgrown"]], ids=["first", "all"]
)
_EACH = pytest.mark.parametrize("corpus", CORPORA, ids=[corpus.name for corpus in CORPORA])
_OWN = pytest.mark.parametrize("corpus", CORPORA[1:], ids=[corpus.name for corpus in CORPORA[1:]])


@pytest.mark.parametrize("mode", _SPREAD)
async def test_named_bodies_pass_or_are_packed_as_the_rules_say(mode: Mode, valkey: Server) -> None:
    """Empty, cut, no JSON, deep, twice named, odd numbers, odd characters, other encodings."""
    async with trying(mode, valkey) as trial:
        for name, body in _NAMED["chat"].items():
            await trial.judge(name, body)
        _told(trial, "named bodies")
        packed = sum(count for outcome, count in trial.outcomes.items() if not outcome.endswith(("pass", "refused")))
        assert packed > 50 or mode == MODES["window unknown"] or mode == MODES["always refused"]


@_OWN
@pytest.mark.parametrize("mode", _SPREAD)
async def test_bodies_that_only_one_dialect_has_pass_or_are_packed(mode: Mode, corpus: Corpus, valkey: Server) -> None:
    """Items, blocks, ids, reasoning and system text of every wrong kind; what lies elsewhere is passed on once.

    Half of them where each is packed twice; the slow modes have all.
    """
    async with trying(mode, valkey, corpus) as trial:
        for name, body in list(corpus.own.items())[:: 2 if mode == MODES["refused once, window outgrown"] else 1]:
            await trial.judge(name, body)
        _told(trial, f"bodies of {corpus.name} alone")
        packed = sum(count for outcome, count in trial.outcomes.items() if not outcome.endswith(("pass", "refused")))
        assert packed > 30 or mode == MODES["window unknown"] or mode == MODES["always refused"]


@_OWN
async def test_named_bodies_are_treated_alike_in_every_dialect(corpus: Corpus, valkey: Server) -> None:
    """A sixth of those of chat, respelt; the slow test has all of them."""
    async with trying(MODES["refused once, window outgrown"], valkey, corpus) as trial:
        for name, body in list(_NAMED[corpus.name].items())[::6]:
            await trial.judge(name, body)
        _told(trial, f"named bodies of {corpus.name} (sixth)")


@pytest.mark.slow
@pytest.mark.timeout(200)
@_OWN
@pytest.mark.parametrize("mode", [MODES["window outgrown"], MODES["always refused"]], ids=["outgrown", "refused"])
async def test_all_named_bodies_are_treated_alike_in_every_dialect(mode: Mode, corpus: Corpus, valkey: Server) -> None:
    """Those of chat, respelt."""
    async with trying(mode, valkey, corpus) as trial:
        for name, body in _NAMED[corpus.name].items():
            await trial.judge(name, body)
        _told(trial, f"named bodies of {corpus.name}")


@_EACH
@_BOTH
async def test_any_type_in_any_field_passes_or_is_packed(mode: Mode, corpus: Corpus, valkey: Server) -> None:
    """A sample of the table of fields and types; the slow test has more of it."""
    step = (24 if mode.refusals else 8) * (1 if corpus is CHAT else 2)
    async with trying(mode, valkey, corpus) as trial:
        for name, body in _TYPES[corpus.name][::step]:
            await trial.judge(name, body)
        _told(trial, f"fields of another type of {corpus.name} (sample)")


@pytest.mark.slow
@pytest.mark.timeout(400)
@_EACH
async def test_every_type_in_many_fields_passes_or_is_packed(corpus: Corpus, valkey: Server) -> None:
    """A part of the table, with pressure and recovery; all of it where `CARRYON_THOROUGH` is set."""
    types = _TYPES[corpus.name]
    chosen = types if THOROUGH > 1 else types[1 :: 4 if corpus is CHAT else 8]
    async with trying(MODES["refused once, window outgrown"], valkey, corpus) as trial:
        for name, body in chosen:
            await trial.judge(name, body)
        _told(trial, f"fields of another type of {corpus.name} ({len(chosen)} of {len(types)})")


@pytest.mark.timeout(120 * THOROUGH)
@_EACH
@_BOTH
async def test_generated_bodies_pass_or_are_packed(mode: Mode, corpus: Corpus, valkey: Server) -> None:
    """The conversation with its values replaced, moved, dropped and repeated, its bytes cut, inserted and flipped."""
    examples = (30 if mode.refusals else 60) * THOROUGH
    async with trying(mode, valkey, corpus) as trial:
        loop = asyncio.get_running_loop()

        @settings(max_examples=examples, **_FUZZ)
        @given(corpus.mutated())
        def judged(body: bytes) -> None:
            asyncio.run_coroutine_threadsafe(trial.judge("generated", body), loop).result()

        await asyncio.to_thread(judged)
        _told(trial, f"generated bodies of {corpus.name}")
        assert trial.cases >= examples


_WHOLE = spelt(CONVERSATION)
_RAW_DEFLATE = zlib.compressobj(wbits=-15)
_CODED = {
    "gzip": ("gzip", gzip.compress(_WHOLE)),
    "x-gzip": ("x-gzip", gzip.compress(_WHOLE)),
    "GZip": ("GZip", gzip.compress(_WHOLE)),
    "deflate": ("deflate", zlib.compress(_WHOLE)),
    "deflate without its header": ("deflate", _RAW_DEFLATE.compress(_WHOLE) + _RAW_DEFLATE.flush()),
    "br": ("br", brotli.compress(_WHOLE)),
    "zstd": ("zstd", zstandard.compress(_WHOLE)),
    "gzip, gzip": ("gzip, gzip", gzip.compress(gzip.compress(_WHOLE))),
    "br, zstd": ("br, zstd", zstandard.compress(brotli.compress(_WHOLE))),
    "identity, gzip": ("identity, gzip", gzip.compress(_WHOLE)),
    "two members of gzip": ("gzip", gzip.compress(_WHOLE[:100]) + gzip.compress(_WHOLE[100:])),
    "an unknown coding": ("x-own", _WHOLE),
    "an unknown coding inside": ("x-own, gzip", gzip.compress(_WHOLE)),
    "no gzip": ("gzip", _WHOLE),
    "another coding than it says": ("br", gzip.compress(_WHOLE)),
    "cut gzip": ("gzip", gzip.compress(_WHOLE)[:-200]),
    "cut zstd": ("zstd", zstandard.compress(_WHOLE)[:-5]),
    "gzip with garbage behind": ("gzip", gzip.compress(_WHOLE) + b"garbage"),
    "gzip of half a body": ("gzip", gzip.compress(_WHOLE[:3_000])),
    "gzip of nothing": ("gzip", gzip.compress(b"")),
    "nothing as gzip": ("gzip", b""),
    "more codings than anyone applies": (", ".join(["gzip"] * 5_000), gzip.compress(_WHOLE)),
    "the name of no coding": (",,;=\t, ", _WHOLE),
}


@pytest.mark.parametrize(
    "mode", [MODES["window unknown"], MODES["refused once, window outgrown"]], ids=["first", "all"]
)
async def test_coded_bodies_go_on_as_they_came_or_packed_without_their_coding(mode: Mode, valkey: Server) -> None:
    """Never a coding without its bytes, nor bytes without their coding."""
    async with trying(mode, valkey) as trial:
        for name, (coding, body) in _CODED.items():
            _, copies = await trial.send(body, b"Content-Encoding: " + coding.encode())
            assert 1 <= len(copies) <= 1 + mode.refusals, name
            for copy in copies:
                coded = copy.values(b"content-encoding")
                assert (copy.body, coded) == (body, [coding.encode().strip()]) or not coded, name
                if not coded:
                    _allowed(CHAT, name, _WHOLE, copy.body)
        _told(trial, "coded bodies")


def _bombs() -> dict[str, tuple[str, bytes]]:
    zeros, spaces = bytes(24 << 20), b" " * (24 << 20)
    once = gzip.compress(zeros, 9)
    return {
        "gzip": ("gzip", once),
        "gzip of white space": ("gzip", gzip.compress(spaces, 1)),
        "deflate": ("deflate", zlib.compress(zeros, 9)),
        "br": ("br", brotli.compress(zeros, quality=1)),
        "zstd": ("zstd", zstandard.compress(zeros)),
        "gzip in gzip": ("gzip, gzip", gzip.compress(once, 9)),
        "zstd in br in gzip": (
            "zstd, br, gzip",
            gzip.compress(brotli.compress(zstandard.compress(zeros), quality=1), 9),
        ),
        "many members of gzip": ("gzip", gzip.compress(bytes(1 << 16)) * 400),
    }


async def test_bombs_are_413_and_reach_nobody(valkey: Server) -> None:
    """24 MiB of nothing in a few bytes, in every coding and in codings of codings, where 8 are allowed."""
    async with trying(MODES["window outgrown"], valkey, max_body=8 << 20) as trial:
        for name, (coding, body) in _bombs().items():
            got, copies = await trial.send(body, b"Content-Encoding: " + coding.encode())
            assert (got.status, got.values(b"x-carryon-error")) == (413, [b"PROXY_BODY_TOO_LARGE"]), name
            assert not copies, name
            assert trial.run.door.inflight_bytes == 0, name
        _told(trial, "bombs")


@pytest.mark.parametrize(
    "mebibytes", [1, pytest.param(64, marks=[pytest.mark.slow, pytest.mark.timeout(300)])], ids=["1 MiB", "64 MiB"]
)
@pytest.mark.parametrize("window", [None, WINDOW], ids=["window unknown", "window outgrown"])
async def test_a_body_of_the_largest_size_passes_and_one_byte_more_is_413(
    mebibytes: int, window: int | None, valkey: Server
) -> None:
    """Of known length and in chunks; and small requests are answered meanwhile."""
    limit = mebibytes << 20
    begin, end = b'{"model":"hostile-1","messages":[{"role":"user","content":"', b'"}]}'
    full = begin + (b"a b c d e f " * (limit // 12))[: limit - len(begin) - len(end)] + end
    async with trying(Mode(window=window), valkey, max_body=limit) as trial:
        sending = asyncio.ensure_future(trial.send(full))
        slowest, number = 0.0, 10_000
        while not sending.done():
            number, began = number + 1, time.monotonic()
            assert (await answered(trial.run.port, spelled(b"{}", case=number))).status == 200
            slowest = max(slowest, time.monotonic() - began)
        got, copies = await sending
        assert got.status == 200
        assert [len(copy.body) for copy in copies] == [len(full)]
        assert copies[0].body == full
        got, copies = await trial.send(full + b" ")
        assert (got.status, got.values(b"x-carryon-error")) == (413, [b"PROXY_BODY_TOO_LARGE"])
        assert not copies
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(full) + 1, full + b" ")
        raw = spelled(chunked, b"Transfer-Encoding: chunked", case=9_999, framed=False)
        assert (await answered(trial.run.port, raw)).status == 413
        assert not trial.upstream.of(9_999)
        print(f"\n{mebibytes} MiB: {number - 10_000} small requests meanwhile, the slowest {slowest * 1e3:.0f} ms")


@pytest.mark.parametrize("how", ["length", "chunks"])
async def test_slow_bodies_arrive_whole_or_not_at_all(how: str, valkey: Server) -> None:
    """A trickle is waited for; a body that stops coming is 408, one that is broken off or misframed reaches nobody."""
    small = spelt({"model": "hostile-1", "messages": [{"role": "user", "content": "hi"}]})
    head = b"Transfer-Encoding: chunked" if how == "chunks" else b"Content-Length: %d" % len(small)
    whole = b"".join(b"1\r\n%c\r\n" % byte for byte in small) + b"0\r\n\r\n" if how == "chunks" else small

    def framed(case: int, body: bytes) -> bytes:
        return spelled(body, head, case=case, framed=False)

    async with trying(MODES["window outgrown"], valkey, body_idle=1.5) as trial:
        port = trial.run.port
        async with client(port) as peer:
            await peer.send(framed(1, b""), *(whole[at : at + 40] for at in range(0, len(whole), 40)), pause=0.02)
            assert (await peer.message()).status == 200
        assert [copy.body for copy in trial.upstream.of(1)] == [small]
        stopped = await answered(port, framed(2, whole[:-9]))
        assert (stopped.status, stopped.values(b"x-carryon-error")) == (408, [b"PROXY_BODY_TIMEOUT"])
        async with client(port) as peer:
            await peer.send(framed(3, whole[:-9]))
        if how == "chunks":
            assert (await answered(port, framed(4, whole[:-9] + b"zz\r\n"))).status == 400
        await answered(port, spelled(b"{}", case=5))
        assert [len(trial.upstream.of(case)) for case in (2, 3, 4, 5)] == [0, 0, 0, 1]
        assert trial.upstream.cut == 0
