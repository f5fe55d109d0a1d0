"""The log as one SQLite file: the embedded default.

One thread owns the connection that writes and another the one that reads, so a reader never waits
for a disk that is being synced. Number, fence and insert are one transaction under the file's
write lock; it is on the disk before `append` returns, and nobody sees it earlier (WAL,
synchronous=FULL). A task that is cancelled while it appends may have appended all the same.

SQLite's exceptions stop here. A row that cannot be read ends a read before it, and is what the
next read raises, so the good part of a damaged log can always be had.
"""

import hashlib
import sqlite3
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from adapters.sqlite_log.columns import read_pages
from adapters.sqlite_log.failures import is_damage
from adapters.sqlite_log.lane import Lane
from adapters.sqlite_log.opening import transaction
from controlplane.codec import GENESIS, Row, to_rows
from controlplane.errors import LogConflict, LogCorrupt
from controlplane.events import Recorded
from controlplane.page import Page
from controlplane.ports import Head, Snapshot, spare_snapshots

# The casts give every reader the same types, whatever a damaged file holds. For the payload it also
# saves the string that a decoder would only have to turn back into bytes.
ROWS = """
    SELECT position, at, CAST(stream AS TEXT), CAST(type AS TEXT), version,
        CAST(payload AS BLOB), CAST(cause AS TEXT), CAST(actor AS TEXT), hash
    FROM events
"""
READ = f"{ROWS} WHERE position > ? ORDER BY position LIMIT ?"
# There is no index of streams, which would slow down every append: SQLite looks through ten million
# rows a second.
READ_STREAM = f"{ROWS} WHERE stream = ? AND position > ? AND position <= ? ORDER BY position"

# Each call into SQLite lets go of the interpreter's lock, and beside a busy event loop it can take
# 5 ms to get it back. So many rows share one statement: of these sizes, the largest that fits.
# 100 rows of 9 values stay below the 999 values that even an old SQLite takes.
INSERTS = {
    size: "INSERT INTO events VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * size)
    for size in (100, 10, 1)
}


FENCE = "UPDATE head SET position = ?, hash = ? WHERE epoch = ? AND position = ? AND hash = ?"


class SqliteLog:
    def __init__(self, *, writer: "Lane", reader: "Lane") -> None:
        self._writer = writer
        self._reader = reader
        # The head as this one left it, so that an append need not ask first. Only the writer's
        # thread looks at it.
        self._tail: Head | None = None

    @classmethod
    async def open(
        cls, path: str | Path, *, read_only: bool = False, lock_s_max: float = 5.0
    ) -> "SqliteLog":
        """The log in this file, which is created unless it is there.

        With `read_only` it may be a log that another process is writing: that one is not disturbed.
        """
        writer = await Lane.open(Path(path), read_only=read_only, lock_s_max=lock_s_max)
        try:
            reader = await Lane.open(Path(path), read_only=True, lock_s_max=lock_s_max)
        except BaseException:
            await writer.close()
            raise
        return cls(writer=writer, reader=reader)

    async def lead(self) -> Head:
        return await self._writer.run(self._lead)

    def _lead(self, connection: sqlite3.Connection) -> Head:
        self._tail = None
        self._tail = _lead(connection)
        return self._tail

    async def head(self) -> Head:
        return await self._reader.run(_head)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if batch:
            await self._writer.run(self._append, batch, epoch)

    def _append(
        self, connection: sqlite3.Connection, batch: Sequence[Recorded], epoch: int
    ) -> None:
        # Whatever goes wrong from here on, what we knew of the head is out of date.
        tail, self._tail = self._tail, None
        if tail is None or (tail.epoch, tail.position) != (epoch, batch[0].position - 1):
            tail = _head(connection)
        self._tail = _append(connection, batch, epoch, tail.hash)

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return await self._reader.run(_read, after, limit)

    async def read_pages(self, after: int, limit: int) -> Sequence[Page]:
        return await self._reader.run(read_pages, after, limit)

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        return await self._reader.run(_read_stream, stream, after, upto)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        await self._writer.run(_save_snapshot, snapshot)

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        return await self._reader.run(_latest_snapshot, at_most)

    async def close(self) -> None:
        # Whoever closes last folds the write-ahead log into the file, and only a writer can.
        await self._reader.close()
        await self._writer.close()


