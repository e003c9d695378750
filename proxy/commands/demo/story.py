"""Three fates of one conversation, told as they happen, each with what must have been true."""

from __future__ import annotations

import asyncio
import signal
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
from proxy.commands.demo.agent import Agent, Answered
from proxy.commands.demo.model import COUNTS_MORE, WINDOW, ScriptedModel
from proxy.commands.serve import bounds, on_signals
from proxy.compaction.job import Compactor, Job
from proxy.core.identity import ANONYMOUS
from proxy.exchange import exchange
from proxy.house import House
from proxy.server.lifecycle import Server
from proxy.settings import Settings, load
from proxy.tokens import count_with

__all__ = ["Liar", "tell"]

_STEP = 700
#: What a turn adds beyond the file it reads: the call, the frames, the model's answer.
_TURN = 70
#: More turns than any fate needs: a story that goes wrong must end as well.
_MOST_TURNS = 40
_OK = 200
#: Ctrl-C, a service manager, a closed terminal: each ends the story with everything stopped.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COLUMNS = "   turn   history →   sent   model counts   generation   what happened"
Say = Callable[[str], None]


class Liar:
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
        """Take one turn of the agent and print it."""
        self.model.counts.clear()
        answered = await self.agent.turn(tokens)
        self.sent = answered.tokens[1] or self.sent + tokens
        if "conversation" in answered.told:
            self.conversation = f"{ANONYMOUS}.{answered.told['conversation']}"
        self.say(_line(self.agent.turns, answered, self.model))
        return answered

    async def generation(self) -> int:
        """Read the counter where it is kept: in the store itself."""
        if not self.conversation:
            return 0
        return (await self.house.ledger.load(self.conversation)).generation

    async def grown(self, target: int) -> Answered:
        """Take turns of one step each, then one that lands at `target` tokens."""
        for _ in range(_MOST_TURNS):
            if self.sent + _STEP >= target - _STEP // 2:
                break
            await self.turn(_STEP)
        return await self.turn(max(1, target - self.sent - _TURN))


def tell(say: Say, *, model: ScriptedModel | None = None, compactor: Compactor | None = None) -> bool:
    """Run the demo; whether all three fates went as they must.

    Another `model` or `compactor` than the usual makes another story, one that should go wrong.
    Raises `KeyboardInterrupt` when a signal ends it, after everything was stopped.
    """
    try:
        return asyncio.run(_told(say, model or ScriptedModel(), compactor))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _told(say: Say, model: ScriptedModel, compactor: Compactor | None) -> bool:
    story = asyncio.current_task()
    on_signals(story.cancel if story else _ignored, *_SIGNALS)
    started = time.monotonic()
    say(f"carryon demo: one conversation, three fates. The model's window is {WINDOW:,} tokens; it counts")
    say(f"{COUNTS_MORE} times what Carryon estimates and says so only when it refuses: a count with ! is refused.")
    say("The model is a script; store, proxy, compaction and retries are real.")
    say("generation: how often the conversation was packed; S1: a summary by its own model, in one call.")
    async with _staged(say, model, compactor) as stage:
        fates = (
            ("1  packed by pressure", _pressed),
            ("2  rescued from overflow", _rescued),
            ("3  refused: a lying backend moved no generation", _refused),
        )
        results = []
        for title, fate in fates:
            say(f"\n── {title}\n{_COLUMNS}")
            results.append(await fate(stage))
            say("   as it must be" if results[-1] else "   NOT as it must be")
        on_signals(_ignored, *_SIGNALS)  # what was set up is being taken down already
    say(f"\n{sum(results)} of {len(fates)} fates as they must be, in {time.monotonic() - started:.1f} s.")
    return all(results)


def _ignored() -> None:
    return


