"""Three fates of one conversation, told as they happen, each with what must have been true."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web

from proxy.boot import opened
from proxy.compaction.job import Job
from proxy.core.identity import ANONYMOUS
from proxy.core.meter import Meter
from proxy.demo.agent import Agent, Answered
from proxy.demo.model import COUNTS_MORE, ScriptedModel
from proxy.dialects.chat import CHAT
from proxy.encoder import count_with
from proxy.exchange import exchange
from proxy.house import House
from proxy.serve import bounds
from proxy.server.lifecycle import Server
from proxy.settings import Settings, load

__all__ = ["tell"]

WINDOW = 8_192
_STEP = 700
#: What a turn adds beyond the file it reads: the call, the frames, the model's answer.
_TURN = 70
_MOST_TURNS = 40
_OK = 200
Say = Callable[[str], None]


class _Liar:
    """A compaction backend that claims success and has done nothing."""

    async def compact(self, job: Job) -> None:
        """Look at the job, change nothing, return as if all were well."""
        del job


@dataclass(slots=True)
class _Stage:
    """What is on the stage: the house, the model behind it, the agent before it."""

    house: House
    model: ScriptedModel
    agent: Agent
    say: Say
    conversation: str = ""
    sent: int = 0

    async def turn(self, tokens: int) -> Answered:
        """One turn of the agent, printed with its tokens and generation."""
        self.model.copies = 0
        answered = await self.agent.turn(tokens)
        self.sent = answered.sent or self.sent + tokens
        if "conversation" in answered.told:
            self.conversation = f"{ANONYMOUS}.{answered.told['conversation']}"
        self.say(_line(self.agent.turns, answered, self.model))
        return answered

    async def generation(self) -> int:
        """The counter as the store holds it, read from the store itself."""
        if not self.conversation:
            return 0
        return (await self.house.ledger.load(self.conversation)).generation

    async def grown(self, target: int) -> Answered:
        """Turns of one step each, then one that lands at `target` tokens."""
        while self.sent + _STEP < target - _STEP // 2:
            await self.turn(_STEP)
        return await self.turn(max(1, target - self.sent - _TURN))


def tell(say: Say) -> bool:
    """Run the demo; whether all three fates went as they must."""
    return asyncio.run(_told(say))


async def _told(say: Say) -> bool:
    started = time.monotonic()
    say(f"carryon demo: one conversation, three fates. The model's window is {WINDOW} tokens; it counts")
    say(f"{COUNTS_MORE} times what Carryon estimates and does not say so. Store, proxy and retries are real.\n")
    async with _staged(say) as stage:
        fates = (
            ("1  packed by pressure", _pressed),
            ("2  rescued from overflow", _rescued),
            ("3  refused: a lying backend moved no generation", _refused),
        )
        results = []
        for title, fate in fates:
            say(f"\n── {title}")
            results.append(await fate(stage))
            say("   as it must be" if results[-1] else "   NOT as it must be")
    say(f"\n{sum(results)} of {len(fates)} fates as they must be, in {time.monotonic() - started:.1f} s.")
    return all(results)


async def _pressed(stage: _Stage) -> bool:
    """The history reaches the threshold in one step: it is packed before it is sent."""
    answered = await stage.grown(int(WINDOW * 0.83))
    generation = await stage.generation()
    stage.say(f"   the store's generation is {generation}; the model saw {stage.model.copies} copy of the turn")
    return (
        answered.status == _OK
        and answered.told.get("action") == "pressure"
        and (generation, stage.model.copies) == (1, 1)
    )


async def _rescued(stage: _Stage) -> bool:
    """Below the threshold by our meter, over the window by the model's: refused, packed, proven, sent again."""
    before = await stage.generation()
    answered = await stage.grown(int(WINDOW * 0.785))
    generation = await stage.generation()
    stage.say(f"   the model refused; the generation rose from {before} to {generation}; that is the proof, so it was sent again")
    return (
        answered.status == _OK
        and answered.told.get("action") == "overflow-retry"
        and (generation, stage.model.copies) == (before + 1, 2)
    )


async def _refused(stage: _Stage) -> bool:
    """The backend claims to have compacted. The counter did not move, so nothing is sent again."""
    stage.house.compactor = _Liar()
    before = await stage.generation()
    answered = await stage.turn(_STEP)
    for _ in range(_MOST_TURNS):
        if answered.status != _OK:
            break
        answered = await stage.turn(_STEP)
    generation = await stage.generation()
    same = answered.body == stage.model.refusal
    stage.say(f"   the generation is still {generation}; the model's own error went out, byte for byte: {'yes' if same else 'no'}")
    return (
        same
        and answered.told.get("action") == "overflow-refused"
        and answered.told.get("refused") == "no-advance"
        and (generation, stage.model.copies) == (before, 1)
    )


def _line(turn: int, answered: Answered, model: ScriptedModel) -> str:
    told = answered.told
    copies = "" if model.copies == 1 else f", {model.copies} copies"
    verdict = "answered" if answered.status == _OK else f"refused ({answered.status})"
    tokens = told.get("tokens", "").replace("raw=", "").replace(", sent=", " → ") or "not measured"
    return (
        f"   turn {turn:>2}  history → sent: {tokens:<14}  model counts {model.counted:>5} of {WINDOW}  "
        f"generation {answered.generation}  {told.get('action', '?')}: {verdict}{copies}"
    )


@asynccontextmanager
async def _staged(say: Say) -> AsyncIterator[_Stage]:
    """The whole of it, on loopback and in a folder of its own that is gone afterwards."""
    model = ScriptedModel(window=WINDOW, meter=Meter(CHAT.weigh, count_with("o200k_base")))
    with tempfile.TemporaryDirectory(prefix="carryon-demo-") as folder:
        async with _served(model.app()) as port, opened(_settings(port, Path(folder))) as house:
            server = Server(partial(exchange, house), bounds(house.settings))
            listening = await server.listen()
            try:
                async with aiohttp.ClientSession() as session:
                    agent = Agent(f"http://127.0.0.1:{listening}/v1", session, count_with("o200k_base"))
                    yield _Stage(house, model, agent, say)
            finally:
                await server.close()


@asynccontextmanager
async def _served(app: web.Application) -> AsyncIterator[int]:
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _settings(port: int, folder: Path) -> Settings:
    return load(None, {}, {"upstream": f"http://127.0.0.1:{port}/v1", "window": WINDOW, "state_dir": str(folder)})
