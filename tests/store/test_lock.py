"""File locks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.store.lock import FileLock


def test_one_holder_or_many_sharers(tmp_path: Path) -> None:
    """Whoever holds it alone keeps everyone else out."""
    one, two, three = (FileLock(tmp_path / "l") for _ in range(3))
    assert one.take(shared=True)
    assert two.take(shared=True)
    assert not three.take()
    two.release()
    assert one.take()
    assert not two.take(shared=True)
    one.release()
    assert three.take()


async def test_waiting_ends_when_the_holder_lets_go(tmp_path: Path) -> None:
    """Without blocking the loop."""
    one, two = FileLock(tmp_path / "l"), FileLock(tmp_path / "l")
    assert one.take()
    waiting = asyncio.create_task(two.wait())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    one.release()
    await asyncio.wait_for(waiting, 1)


def test_a_child_that_inherits_it_holds_it_for_its_life(tmp_path: Path) -> None:
    """The kernel lets go when the child dies, however it dies."""
    mine, probe = FileLock(tmp_path / "l"), FileLock(tmp_path / "l")
    assert mine.take()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[mine.hand_over()])
    mine.release()
    assert not probe.take()
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    assert probe.take()


def test_only_a_held_lock_can_be_handed_over(tmp_path: Path) -> None:
    """Anything else is a mistake in the code."""
    with pytest.raises(RuntimeError):
        FileLock(tmp_path / "l").hand_over()
