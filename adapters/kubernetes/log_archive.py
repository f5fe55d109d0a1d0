"""What ranks wrote, kept after their pods are gone: a file of a bounded size, the oldest go first."""

import asyncio
import sqlite3
import zlib
from pathlib import Path
from typing import NamedTuple

_SCHEMA = """
CREATE TABLE IF NOT EXISTS logs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  job TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  body BLOB NOT NULL,
  UNIQUE (job, attempt, rank, incarnation)
)
"""


class Run(NamedTuple):
    """One run of one rank."""

    job: str
    attempt: int
    rank: int
    incarnation: int


class LogArchive:
    """`bytes_max` bounds what is kept, compressed. The file is a cache: without it, logs are gone
    with their pods, and nothing else is."""

    def __init__(self, path: Path | str, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # Used by one thread at a time, under the lock, though not always by the same one.
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(_SCHEMA)
        self._bytes = int(self._one("SELECT coalesce(sum(bytes), 0) FROM logs"))
        self._lock = asyncio.Lock()

    def close(self) -> None:
        self._db.close()

    async def keep(self, run: Run, lines: list[str]) -> None:
        """Keeps what a run wrote, in place of what was kept of it before."""
        if not lines:
            return
        async with self._lock:
            await asyncio.to_thread(self._keep, run, lines)

    async def lines(self, job: str, attempt: int, rank: int, lines_max: int) -> list[str]:
        """The last lines of a rank's runs in an attempt, the runs one after the other."""
        async with self._lock:
            return await asyncio.to_thread(self._lines, job, attempt, rank, lines_max)

    async def forget(self, job: str) -> None:
        """A job that was deleted leaves nothing behind."""
        async with self._lock:
            await asyncio.to_thread(self._forget, job)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def _keep(self, run: Run, lines: list[str]) -> None:
        body = zlib.compress("\n".join(lines).encode(), 3)
        if len(body) > self._bytes_max:
            return
        with self._db:
            self._db.execute("BEGIN")
            self._drop("job = ? AND attempt = ? AND rank = ? AND incarnation = ?", run)
            self._db.execute(
                "INSERT INTO logs (job, attempt, rank, incarnation, bytes, body)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*run, len(body), body),
            )
            self._bytes += len(body)
            while self._bytes > self._bytes_max:
                self._drop("number = (SELECT min(number) FROM logs)", ())

    def _lines(self, job: str, attempt: int, rank: int, lines_max: int) -> list[str]:
        rows = self._db.execute(
            "SELECT body FROM logs WHERE job = ? AND attempt = ? AND rank = ? ORDER BY incarnation",
            (job, attempt, rank),
        )
        found = [line for (body,) in rows for line in zlib.decompress(body).decode().split("\n")]
        return found[-lines_max:] if lines_max > 0 else []

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
