"""A double of the job (not of the store): it plans and validates like the real one, keeps what was committed.

`conversation` builds chat transcripts from short steps; `ScriptedJob` hands a compactor a view of one,
answers `ask` from a script, and applies each proposal through the real surface code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Literal

from proxy.compaction.job import Proposed, Summariser, TurnedDown, View
from proxy.core.meter import Meter, measured
from proxy.core.ranges import units
from proxy.core.replacement import replace
from proxy.core.surface import Carry, Keep, Projection, Put, raw_projection
from proxy.core.transcript import Item, Transcript
from proxy.dialects import Completion
from proxy.dialects.chat import CHAT
from proxy.policy import Limits, Policy, limits

SAID = Completion | Exception | None
SYSTEM = {"role": "system", "content": "You are a coding agent."}


def estimate(text: str) -> int:
    """Four bytes a token, about what encoders find."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


METER = Meter(CHAT.weigh, estimate)


def user(text: str) -> dict[str, object]:
    """A user message."""
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, object]:
    """An assistant message."""
    return {"role": "assistant", "content": text}


def call(id_: str, name: str = "read_file", **arguments: object) -> dict[str, object]:
    """An assistant message that calls one tool."""
    return calls((id_, name, arguments))


def calls(*wanted: tuple[str, str, Mapping[str, object]]) -> dict[str, object]:
    """An assistant message that calls several."""
    listed = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed}


def result(id_: str, text: str) -> dict[str, object]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": id_, "content": text}


def conversation(*messages: dict[str, object], system: str = "You are a coding agent.") -> Transcript:
    """A chat transcript of these messages."""
    body = {"model": "m", "messages": [{"role": "system", "content": system}, *messages]}
    split = CHAT.split(json.dumps(body).encode())
    assert split is not None
    return split


