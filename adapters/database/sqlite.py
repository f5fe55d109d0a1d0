"""SQLite: how a file is opened, what its errors mean, and the bulk insert.

A database is one file. One connection writes and up to `READERS_MAX` read, each in a thread of aiosqlite,
so a reader never waits for a disk that is being synced. A write transaction begins with BEGIN IMMEDIATE and
is on the disk when it is committed (WAL, synchronous=FULL); no reader sees it earlier.
"""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiosqlite
from sqlalchemy import URL, AsyncAdaptedQueuePool, ColumnElement, LargeBinary, cast, event
from sqlalchemy.dialects.sqlite import dialect, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from adapters.database.database import Database
from adapters.database.tables import events
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.rows import Row

MEMORY = ":memory:"
READERS_MAX = 4
# "Must" in ASCII: distinguishes our files from the databases of other programs.
APPLICATION_ID = 0x4D757374
# None of these changes the file, which may turn out to belong to another program. macOS acknowledges an
# fsync before the disk has the data unless fullfsync is on.
SESSION = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
)

ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; make room and start again",
    sqlite3.SQLITE_BUSY: "another program keeps it locked; stop that program or wait for its end",
    sqlite3.SQLITE_READONLY: (
        "it cannot be written; let this user write the file and its folder, or only read the log"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened; check that it is a file in a folder that exists, "
        "and that this user may read and write both"
    ),
    sqlite3.SQLITE_IOERR: "the disk reports an error; see the kernel's log before you start again",
}
# SQLITE_ERROR means that tables are missing: our statements never change.
DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_ERROR,
}

# What a call of SQLAlchemy or of the driver may raise.
FAILURES = (DBAPIError, sqlite3.Error, UnicodeDecodeError)

_INSERT = str(insert(events).compile(dialect=dialect(paramstyle="qmark")))
_PAYLOAD = list(events.c).index(events.c.payload)


