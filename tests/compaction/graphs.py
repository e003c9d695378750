"""Random chat conversations that an upstream would accept: tool graphs of every shape, odd items among them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.compaction.scripted import calls, result, says, user

Messages = list[dict[str, object]]

_SIZES = st.sampled_from([0, 1, 40, 700, 3_000, 12_000])
_NAMES = st.sampled_from(["read_file", "bash", "write_file"])
_OPENINGS = st.sampled_from(["", "Error: ", "line\n" * 40])


@st.composite
def conversations(draw: st.DrawFn) -> Messages:
    """A user message, then steps and talk in any order; perhaps a call at the end that waits for its result."""
    found: Messages = [user("Do the task. Always keep it tidy.")]
    for at in range(draw(st.integers(1, 14))):
        found += _KINDS[draw(st.sampled_from(sorted(_KINDS)))](draw, at)
    return found


def _text(draw: st.DrawFn, at: int) -> str:
    return draw(_OPENINGS) + f"text {at}\n" + "x y z\n" * (draw(_SIZES) // 6)


def _step(draw: st.DrawFn, at: int) -> Messages:
    ids = [f"c{at}_{n}" for n in range(draw(st.integers(1, 3)))]
    wanted = [(id_, draw(_NAMES), {"path": f"src/{id_}.py"}) for id_ in ids]
    answered = draw(st.permutations(ids))
    return [calls(*wanted), *(result(id_, _text(draw, at)) for id_ in answered)]


def _same_id(draw: st.DrawFn, at: int) -> Messages:
    return [calls(("again", draw(_NAMES), {"path": "src/again.py"})), result("again", _text(draw, at))]


_KINDS: dict[str, Callable[[st.DrawFn, int], Messages]] = {
    "step": _step,
    "step again": _step,
    "an id used again": _same_id,
    "user": lambda draw, at: [user(_text(draw, at))],
    "assistant": lambda draw, at: [says(_text(draw, at))],
    "system": lambda _, at: [{"role": "system", "content": f"Note {at}."}],
    "developer": lambda _, at: [{"role": "developer", "content": f"Note {at}."}],
    "empty": lambda *_: [says("")],
}