def steps(count: int, size: int = 400, *, start: int = 0) -> list[dict[str, object]]:
    """So many tool steps, each with a result of `size` characters in lines."""
    found: list[dict[str, object]] = []
    for at in range(start, start + count):
        text = "\n".join(f"line {line} of file {at}" for line in range(1 + size // 20))[:size]
        found += [call(f"c{at}", path=f"src/file_{at}.py"), result(f"c{at}", text)]
    return found


def a_summary(text: str = "Everything that matters was noted here with care.") -> Completion:
    """A good summary in the wanted form."""
    names = ["Objective", "Rules and preferences", "Requests", "State of the work", "Artifacts", "Findings and errors"]
    return Completion(text="\n".join(f"## {name}\n{text}" for name in names), finish="stop", model="m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One summary request."""

    items: tuple[Item, ...]
    instruction: str
    max_tokens: int
    alone: bool = False


class ScriptedJob:
    """A `Job` whose model says what a script says. `surfaces` are the commits, as (rung, carry)."""

    def __init__(
        self,
        transcript: Transcript,
        *,
        window: int,
        trigger: Literal["pressure", "overflow"] = "pressure",
        answers: Sequence[SAID] = (),
        policy: Policy | None = None,
        goal: int | None = None,
        requested: int | None = None,
        seconds: float = 30.0,
        calibration: float = 1.0,
        summariser: Summariser | None = None,
        waits: bool = True,
    ) -> None:
        self.policy = policy or Policy()
        self.limits: Limits = limits(self.policy, window=window, kind="total", requested=requested)
        self.trigger: Literal["pressure", "overflow"] = trigger
        self.goal = goal if goal is not None else (self.limits.low_water if trigger == "pressure" else self.limits.fit)
        self.seconds_left = seconds
        self.calibration = calibration
        self.summariser, self.waits = summariser, waits
        self.now = raw_projection(transcript)
        self.script = list(answers)
        self._seen: tuple[Projection, View] | None = None
        self.asked: list[Asked] = []
        self.surfaces: list[tuple[str, Carry]] = []
        self.refused: list[str] = []
        self.refuse: Callable[[int], TurnedDown | None] = lambda _: None

    @property
    def view(self) -> View:
        """The conversation as it stands now."""
        now = self.now
        if self._seen is not None and self._seen[0] is now and self._seen[1].policy is self.policy:
            return self._seen[1]
        self._seen = (now, self._look())
        return self._seen[1]

    def _look(self) -> View:
        now = self.now
        return View(
            dialect=CHAT,
            trigger=self.trigger,
            items=now.items,
            tokens=tuple(measured(METER.item(item), self.calibration) for item in now.items),
            units=units(now.items),
            envelope=measured(METER.envelope(now.transcript.envelope), self.calibration),
            fixed=now.fixed,
            goal=self.goal,
            limits=self.limits,
            policy=self.policy,
            carry=now.carry,
            covered=now.covered,
            put=now.put,
            calibration=self.calibration,
            summariser=self.summariser,
            waits=self.waits,
        )

    def grown(self, *messages: dict[str, object]) -> None:
        """The client's next request: the same history, and these messages."""
        body = json.loads(self.now.transcript.body)
        body["messages"] += messages
        split = CHAT.split(json.dumps(body).encode())
        assert split is not None
        more = split.items[len(self.now.transcript.items) :]
        origins = range(len(self.now.transcript.items), len(split.items))
        self.now = changed(
            self.now, transcript=split, items=(*self.now.items, *more), origins=(*self.now.origins, *origins)
        )

    def measure(self, raws: Sequence[bytes]) -> int:
        """Estimated tokens of rendered items."""
        return sum(measured(METER.raw(raw), self.calibration) for raw in raws)

    async def propose(
        self, parts: Sequence[Put | Keep], through: int, *, carry: Carry | None = None, summary: str = "prune"
    ) -> Proposed | TurnedDown:
        """Apply a proposal as the real job would, or refuse it and remember why."""
        view = self.view
        answer = self.refuse(len(self.surfaces) + len(self.refused))
        reason = answer.reason if answer else self._objection(parts, through)
        if reason is not None:
            self.refused.append(reason)
            return answer or TurnedDown(reason=reason)
        plan = replace(self.now, parts, through, CHAT.item, carry=carry or self.now.carry, summary=summary)
        assert plan is not None
        self.now = plan.projection
        gained = view.total - self.view.total
        assert gained > 0, "a replacement frees something"
        self.surfaces.append((summary, plan.surface.carry))
        return Proposed()

    def _objection(self, parts: Sequence[Put | Keep], through: int) -> str | None:
        view = self.view
        if through not in {0, len(view.items), view.fixed} | {stop for _, stop in view.units}:
            return "the cut splits a unit"
        plan = replace(self.now, parts, through, CHAT.item, carry=self.now.carry, summary="")
        if plan is None:
            return "no surface"
        after = view.envelope + sum(measured(METER.item(item), self.calibration) for item in plan.projection.items)
        kept = {item.key for item in plan.projection.items}
        if any(item.facts.role in ("system", "developer") and item.key not in kept for item in view.items):
            return "system text is kept"
        least = view.limits.minimum_gain(view.total) if view.trigger == "pressure" else 1
        problem = CHAT.invalid(plan.projection.items, self.now.transcript.items)
        return problem or ("gain" if view.total - after < least else None)

    async def ask(
        self, items: Sequence[Item], instruction: str, *, max_tokens: int, alone: bool = False
    ) -> Completion | None:
        """What the script says next; None when it has nothing more to say."""
        self.asked.append(Asked(items=tuple(items), instruction=instruction, max_tokens=max_tokens, alone=alone))
        said = self.script.pop(0) if self.script else None
        if isinstance(said, Exception):
            raise said
        return said

    def texts(self) -> list[str]:
        """What each item of the view says, results included."""
        said = [CHAT.said(item.raw) for item in self.now.items]
        return ["\n".join((one.text, *(result.text for result in one.results))) for one in said]
