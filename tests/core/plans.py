"""Replacements as a compactor would plan them, for the tests of the core."""

from __future__ import annotations

from proxy.core.replacement import Replacement, replace
from proxy.core.surface import Carry, Keep, Projection, Put, Surface, project
from proxy.core.transcript import Transcript
from proxy.dialects.chat import CHAT
from tests.transcripts import Message, Stored, calls, result, says, spelt, user

TALK = [user("task"), says("one"), user("two"), says("three"), user("four")]
#: A task, a step, what was made of it, another step.
STEPS = (user("task"), calls("a"), result("a", "long " * 50), says("so"), calls("b"), result("b", "long " * 50))


def stored(plan: Replacement, generation: int = 1, *, retired: bool = False) -> Stored:
    """The entry a commit of this plan would make."""
    return Stored(generation=generation, digest=plan.digest, covered=plan.surface.covered, retired=retired)


def planned(now: Projection, parts: list[Put | Keep], through: int) -> Replacement | None:
    """A plan as a compactor would make it."""
    return replace(now, parts, through, CHAT.item, carry=Carry(), summary="S4")


def certain(now: Projection, parts: list[Put | Keep], through: int) -> Replacement:
    """A plan that must succeed."""
    plan = planned(now, parts, through)
    assert plan is not None
    return plan


def applied(surface: Surface, to: Transcript, generation: int = 1) -> Projection:
    """A surface laid on a transcript it is bound to."""
    found = project(to, surface, CHAT.item, generation=generation, operation="op")
    assert found is not None
    return found


def put(message: Message) -> Put:
    """A rendered item."""
    return Put(spelt(message))


def raws(projection: Projection) -> list[bytes]:
    """What the model sees, item by item."""
    return [item.raw for item in projection.items]


def entry(plan: Replacement) -> Stored:
    """The entry of a plan with all that the ledger holds of it."""
    surface = plan.surface
    return Stored(generation=1, digest=plan.digest, covered=surface.covered, summarised=surface.summarised)
