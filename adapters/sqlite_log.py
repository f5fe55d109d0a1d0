"""The log as one SQLite file: the embedded default.

One thread owns the connection that writes and another the one that reads, so a reader never waits
for a disk that is being synced. Number, fence and insert are one transaction under the file's
write lock; it is on the disk before `append` returns, and nobody sees it earlier (WAL,
synchronous=FULL). A task that is cancelled while it appends may have appended all the same.

SQLite's exceptions stop here. A row that cannot be read ends a read before it, and is what the
next read raises, so the good part of a damaged log can always be had.
"""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar, TypeVarTuple

from controlplane.codec import GENESIS, Row, to_rows
from controlplane.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.events import Recorded
from controlplane.ports import Head, Snapshot

SNAPSHOTS_KEPT = 8

# "Must" in ASCII: tells our files from other programs' databases.
APPLICATION_ID = 0x4D757374
SCHEMA_VERSION = 1
SCHEMA = (
    """
    CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        stream TEXT NOT NULL,
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        payload TEXT NOT NULL,
        cause TEXT NOT NULL,
        actor TEXT NOT NULL,
        hash BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE head (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        position INTEGER NOT NULL,
        hash BLOB NOT NULL,
        epoch INTEGER NOT NULL
    )
    """,
    f"INSERT INTO head VALUES (1, 0, x'{GENESIS.hex()}', 0)",
    """
    CREATE TABLE snapshots (
        position INTEGER PRIMARY KEY,
        body BLOB NOT NULL,
        hash BLOB NOT NULL
    )
    """,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

# The casts give every reader the same types, whatever a damaged file holds. For the payload it also
# saves the string that a decoder would only have to turn back into bytes.
READ = """
    SELECT position, at, CAST(stream AS TEXT), CAST(type AS TEXT), version,
        CAST(payload AS BLOB), CAST(cause AS TEXT), CAST(actor AS TEXT), hash
    FROM events WHERE position > ? ORDER BY position LIMIT ?
"""

# Each call into SQLite lets go of the interpreter's lock, and beside a busy event loop it can take
# 5 ms to get it back. So many rows share one statement: of these sizes, the largest that fits.
# 100 rows of 9 values stay below the 999 values that even an old SQLite takes.
INSERTS = {
    size: "INSERT INTO events VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * size)
    for size in (100, 10, 1)
}

ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; make room and start again",
    sqlite3.SQLITE_BUSY: "another program keeps it locked; stop that one or wait for its end",
    sqlite3.SQLITE_READONLY: (
        "it cannot be written; let this user write the file and its folder, or only read the log"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened; see that it is a file in a folder that exists, "
        "and that this user may read and write both"
    ),
    sqlite3.SQLITE_IOERR: "the disk reports an error; see the kernel's log before you start again",
}
# SQLITE_ERROR means that tables are missing: what we ask for never changes.
DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_ERROR,
}

T = TypeVar("T")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")


class SqliteLog:
    def __init__(self, *, writer: "_Lane", reader: "_Lane") -> None:
        self._writer = writer
        self._reader = reader

    @classmethod
    async def open(
        cls, path: str | Path, *, read_only: bool = False, lock_s_max: float = 5.0
    ) -> "SqliteLog":
        """The log in this file, which is created unless it is there.

        With `read_only` it may be a log that another process is writing: that one is not disturbed.
        """
        writer = await _Lane.open(Path(path), read_only=read_only, lock_s_max=lock_s_max)
        try:
            reader = await _Lane.open(Path(path), read_only=True, lock_s_max=lock_s_max)
        except BaseException:
            await writer.close()
            raise
        return cls(writer=writer, reader=reader)

    async def lead(self) -> Head:
        return await self._writer.run(_lead)

    async def head(self) -> Head:
        return await self._reader.run(_head)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if batch:
            await self._writer.run(_append, batch, epoch)

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return await self._reader.run(_read, after, limit)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        await self._writer.run(_save_snapshot, snapshot)

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        return await self._reader.run(_latest_snapshot, at_most)

    async def close(self) -> None:
        # Whoever closes last folds the write-ahead log into the file, and only a writer can.
        await self._reader.close()
        await self._writer.close()