class Sqlite:
    def __init__(self, path: Path | str) -> None:
        self._path = path
        self.insert = insert

    def __str__(self) -> str:
        return str(self._path)

    def translated(self, error: Exception) -> LogUnavailable | LogCorrupt | None:
        cause = _driver_error(error)
        if cause is None:
            return None
        code = _code(cause)
        if code in DAMAGE:
            return LogCorrupt(
                0,
                f"{self} is damaged ({cause}); keep a copy, save with `muster log export` what can "
                "be read, and continue from that or from a backup",
            )
        return LogUnavailable(f"{self}: {ADVICE.get(code, 'SQLite failed')} ({cause})")

    def payload_bytes(self, payload: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(payload, LargeBinary)

    async def insert_events(self, connection: AsyncConnection, rows: Sequence[Row]) -> None:
        # As text, for people who look into the file with other programs.
        values = [(*row[:_PAYLOAD], row.payload.decode(), *row[_PAYLOAD + 1 :]) for row in rows]
        raw = await connection.get_raw_connection()
        driver: Any = raw.driver_connection
        await driver.executemany(_INSERT, values)

    async def lock_schema(self, connection: AsyncConnection) -> None:
        """Nothing: the transaction has the write lock of the file."""

    async def mark_as_ours(self, connection: AsyncConnection) -> None:
        await connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


async def connect(path: Path | str, *, read_only: bool, lock_s_max: float) -> Database:
    """The database in this file, which is created unless it exists; its schema is not looked at.

    With `read_only` it may be a file that another process writes: that process is not disturbed.
    """
    if path == MEMORY:
        # One connection, since each would have a database of its own.
        url = URL.create("sqlite+aiosqlite", database=MEMORY)
        engine = _engine(
            url, writes=True, poolclass=AsyncAdaptedQueuePool, pool_size=1, max_overflow=0
        )
        return Database(Sqlite(MEMORY), reader=engine, writer=engine)
    file = Path(os.path.abspath(path))  # noqa: ASYNC240 - it does not touch the disk
    backend = Sqlite(file)
    try:
        if read_only:
            reader = await _reader_of(file, lock_s_max)
            return Database(backend, reader=reader, writer=None)
        writer = _file_engine(file, "rwc", lock_s_max, writes=True)
        try:
            await _identified(writer, file)
            await _write_ahead(writer, file)
        except BaseException:
            await writer.dispose()
            raise
        return Database(backend, reader=_file_engine(file, "ro", lock_s_max), writer=writer)
    except FAILURES as error:
        cause = _driver_error(error)
        if cause is not None and _code(cause) == sqlite3.SQLITE_NOTADB:
            raise LogUnavailable(
                f"{file} is no SQLite database; name another file, "
                "or restore a backup if it used to be a Muster log"
            ) from error
        raise backend.translated(error) or error from error


async def _reader_of(file: Path, lock_s_max: float) -> AsyncEngine:
    try:
        return await _identified_reader(_file_engine(file, "ro", lock_s_max), file)
    except FAILURES as error:
        # Even a reader leaves locks next to the file, and read-only media have no room for them. No other
        # process can be writing there, so the file can be read without locks.
        cause = _driver_error(error)
        out_of_reach = cause and _code(cause) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not out_of_reach or file.with_name(file.name + "-wal").exists():
            raise
    return await _identified_reader(_file_engine(file, "ro", lock_s_max, immutable="1"), file)


async def _identified_reader(reader: AsyncEngine, file: Path) -> AsyncEngine:
    try:
        if await _identified(reader, file):
            raise LogUnavailable(f"{file} is empty: no log was ever written to it")
    except BaseException:
        await reader.dispose()
        raise
    return reader


def _file_engine(
    file: Path, mode: str, lock_s_max: float, *, writes: bool = False, **query: str
) -> AsyncEngine:
    url = URL.create(
        "sqlite+aiosqlite", database=file.as_uri(), query={"uri": "true", "mode": mode, **query}
    )
    size = 1 if writes else READERS_MAX
    return _engine(url, writes=writes, timeout=lock_s_max, pool_size=size, max_overflow=0)


async def _driver(*where: Any, **options: Any) -> aiosqlite.Connection:
    """A connection of the driver with the session's settings.

    When this raises, the connection is closed and its thread has ended. aiosqlite alone would leave the thread
    behind, which then reports to an event loop that may be closed.
    """
    connection = aiosqlite.connect(*where, **options)
    # An open database must not keep the process from exiting.
    connection._thread.daemon = True
    try:
        _ = await connection
        for statement in SESSION:
            await connection.execute(statement)
    except BaseException:
        await connection.close()
        await asyncio.to_thread(connection._thread.join)
        raise
    return connection


def _engine(url: URL, *, writes: bool, timeout: float = 5.0, **options: Any) -> AsyncEngine:
    # Without an isolation level, the sqlite3 module begins no transaction by itself.
    arguments = {"timeout": timeout, "isolation_level": None, "async_creator_fn": _driver}
    # Every call to the driver waits for its thread, so a connection whose transaction has ended is not rolled
    # back once more when it returns to the pool.
    engine = create_async_engine(url, connect_args=arguments, pool_reset_on_return=None, **options)

    if writes:
        # Taking the write lock at once also shows whether this user may write at all.
        @event.listens_for(engine.sync_engine, "begin")
        def begin(connection: Any) -> None:
            driver = connection.connection.dbapi_connection
            driver.run_async(lambda aiosqlite: aiosqlite.execute("BEGIN IMMEDIATE"))

    return engine


async def _identified(engine: AsyncEngine, file: Path) -> bool:
    """Whether the file is empty; raises LogUnavailable if it belongs to another program."""
    application = await _answer(engine, "PRAGMA application_id")
    tables = await _answer(engine, "SELECT count(*) FROM sqlite_master")
    if (application, tables) != (0, 0) and application != APPLICATION_ID:
        raise LogUnavailable(f"{file} is another program's database; name another file")
    return bool(tables == 0)


async def _write_ahead(engine: AsyncEngine, file: Path) -> None:
    if await _answer(engine, "PRAGMA journal_mode = WAL") != "wal":
        raise LogUnavailable(f"{file} is on a file system without shared memory; use a local one")


async def _answer(engine: AsyncEngine, statement: str) -> Any:
    """The only value of a statement that runs outside a transaction."""
    async with engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        ((value,),) = await driver.execute_fetchall(statement)
        return value


def _driver_error(error: BaseException) -> sqlite3.Error | UnicodeDecodeError | None:
    # The sqlite3 module cannot decode SQLite's message if it quotes damaged text.
    if isinstance(error, DBAPIError):
        error = error.orig or error
    return error if isinstance(error, (sqlite3.Error, UnicodeDecodeError)) else None


def _code(error: sqlite3.Error | UnicodeDecodeError) -> int:
    # The sqlite3 module itself notices text that is not UTF-8, and gives its error no code.
    codeless = 0
    if isinstance(error, (sqlite3.OperationalError, UnicodeDecodeError)):
        codeless = sqlite3.SQLITE_CORRUPT
    code = getattr(error, "sqlite_errorcode", codeless)
    # The low byte is the kind, the rest its circumstances.
    return int(code) & 0xFF
