"""How a script of an SDK is run: `python -m tests.clients.sdk.NAME FOLDER FIRST LAST LANE...`.

The base URL comes by the variable that the SDK itself reads.

Every lane is one way to use the SDK, with a conversation of its own that it keeps in a file between turns. All lanes
run at once; each prints one line of JSON a turn and stops at the first turn that fails.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import pages

DESCRIPTION = "Read one page of the notes."
SYSTEM = "You keep the notes of a billing project. Read pages before you answer, and answer in one sentence."
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a lane sits: the model's and credential's name, the file of its history."""

    model: str
    file: Path

    @property
    def key(self) -> str:
        """Its own credential, so that lanes are different tenants."""
        return f"sk-{self.model}"

    def load(self) -> list[Any]:
        """The history so far."""
        return json.loads(self.file.read_text()) if self.file.exists() else []

    def save(self, history: list[Any]) -> None:
        """Keep it."""
        self.file.write_text(json.dumps(history))


#: Says one thing to the model and gives what it finally answers.
Turn = Callable[[Seat, str], Awaitable[str]]


def read_page(number: int) -> str:
    """Read one page of the notes."""
    return pages.page(number)


def main(lanes: Mapping[str, Turn]) -> None:
    """Run the lanes named on the command line."""
    folder, first, last, *names = sys.argv[1:]
    asyncio.run(_all({name: lanes[name] for name in names}, Path(folder), range(int(first), int(last) + 1)))


async def _all(lanes: Mapping[str, Turn], folder: Path, turns: range) -> None:
    await asyncio.gather(*(_lane(name, turn, folder, turns) for name, turn in lanes.items()))


async def _lane(name: str, turn: Turn, folder: Path, turns: range) -> None:
    seat = Seat(name, folder / f"{name}.json")
    for number in turns:
        try:
            said = await turn(seat, pages.prompt(number))
        except Exception as error:  # noqa: BLE001 - whatever an SDK raises is what its user sees
            print(
                json.dumps({"lane": name, "turn": number, "error": f"{type(error).__name__}: {error}"[:300]}),
                flush=True,
            )
            return
        print(json.dumps({"lane": name, "turn": number, "said": said}), flush=True)