class _Lane:
    """A connection, and the one thread that uses it: one call after the other, as they came.

    A result goes straight to the event loop. An executor would pass it on through a second future
    and that one's locks, which takes as long as appending five events.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        # A daemon: a log that nobody closed must not keep the process alive.
        Thread(target=self._serve, name=f"log {path.name}", daemon=True).start()

    @classmethod
    async def open(cls, path: Path, *, read_only: bool, lock_s_max: float) -> "_Lane":
        return cls(path, await asyncio.to_thread(_connect, path, read_only, lock_s_max))

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def run(self, work: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        if self._closed:
            raise LogUnavailable(f"{self._path} was closed")
        return await self._call(work, *args)

    async def _call(self, work: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = work(self._connection, *args)
            except sqlite3.Error as error:
                failure = _translated(error, self._path)
                failure.__cause__ = error
                _tell(loop, done, done.set_exception, failure)
            except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
                _tell(loop, done, done.set_exception, error)
            else:
                _tell(loop, done, done.set_result, result)

        self._calls.put(call)
        return await done

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._call(sqlite3.Connection.close)
            self._calls.put(None)


def _tell(
    loop: asyncio.AbstractEventLoop,
    done: asyncio.Future[T],
    settle: Callable[[V], None],
    outcome: V,
) -> None:
    """Has the loop settle the future, unless the caller has gone away."""

    def settle_if_awaited() -> None:
        if not done.done():
            settle(outcome)

    try:
        loop.call_soon_threadsafe(settle_if_awaited)
    except RuntimeError:
        # The loop is closed, and with it everyone who could have waited.
        pass


def _translated(error: sqlite3.Error, path: Path) -> LogUnavailable | LogCorrupt:
    if _is_damage(error):
        return LogCorrupt(
            0,
            f"{path} is damaged ({error}); keep a copy, save with `muster log export` what can "
            "be read, and go on from that or from a backup",
        )
    return LogUnavailable(f"{path}: {ADVICE.get(_code(error), 'SQLite failed')} ({error})")


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in DAMAGE


def _code(error: sqlite3.Error) -> int:
    # Text that is not UTF-8 is noticed by the sqlite3 module, which gives its error no code.
    codeless = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else 0
    code = getattr(error, "sqlite_errorcode", codeless)
    # The low byte is the kind, the rest its circumstances.
    return int(code) & 0xFF


# ---------------------------------------------------------------- opening


def _connect(path: Path, read_only: bool, lock_s_max: float) -> sqlite3.Connection:
    path = path.absolute()
    try:
        return _connect_somehow(path, read_only, lock_s_max)
    except sqlite3.Error as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise LogUnavailable(
                f"{path} is no SQLite database; name another file, "
                "or take a backup if it used to be a Muster log"
            ) from error
        raise _translated(error, path) from error


def _connect_somehow(path: Path, read_only: bool, lock_s_max: float) -> sqlite3.Connection:
    if not read_only:
        return _connect_as(path, "mode=rwc", read_only, lock_s_max)
    try:
        return _connect_as(path, "mode=ro", read_only, lock_s_max)
    except sqlite3.OperationalError as error:
        # Even who only reads leaves locks beside the file, and read-only media have no room for
        # them. Nobody else can be writing there, so the file can be read without.
        out_of_reach = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not out_of_reach or path.with_name(path.name + "-wal").exists():
            raise
        return _connect_as(path, "mode=ro&immutable=1", read_only, lock_s_max)


def _connect_as(path: Path, how: str, read_only: bool, lock_s_max: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?{how}",
        uri=True,
        timeout=lock_s_max,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _prepare(connection, path, read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    with _transaction(connection, "BEGIN"):
        is_new = _is_new(connection, path)
    if read_only:
        if is_new:
            raise LogUnavailable(f"{path} is empty: no log was ever written to it")
        return
    # Only now, because somebody else's database must stay as it is.
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise LogUnavailable(f"{path} lies on a file system without shared memory; use a local one")
    connection.execute("PRAGMA synchronous = FULL")
    # macOS acknowledges an fsync before the disk has the data, unless it is asked like this.
    connection.execute("PRAGMA fullfsync = ON")
    # Taking the write lock also tells whether this user may write at all.
    with _transaction(connection):
        if _is_new(connection, path):
            for statement in SCHEMA:
                connection.execute(statement)


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty; raises if it holds anything but a log that we understand."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (application, version, tables) == (0, 0, 0):
        return True
    if application != APPLICATION_ID:
        raise LogUnavailable(f"{path} is another program's database; name another file")
    if version != SCHEMA_VERSION:
        raise LogUnavailable(
            f"{path} has schema version {version}, and this release of Muster knows "
            f"{SCHEMA_VERSION}; use the release that wrote it, or a newer one"
        )
    return False


# ---------------------------------------------------------------- what the threads do


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some failures, a full disk for one, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _lead(connection: sqlite3.Connection) -> Head:
    with _transaction(connection):
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


def _append(connection: sqlite3.Connection, batch: Sequence[Recorded], epoch: int) -> None:
    first = batch[0].position
    with _transaction(connection):
        head = _head(connection)
        rows = to_rows(batch, head.hash)
        assert [row[0] for row in rows] == list(range(first, first + len(rows)))
        fence = "UPDATE head SET position = ?, hash = ? WHERE epoch = ? AND position = ?"
        fenced = connection.execute(fence, (rows[-1][0], rows[-1][-1], epoch, first - 1))
        if fenced.rowcount == 0:
            raise LogConflict(
                f"epoch {epoch} may not append at {first}: "
                f"epoch {head.epoch} leads and the log ends at {head.position}"
            )
        _insert(connection, rows)


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
        if not _is_damage(error):
            raise
        rows = _rows_before_damage(connection, after, limit)
        if not rows:
            raise LogCorrupt(after + 1, f"the row cannot be read: {error}") from error
        return rows


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
    with _transaction(connection):
        connection.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)",
            (position, body, _snapshot_hash(position, body)),
        )
        connection.execute(
            "DELETE FROM snapshots WHERE position NOT IN "
            "(SELECT position FROM snapshots ORDER BY position DESC LIMIT ?)",
            (SNAPSHOTS_KEPT,),
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
        if not _is_damage(error):
            raise
    return None


def _snapshot_hash(position: int, body: bytes) -> bytes:
    digest = hashlib.sha256(b"%d " % position)
    digest.update(body)
    return digest.digest()
