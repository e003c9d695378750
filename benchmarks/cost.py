"""What packing costs and what it must never do: prices, loops, and waits, through the real proxy.

    .venv/bin/python benchmarks/cost.py              # four minutes; --quick for one

Everything is on loopback; the upstream has a prompt cache (`priced.py`). Ends with 1 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import ClientSession

sys.path.insert(0, str(Path(__file__).parent.parent))

from loops import loops
from priced import CACHED, FRESH, OUTPUT, Bill, Model, priced
from scripted import carried, clients
from sessions import body, generated, spelled
from waits import waits

WINDOW = 32_768
#: What a client asks for, and what a client that trims keeps free.
LIMIT = 1_000
WAYS: dict[str, dict[str, object]] = {
    "carryon": {"pressure": {"after_reply": True}},
    "carryon, nothing beside": {"pressure": {"after_reply": False}},
    "carryon, outline": {"pressure": {"after_reply": True}, "summary": {"method": "outline"}},
}
#: Seconds a model needs for a turn and for a summary.
THINKS, WRITES = 0.02, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one way came to."""

    name: str
    bill: Bill
    turns: int
    commits: int = 0
    summaries: int = 0
    largest: int = 0

    def __str__(self) -> str:
        bill = self.bill
        return (
            f"{self.name:24} {self.commits:7} {self.summaries:9} {bill.fresh:10,} {bill.cached:11,} {bill.output:7,}"
            f" {bill.units:11,.0f} {bill.units / self.turns:9,.0f} {bill.units / WINDOW:8.1f} {self.largest:9,}"
        )


HEAD = f"{'':24} commits summaries      fresh      cached  output       units  per turn  windows   largest"


def turns(count: int) -> Iterator[tuple[list[bytes], list[int]]]:
    """The histories of so many turns, and where each of their units begins."""
    session = generated(-(-count // 2))
    raws = [spelled(one) for one in session.items]
    starts = [at for at, one in enumerate(session.items) if at > 1 and one["role"] != "tool"]
    for size in session.turns[:count]:
        yield raws[:size], [at for at in starts if at < size]


def raw(count: int) -> Row:
    """No limit, and nobody trims."""
    bill, largest = Bill(), 0
    for items, _ in turns(count):
        largest = max(largest, bill.asked(body("raw", items, max_tokens=LIMIT)))
    return Row(name="raw, no limit", bill=bill, turns=count, largest=largest)


def trimmed(count: int) -> Row:
    """A client that drops its oldest units each turn until the request fits, all but system text and task."""
    bill, largest = Bill(), 0
    for items, starts in turns(count):
        cuts = iter(starts)
        sent, cut = body("trim", items, max_tokens=LIMIT), 2
        while len(sent) > (WINDOW - LIMIT) * 4:
            cut = next(cuts)
            sent = body("trim", [*items[:2], *items[cut:]], max_tokens=LIMIT)
        largest = max(largest, bill.asked(sent))
    return Row(name="trim to fit every turn", bill=bill, turns=count, largest=largest)


async def packed(count: int) -> list[Row]:
    """Through Carryon, each way with a model and a tenant of its own."""
    models = {f"cost-{at}": Model(window=WINDOW, thinks=THINKS, seconds=WRITES) for at in range(len(WAYS))}
    policies = [
        {"model": model, "context_window": WINDOW, **way} for model, way in zip(models, WAYS.values(), strict=True)
    ]
    async with priced(models) as upstream, carried(upstream, models=policies) as proxy, clients() as client:
        names = await asyncio.gather(*(_sent(client, proxy.url, model, count) for model in models))
        commits = Counter(one["conversation"] for one in proxy.events("commit"))
    if refused := sum(model.refused for model in models.values()):
        raise SystemExit(f"the upstream refused {refused} requests")
    return [
        Row(
            name=way,
            bill=model.bill,
            turns=count,
            commits=commits[name],
            summaries=model.summaries,
            largest=model.largest,
        )
        for way, model, name in zip(WAYS, models.values(), names, strict=True)
    ]


async def _sent(client: ClientSession, url: str, model: str, count: int) -> str:
    """All turns of a session; the conversation's name."""
    headers, name = {"Content-Type": "application/json", "Authorization": f"Bearer {model}"}, ""
    for items, _ in turns(count):
        sent = body(model, items, max_tokens=LIMIT)
        async with client.post(f"{url}/chat/completions", data=sent, headers=headers) as reply:
            if reply.status != 200:
                raise SystemExit(f"status {reply.status}: {await reply.text()}")
            await reply.read()
            name = reply.headers["x-carryon-conversation"]
    return name


async def costs(count: int) -> list[str]:
    """All ways; what is wrong."""
    print(
        f"\n{count} turns, window {WINDOW:,}; units: {FRESH:g} fresh, {CACHED:g} cached, {OUTPUT:g} a summary's output"
    )
    rows: Sequence[Row] = [raw(count), trimmed(count)]
    rows = [*rows, *await packed(count)]
    print(HEAD, *rows, sep="\n")
    trim = rows[1].bill.units
    wrong = [f"{one.name} costs more than trimming" for one in rows[2:] if one.bill.units >= trim]
    wrong += [f"{one.name}: {one.commits} commits in {count} turns" for one in rows[2:] if one.commits > count // 8]
    return wrong + [f"{one.name}: more calls than commits" for one in rows[2:] if one.summaries > one.commits + 1]


async def measured(*, quick: bool) -> list[str]:
    """Everything; what is wrong."""
    started, wrong = time.monotonic(), []
    parts = (partial(costs, 120 if quick else 400), partial(loops, 30 if quick else 120), partial(waits, quick=quick))
    for part in parts:
        began = time.monotonic()
        wrong += await part()
        print(f"[{time.monotonic() - began:.0f} s]", flush=True)
    print(f"\n{len(wrong)} bounds do not hold; {time.monotonic() - started:.0f} s", *wrong, sep="\n")
    return wrong


def main() -> int:
    """Run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer turns, and a summariser of one second")
    return 1 if asyncio.run(measured(quick=options.parse_args().quick)) else 0


if __name__ == "__main__":
    sys.exit(main())
