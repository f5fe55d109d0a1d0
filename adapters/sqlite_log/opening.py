"""Opening the file: as a log that we understand, or not at all."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters.sqlite_log.failures import code_of, translated
from controlplane.codec import GENESIS
from controlplane.errors import LogUnavailable

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


def connect(path: Path, read_only: bool, lock_s_max: float) -> sqlite3.Connection:
    path = path.absolute()
    try:
        return _connect_somehow(path, read_only, lock_s_max)
    except sqlite3.Error as error:
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise LogUnavailable(
                f"{path} is no SQLite database; name another file, "
                "or take a backup if it used to be a Muster log"
            ) from error
        raise translated(error, path) from error


def _connect_somehow(path: Path, read_only: bool, lock_s_max: float) -> sqlite3.Connection:
    if not read_only:
        return _connect_as(path, "mode=rwc", read_only, lock_s_max)
    try:
        return _connect_as(path, "mode=ro", read_only, lock_s_max)
    except sqlite3.OperationalError as error:
        # Even who only reads leaves locks beside the file, and read-only media have no room for
        # them. Nobody else can be writing there, so the file can be read without.
        out_of_reach = code_of(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
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
    with transaction(connection, "BEGIN"):
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
    with transaction(connection):
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


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some failures, a full disk for one, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