def _lead(connection: sqlite3.Connection) -> Head:
    with transaction(connection):
        head = _head(connection)
        _check_end(connection, head)
        connection.execute("UPDATE head SET epoch = ?", (head.epoch + 1,))
    return head._replace(epoch=head.epoch + 1)


def _check_end(connection: sqlite3.Connection, head: Head) -> None:
    """Nobody leads a log that has lost its end, or has more than its head knows of."""
    last = "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"
    position, digest = connection.execute(last).fetchone() or (0, GENESIS)
    if position != head.position:
        bad = min(position, head.position) + 1
        raise LogCorrupt(bad, f"the last event is {position}, but the head says {head.position}")
    if digest != head.hash:
        raise LogCorrupt(position, "its hash is not the one that the head has")


def _head(connection: sqlite3.Connection) -> Head:
    row = connection.execute("SELECT position, hash, epoch FROM head").fetchone()
    if row is None or [type(field) for field in row] != [int, bytes, int]:
        raise LogCorrupt(0, f"the log's head is damaged: it is {row}")
    return Head(*row)


def _append(
    connection: sqlite3.Connection, batch: Sequence[Recorded], epoch: int, previous: bytes
) -> Head:
    """Adds a batch behind a row with the hash `previous`, and returns the new head."""
    # Encoding and hashing need no lock, so others are not kept waiting for them.
    rows = to_rows(batch, previous)
    before, after = rows[0][0] - 1, rows[-1][0]
    assert after - before == len(rows), "a batch has no holes"
    with transaction(connection):
        values = (after, rows[-1][-1], epoch, before, previous)
        if connection.execute(FENCE, values).rowcount == 0:
            head = _head(connection)
            raise LogConflict(
                f"epoch {epoch} may not append at {before + 1}: "
                f"epoch {head.epoch} leads and the log ends at {head.position}"
            )
        _insert(connection, rows)
    return Head(after, rows[-1][-1], epoch)


def _insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    start = 0
    for size, statement in INSERTS.items():
        while start + size <= len(rows):
            some = rows[start : start + size]
            values: list[object] = list(chain.from_iterable(some))
            # Text for the people who look into the file with other programs.
            values[5::9] = [row[5].decode() for row in some]
            # For bytes the sqlite3 module first looks whether an adapter is registered.
            values[8::9] = [bytearray(row[8]) for row in some]
            connection.execute(statement, values)
            start += size


def _read(connection: sqlite3.Connection, after: int, limit: int) -> list[Row]:
    try:
        return connection.execute(READ, (after, limit)).fetchall()
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        rows = _rows_before_damage(connection, after, limit)
        if not rows:
            raise LogCorrupt(after + 1, f"the row cannot be read: {error}") from error
        return rows


def _read_stream(connection: sqlite3.Connection, stream: str, after: int, upto: int) -> list[Row]:
    return connection.execute(READ_STREAM, (stream, after, upto)).fetchall()


def _rows_before_damage(connection: sqlite3.Connection, after: int, limit: int) -> list[Row]:
    rows: list[Row] = []
    try:
        for row in connection.execute(READ, (after, limit)):
            rows.append(row)  # noqa: PERF402 - what came before the failure must be kept
    except sqlite3.Error:
        pass
    return rows


def _save_snapshot(connection: sqlite3.Connection, snapshot: Snapshot) -> None:
    position, body = snapshot
    with transaction(connection):
        connection.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            (position, body, _snapshot_hash(position, body)),
        )
        there = dict(connection.execute("SELECT position, length(body) FROM snapshots"))
        connection.executemany(
            "DELETE FROM snapshots WHERE position = ?", [(p,) for p in spare_snapshots(there)]
        )


def _latest_snapshot(connection: sqlite3.Connection, at_most: int | None) -> Snapshot | None:
    newest_first = (
        "SELECT position, body, hash FROM snapshots "
        "WHERE position <= ifnull(?, position) ORDER BY position DESC"
    )
    try:
        for position, body, digest in connection.execute(newest_first, (at_most,)):
            if isinstance(body, bytes) and digest == _snapshot_hash(position, body):
                return Snapshot(position, body)
    except sqlite3.Error as error:
        # A snapshot is a cache, so a damaged one is as good as none.
        if not is_damage(error):
            raise
    return None


def _snapshot_hash(position: int, body: bytes) -> bytes:
    digest = hashlib.sha256(b"%d " % position)
    digest.update(body)
    return digest.digest()
