"""What a model is left with after ten compactions in a row: recorded and generated sessions through the real proxy.

    .venv/bin/python benchmarks/fidelity.py          # four minutes; --quick for one

Everything is on loopback. Summaries are the outline (S4) or come from a scripted summariser that repeats all facts it
is shown. Ends with 1 where a claim of 100 % does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aiohttp import ClientSession

sys.path.insert(0, str(Path(__file__).parent.parent))

from injection import injections
from judge import ACKNOWLEDGED, Carrier, Share, carrier, invalid, kept, stranger, words_kept
from kit import conformance
from recorded import recordings
from scripted import Heard, Scripted, carried, clients, scripted
from sessions import FACT, Session, body, generated, spelled

from tests.e2e.reading import READINGS
from tests.e2e.scribe import HEADINGS

ROUNDS = 10
_TOLD = re.compile(r"in at most (\d+) tokens")
#: Tokens of a fact on its line, with room to spare.
_FACT_TOKENS = 12
METHODS = {"S4": {"CARRYON_DEFAULTS__SUMMARY__METHOD": "outline"}, "good": {}}


def repeats(heard: Heard) -> str:
    """A good summary: the ten headings, and all facts of what was to be summarised, the newest where room is short."""
    text = heard.body.decode()
    told = [int(one) for one in _TOLD.findall(text)][-1:] or [2_000]
    facts = list(dict.fromkeys(FACT.findall(text)))[-(told[0] - 200) // _FACT_TOKENS :]
    parts = [f"## {heading}\n{heading}: see the facts." for heading in HEADINGS]
    return "\n\n".join([*parts, *(f"- `{fact}`" for fact in facts)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One compaction: what the first body after it still held. `lost`: what the one before held and this does not."""

    number: int
    covers: int
    task: Share
    rules: Share
    words: Share
    paths: Share
    facts: Share
    drift: int
    lost: int

    @property
    def good(self) -> bool:
        """Whether all that code promises is there."""
        return all(one.whole for one in (self.task, self.rules, self.words, self.paths))

    def __str__(self) -> str:
        shares = f"{self.task!s:>5} {self.rules!s:>6} {self.words!s:>17} {self.paths!s:>7}"
        return f"{self.number:>5} {self.covers:>6} {shares} {self.drift:>5} {self.facts!s:>9} {self.lost:>5}"


HEAD = "round  items  task  rules       users' words   paths drift     facts  lost"


@dataclass(slots=True, kw_only=True)
class Run:
    """One session with one way of summarising."""

    session: Session
    window: int
    rounds: list[Round] = field(default_factory=list)
    bodies: int = 0
    wrong: list[str] = field(default_factory=list)
    _before: Carrier | None = None
    _sent: dict[int, tuple[bytes, list[bytes]]] = field(default_factory=dict)

    def took(self, heard: Heard, own: Sequence[bytes], generation: int) -> None:
        """What the upstream had of one turn in which the client sent these items."""
        self.bodies += 1
        found = carrier("chat", heard.json)
        start, items, _ = READINGS["chat"].split(heard.body)
        fault = invalid("chat", heard.json) or self._prefix(start, items, generation)
        fault = fault or _foreign(items, own, found)
        self.wrong += [f"body {self.bodies}: {fault}"] if fault else []
        if generation > len(self.rounds) and found is not None:
            self.rounds.append(self._round(generation, found, heard))
            self._before = found

    def _prefix(self, start: bytes, items: list[bytes], generation: int) -> str:
        """Between two commits a body begins with all that the one before held, byte for byte."""
        before = self._sent.get(generation)
        self._sent[generation] = start, items
        same = before is None or (start, items[: len(before[1])]) == before
        return "" if same else "the prefix changed without a commit"

    def _round(self, number: int, found: Carrier, heard: Heard) -> Round:
        session, covers = self.session, found.covers
        task, *words = [text for at, text in session.words if at < covers]
        newest = found.sections.get("conversation_newest_user_message")
        if newest is not None:
            words = words[:-1]
        rules = [rule for at, rule in session.rules if at < covers]
        paths = list(dict.fromkeys(path for at, path in session.modified if at < covers))
        facts = [fact for at, fact in session.facts if at < covers]
        before = self._before
        lines = _lines(before.owned) if before else set()
        shown = found.owned + str(heard.json["messages"][2:])
        return Round(
            number=number,
            covers=covers,
            task=kept([task], found.sections.get("conversation_task", "")),
            rules=kept(rules, found.rules),
            words=words_kept(words, found, self.window),
            paths=kept(paths, found.sections.get("conversation_files_modified", "")),
            facts=kept(facts, found.text),
            drift=sum(line not in shown for line in lines),
            lost=len({*FACT.findall(before.text if before else "")} - {*FACT.findall(found.text)}),
        )


