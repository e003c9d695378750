"""File locks that the kernel releases when their holder dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

__all__ = ["FileLock"]

POLL = 0.02


class FileLock:
    """One `flock` on one file. Never waits inside the kernel: asyncio must go on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free, or change how it is held; return whether it is held now."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        return True

    async def wait(self) -> None:
        """Take the lock, however long that takes; the caller sets the deadline."""
        while not self.take():  # noqa: ASYNC110 - the holder is another process: only the kernel knows
            await asyncio.sleep(POLL)

    def hand_over(self) -> int:
        """Return the descriptor for a child process to inherit: the child then holds the lock too."""
        if self._descriptor is None:
            raise RuntimeError("the lock is not held")
        return self._descriptor

    def release(self) -> None:
        """Let go here; a child that inherited the descriptor still holds the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