async def _pressed(stage: _Stage) -> bool:
    """Let the history reach the threshold in one step: it is packed before it is sent."""
    answered = await stage.grown(int(WINDOW * 0.83))
    generation, copies = await stage.generation(), len(stage.model.counts)
    stage.say(f"   the generation in the store is {generation}; copies of the turn that the model saw: {copies}")
    return answered.status == _OK and answered.told.get("action") == "pressure" and (generation, copies) == (1, 1)


async def _rescued(stage: _Stage) -> bool:
    """Stay below the threshold by our meter, over the window by the model's: refused, packed, proven, sent again."""
    before = await stage.generation()
    answered = await stage.grown(int(WINDOW * 0.785))
    generation, copies = await stage.generation(), len(stage.model.counts)
    good = (
        answered.status == _OK
        and answered.told.get("action") == "overflow-retry"
        and (generation, copies) == (before + 1, 2)
    )
    proof = ": the proof that it may be sent again" if good else ""
    stage.say(f"   the generation in the store was {before} and is {generation}{proof}; copies: {copies}")
    return good


async def _refused(stage: _Stage) -> bool:
    """Let the backend claim to have compacted. The counter did not move, so nothing is sent again."""
    stage.house.compactor = Liar()
    before = await stage.generation()
    answered = await stage.turn(_STEP)
    for _ in range(_MOST_TURNS):
        if answered.status != _OK:
            break
        answered = await stage.turn(_STEP)
    generation, copies = await stage.generation(), len(stage.model.counts)
    same = answered.body == stage.model.refusal
    stage.say(f"   the generation in the store was {before} and is {generation}; copies: {copies}; the agent got")
    stage.say(f"   the model's own error, byte for byte: {'yes' if same else 'no'}")
    return (
        same
        and answered.told.get("action") == "overflow-refused"
        and answered.told.get("refused") == "no-advance"
        and (generation, copies) == (before, 1)
    )


def _line(turn: int, answered: Answered, model: ScriptedModel) -> str:
    """Print one turn in the columns of `_COLUMNS`."""
    raw, sent = answered.tokens
    tokens = f"{raw:>7,} → {sent:>6,}" if raw else "not measured".rjust(16)
    counts = " ".join(f"{count:,}{'!' if count > model.window else ''}" for count in model.counts)
    return f"   {turn:>4}  {tokens}   {counts:>12}   {answered.generation:>10}   {_happened(answered)}"


def _happened(answered: Answered) -> str:
    told = answered.told
    packed = "summary by the model (S1)" if "summary" in told else "without a model"
    words = {
        "pass": "sent as it came",
        "projected": "sent with its head packed",
        "pressure": f"packed, then sent: {packed}",
        "overflow-retry": f"refused, packed, sent again: {packed}",
        "overflow-refused": f"refused ({answered.status}), handed over: {told.get('refused', '?')}",
    }
    return words.get(told.get("action", ""), f"answered {answered.status} by nobody we know")


@asynccontextmanager
async def _staged(say: Say, model: ScriptedModel, compactor: Compactor | None) -> AsyncIterator[_Stage]:
    """Set up the whole of it, on loopback and in a folder of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="carryon-demo-") as name:
        folder = Path(name)
        async with _served(model.app()) as port, opened(_settings(port, folder)) as house:
            house.compactor = compactor or house.compactor
            server = Server(partial(exchange, house), bounds(house.settings))
            try:
                listening = await server.listen()
                async with aiohttp.ClientSession() as session:
                    agent = Agent(f"http://127.0.0.1:{listening}/v1", session, count_with("o200k_base"))
                    yield _Stage(house, model, agent, say)
            finally:
                await server.close()


@asynccontextmanager
async def _served(app: web.Application) -> AsyncIterator[int]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _settings(port: int, folder: Path) -> Settings:
    waits = {"CARRYON_DEFAULTS__PRESSURE__AFTER_REPLY": "false"}  # the turn that is packed is the one that is told of
    return load(None, waits, {"upstream": f"http://127.0.0.1:{port}/v1", "window": WINDOW, "state_dir": str(folder)})
