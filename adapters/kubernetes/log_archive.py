"""What ranks wrote, kept after their pods are gone, within a size: the oldest go first."""

import asyncio
import sqlite3
import zlib
from pathlib import Path
from typing import NamedTuple, Protocol

# A file of another form is begun anew: it is a cache.
_FORM = 2
# Containers have the places 0, 1, ... in their pod, and those that run before them -1, -2, ...
_SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  job TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  place INTEGER NOT NULL,
  container TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  body BLOB NOT NULL,
  UNIQUE (job, attempt, rank, incarnation, place)
)
"""


class Run(NamedTuple):
    """One run of one rank, in one container of it."""

    job: str
    attempt: int
    rank: int
    incarnation: int
    place: int = 0
    container: str = ""


class LogArchive(Protocol):
    """A cache: without it, logs are gone with their pods, and nothing else is."""

    async def keep(self, run: Run, lines: list[str]) -> None:
        """Keeps what a run wrote, in place of what was kept of it before."""

    async def lines(
        self, job: str, attempt: int, rank: int, lines_max: int, container: str = ""
    ) -> list[str]:
        """The last lines of a rank's runs in an attempt, the runs one after the other.

        Of the container of this name; without one, of the first in the pod.
        """

    async def containers(self, job: str, attempt: int, rank: int) -> list[str]:
        """The containers of a rank of which something is kept, as they stood in their pod."""

    async def forget(self, job: str) -> None:
        """A job that was deleted leaves nothing behind."""

    async def close(self) -> None: ...


def packed(lines: list[str]) -> bytes:
    """As they are kept."""
    return zlib.compress("\n".join(lines).encode(), 3)


def unpacked(body: bytes) -> list[str]:
    return zlib.decompress(body).decode().split("\n")


class FileLogArchive:
    """In a SQLite file; `bytes_max` bounds what is kept, compressed."""

    def __init__(self, path: Path | str, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # Used by one thread at a time, under the lock, though not always by the same one.
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        if self._one("PRAGMA user_version") != _FORM:
            self._db.execute("DROP TABLE IF EXISTS logs")
            self._db.execute(f"PRAGMA user_version = {_FORM}")
        self._db.execute(_SCHEMA)
        self._bytes = int(self._one("SELECT coalesce(sum(bytes), 0) FROM logs"))
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        self._db.close()

    async def keep(self, run: Run, lines: list[str]) -> None:
        if not lines:
            return
        async with self._lock:
            await asyncio.to_thread(self._keep, run, lines)

    async def lines(
        self, job: str, attempt: int, rank: int, lines_max: int, container: str = ""
    ) -> list[str]:
        async with self._lock:
            return await asyncio.to_thread(self._lines, job, attempt, rank, lines_max, container)

    async def containers(self, job: str, attempt: int, rank: int) -> list[str]:
        async with self._lock:
            return await asyncio.to_thread(self._containers, job, attempt, rank)

    async def forget(self, job: str) -> None:
        async with self._lock:
            await asyncio.to_thread(self._forget, job)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def _keep(self, run: Run, lines: list[str]) -> None:
        body = packed(lines)
        if len(body) > self._bytes_max:
            return
        with self._db:
            self._db.execute("BEGIN")
            same = "job = ? AND attempt = ? AND rank = ? AND incarnation = ? AND place = ?"
            self._drop(same, run[:-1])
            self._db.execute(
                "INSERT INTO logs (job, attempt, rank, incarnation, place, container, bytes, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*run, len(body), body),
            )
            self._bytes += len(body)
            while self._bytes > self._bytes_max:
                self._drop("number = (SELECT min(number) FROM logs)", ())

    def _lines(
        self, job: str, attempt: int, rank: int, lines_max: int, container: str
    ) -> list[str]:
        which = "container = ?" if container else "place = ?"
        rows = self._db.execute(
            "SELECT body FROM logs WHERE job = ? AND attempt = ? AND rank = ?"
            f" AND {which} ORDER BY incarnation",
            (job, attempt, rank, container or 0),
        )
        found = [line for (body,) in rows for line in unpacked(body)]
        return found[-lines_max:] if lines_max > 0 else []

    def _containers(self, job: str, attempt: int, rank: int) -> list[str]:
        rows = self._db.execute(
            "SELECT container FROM logs WHERE job = ? AND attempt = ? AND rank = ?"
            " GROUP BY container ORDER BY min(place)",
            (job, attempt, rank),
        )
        return [name for (name,) in rows]

    def _forget(self, job: str) -> None:
        with self._db:
            self._db.execute("BEGIN")
            self._drop("job = ?", (job,))

    def _drop(self, which: str, values: tuple[object, ...]) -> None:
        gone = int(self._one(f"SELECT coalesce(sum(bytes), 0) FROM logs WHERE {which}", values))
        self._db.execute(f"DELETE FROM logs WHERE {which}", values)
        self._bytes -= gone

    def _one(self, query: str, values: tuple[object, ...] = ()) -> int:
        return int(self._db.execute(query, values).fetchone()[0])