def _foreign(items: Sequence[bytes], own: Sequence[bytes], found: Carrier | None) -> str:
    """What of a body is neither the client's own nor stands for it."""
    if found is None:
        return stranger(items, own)
    acknowledged = len(items) > 2 and json.loads(items[2]).get("content") == ACKNOWLEDGED
    return stranger([items[0], *items[2 + acknowledged :]], [own[0], *own[1 + found.covers :]])


def _lines(owned: str) -> set[str]:
    return {line for line in owned.splitlines() if line.strip() and "characters elided" not in line}


async def run(upstream: Scripted, url: str, client: ClientSession, session: Session, model: str, window: int) -> Run:
    """Send a growing session until it was packed ten times."""
    found, raws = Run(session=session, window=window), [spelled(one) for one in session.items]
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}
    for size in session.turns:
        sent = body(model, raws[:size])
        async with client.post(f"{url}/chat/completions", data=sent, headers=headers) as reply:
            if reply.status != 200:
                raise SystemExit(f"status {reply.status}: {await reply.text()}")
            generation = int(reply.headers.get("x-carryon-generation", "0"))
        heard = next(one for one in reversed(upstream.heard) if not one.summary)
        upstream.heard.clear()
        found.took(heard, raws[:size], generation)
        if len(found.rounds) == ROUNDS:
            break
    return found


async def generations(window: int) -> list[str]:
    """Generated sessions by both ways; what is wrong with them."""
    wrong: list[str] = []
    session = generated(window // 100)
    for method, environment in METHODS.items():
        async with (
            scripted(repeats) as upstream,
            carried(upstream.url, "--window", str(window), **environment) as proxy,
            clients() as client,
        ):
            found = await run(upstream, proxy.url, client, session, f"fidelity-{method}", window)
        items = found.rounds[-1].covers if found.rounds else 0
        print(f"\ngenerated session, {method}, window {window:,}: {found.bodies} requests, {items} items packed")
        print(HEAD, *found.rounds, sep="\n")
        print(f"valid, and a stable prefix: {found.bodies - len(found.wrong)}/{found.bodies}")
        wrong += [f"{method}: {one}" for one in found.wrong]
        wrong += [f"{method}, round {one.number}: something is missing" for one in found.rounds if not one.good]
        wrong += [f"{method}: {len(found.rounds)} rounds over {items} items"] * (
            len(found.rounds) < ROUNDS or items < 200
        )
    return wrong


async def measured(*, quick: bool) -> list[str]:
    """Everything; what is wrong."""
    started, wrong = time.monotonic(), []
    for part in (
        partial(generations, 16_384),
        *(() if quick else (partial(generations, 32_768),)),
        partial(recordings, repeats, quick=quick),
        partial(injections, quick=quick),
        partial(conformance, repeats, quick=quick),
    ):
        began = time.monotonic()
        wrong += await part()
        print(f"[{time.monotonic() - began:.0f} s]", flush=True)
    print(f"\n{len(wrong)} claims do not hold; {time.monotonic() - started:.0f} s", *wrong, sep="\n")
    return wrong


def main() -> int:
    """Run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one window, three recordings, one session of the kit")
    return 1 if asyncio.run(measured(quick=options.parse_args().quick)) else 0


if __name__ == "__main__":
    sys.exit(main())
