"""Leader election among several control planes on one log.

An election avoids needless changes of the leader: it keeps control planes from taking the lead from
each other, and starts the next one when the leader ends. The log's own fence keeps two of them from
writing; so an election that errs costs a change of the leader, and never a job.
"""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Protocol

from cli.errors import CliError
from cli.settings import reason

LOOK_EVERY_S = 0.5


class Election(Protocol):
    async def won(self) -> None:
        """Return once this control plane may lead."""

    async def lost(self) -> None:
        """Return when it may lead no longer; called after `won`."""

    async def resign(self) -> None:
        """Give up the lead; harmless if it did not lead."""


class FileElection:
    """For control planes on one machine with one SQLite file: the holder of a lock file leads.

    The system frees the lock when its holder ends, however that happens.
    """

    def __init__(self, path: Path, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._path = path
        self._look_every_s = look_every_s
        self._handle: int | None = None

    async def won(self) -> None:
        while not self._taken():  # noqa: ASYNC110 - nothing notifies
            await asyncio.sleep(self._look_every_s)

    def _taken(self) -> bool:
        lock = self._path.with_name(self._path.name + ".lock")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CliError(f"the lock {lock} cannot be used: {reason(error)}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle
        return True

    async def lost(self) -> None:
        # The lock cannot be taken away.
        await asyncio.Event().wait()

    async def resign(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
