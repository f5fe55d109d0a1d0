"""Who of several control planes on one log may lead.

An election is a courtesy: it keeps control planes from taking the lead from each other, and tells
the next one when it is its turn. What keeps two of them from writing is the log's own fence; so an
election that errs costs a change of the leader, and never a job.
"""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Protocol

from cli.complaints import Complaint
from cli.settings import reason

LOOK_EVERY_S = 0.5


class Election(Protocol):
    async def won(self) -> None:
        """Returns once this one may lead."""

    async def lost(self) -> None:
        """Returns when it may lead no longer; called after it has won."""

    async def resign(self) -> None:
        """Lets the others know that it leads no longer; harmless if it did not."""


class FileElection:
    """For control planes on one machine with one SQLite file: whoever holds the lock beside it.

    The system frees the lock when its holder ends, however that happens.
    """

    def __init__(self, path: Path, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._path = path
        self._look_every_s = look_every_s
        self._handle: int | None = None

    async def won(self) -> None:
        while not self._taken():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(self._look_every_s)

    def _taken(self) -> bool:
        lock = self._path.with_name(self._path.name + ".lock")
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Complaint(f"the lock {lock} cannot be used: {reason(error)}") from None
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
        # Nobody can take the lock away.
        await asyncio.Event().wait()

    async def resign(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
