"""The log in PostgreSQL, for several replicas of the control plane: one leads, the others follow.

Fence, number and insert are one statement. The lock on the one row of `head` puts appends in
order and is let go only after the commit, so positions have no gaps and become visible in order:
whoever reads what is after a position misses nothing. A stale leader's epoch matches no row.

When the connection is lost during an append, nobody knows whether it was committed. That too is
`LogUnavailable`: the engine stops, and the next one finds in the log what is true.

Connect directly or through a pooler in session mode: statements are prepared.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]

from controlplane.codec import GENESIS, Row, to_rows
from controlplane.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.events import Recorded
from controlplane.ports import Head, Snapshot, spare_snapshots

READERS_MAX = 4

SCHEMA_VERSION = 1
# The type json keeps every byte as it was written, and the chain depends on that; jsonb does not.
TABLES = f"""
    CREATE TABLE events (
        position bigint PRIMARY KEY,
        at double precision NOT NULL,
        stream text NOT NULL,
        type text NOT NULL,
        version integer NOT NULL,
        payload json NOT NULL,
        cause text NOT NULL,
        actor text NOT NULL,
        hash bytea NOT NULL
    );
    CREATE TABLE head (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        position bigint NOT NULL,
        hash bytea NOT NULL,
        epoch bigint NOT NULL,
        schema_version integer NOT NULL
    );
    INSERT INTO head VALUES (true, 0, '\\x{GENESIS.hex()}', 0, {SCHEMA_VERSION});
    CREATE TABLE snapshots (
        position bigint PRIMARY KEY,
        body bytea NOT NULL,
        hash bytea NOT NULL
    );
"""

HEAD = "SELECT position, hash, epoch FROM head"
LEAD = "UPDATE head SET epoch = epoch + 1 RETURNING position, hash, epoch"
LAST = "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"

# One row comes back if the fence let the batch through, and none if it changed nothing. The batch
# travels as one array of rows: nine arrays of columns take a third longer.
APPEND = """
    WITH fence AS (
        UPDATE head SET position = $4, hash = $5
        WHERE epoch = $1 AND position = $2 AND hash = $3
        RETURNING 1
    ), added AS (
        INSERT INTO events SELECT row.* FROM fence, unnest($6::events[]) AS row
    )
    SELECT pg_notify($7, '') FROM fence
"""

ROWS = """
    SELECT position, at, stream, type, version,
        convert_to(payload::text, 'UTF8'), cause, actor, hash
    FROM events
"""
READ = f"{ROWS} WHERE position > $1 ORDER BY position LIMIT $2"
READ_STREAM = f"{ROWS} WHERE stream = $1 AND position > $2 AND position <= $3 ORDER BY position"

SAVE_SNAPSHOT = """
    INSERT INTO snapshots VALUES ($1, $2, $3)
    ON CONFLICT (position) DO UPDATE SET body = excluded.body, hash = excluded.hash
"""
DROP_SNAPSHOTS = "DELETE FROM snapshots WHERE position = ANY($1::bigint[])"
LATEST_SNAPSHOT = """
    SELECT position, body, hash FROM snapshots
    WHERE position <= coalesce($1, position) ORDER BY position DESC LIMIT 1
"""

ADVICE = (
    (asyncpg.DiskFullError, "its disk is full; make room and start again"),
    (asyncpg.ReadOnlySQLTransactionError, "it is a standby; name the primary server"),
    (asyncpg.InvalidAuthorizationSpecificationError, "it does not know this user or password"),
    (asyncpg.InvalidCatalogNameError, "the database does not exist; create it first"),
    (asyncpg.InsufficientPrivilegeError, "this user lacks a right; grant it"),
    (asyncpg.TooManyConnectionsError, "it has no connection left; allow more of them"),
    (asyncpg.SyntaxOrAccessError, "the schema holds something else; name another one"),
    (asyncpg.PostgresError, "it failed"),
    (asyncpg.InterfaceError, "the connection failed; see that it runs and start again"),
    (asyncpg.InternalClientError, "the connection failed; see that it runs and start again"),
    (OSError, "it cannot be reached; see that it runs and that the address is right"),
)


class PostgresLog:
    def __init__(self, server: "_Server", readers: asyncpg.Pool) -> None:
        self._server = server
        self._readers = readers
        self._writer: asyncpg.Connection | None = None
        self._listener: asyncpg.Connection | None = None
        self._writing = asyncio.Lock()
        # The head as this one left it, so that an append need not ask first.
        self._tail: Head | None = None

    @classmethod
    async def open(
        cls, url: str, *, schema: str = "muster", read_only: bool = False, timeout_s: float = 30.0
    ) -> "PostgresLog":
        """The log in this schema of the database, which is created unless it is there."""
        server = _Server(url, schema, timeout_s)
        with server.errors_translated():
            connection = await server.connect()
            try:
                await _prepare(connection, server, read_only)
            finally:
                await connection.close()
            return cls(server, await server.pool())

    async def lead(self) -> Head:
        async with self._writing:
            self._tail = None
            with self._server.errors_translated():
                writer = await self._connected_writer()
                async with writer.transaction():
                    head = _as_head(await writer.fetchrow(LEAD))
                    _check_end(head, *(await writer.fetchrow(LAST) or (0, GENESIS)))
            self._tail = head
            return head

    async def head(self) -> Head:
        with self._server.errors_translated():
            return _as_head(await self._readers.fetchrow(HEAD))

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if not batch:
            return
        async with self._writing:
            # Whatever goes wrong from here on, what we knew of the head is out of date.
            tail, self._tail = self._tail, None
            first = batch[0].position
            if tail is None or (tail.epoch, tail.position) != (epoch, first - 1):
                tail = await self.head()
            rows = to_rows(batch, tail.hash)
            assert [row[0] for row in rows] == list(range(first, first + len(rows)))
            if not await self._insert(rows, epoch, tail.hash):
                head = await self.head()
                raise LogConflict(
                    f"epoch {epoch} may not append at {first}: "
                    f"epoch {head.epoch} leads and the log ends at {head.position}"
                )
            self._tail = Head(rows[-1][0], rows[-1][-1], epoch)

    async def _insert(self, rows: list[Row], epoch: int, previous: bytes) -> bool:
        batch = [(*row[:5], row[5].decode(), *row[6:]) for row in rows]
        with self._server.errors_translated():
            writer = await self._connected_writer()
            passed = await writer.fetchrow(
                APPEND,
                epoch,
                rows[0][0] - 1,
                previous,
                rows[-1][0],
                rows[-1][-1],
                batch,
                self._server.channel,
            )
        return passed is not None

    async def _connected_writer(self) -> asyncpg.Connection:
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._server.connect()
        return self._writer

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        with self._server.errors_translated():
            return list(map(tuple, await self._readers.fetch(READ, after, limit)))

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        with self._server.errors_translated():
            return list(map(tuple, await self._readers.fetch(READ_STREAM, stream, after, upto)))

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        digest = _snapshot_hash(*snapshot)
        with self._server.errors_translated():
            async with self._readers.acquire() as connection, connection.transaction():
                await connection.execute(SAVE_SNAPSHOT, *snapshot, digest)
                there = await connection.fetch("SELECT position, octet_length(body) FROM snapshots")
                spare = spare_snapshots(dict(map(tuple, there)))
                await connection.execute(DROP_SNAPSHOTS, spare)

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        with self._server.errors_translated():
            while row := await self._readers.fetchrow(LATEST_SNAPSHOT, at_most):
                position, body, digest = row
                if digest == _snapshot_hash(position, body):
                    return Snapshot(position, body)
                # A snapshot is a cache, so a damaged one is as good as none.
                at_most = position - 1
        return None

    async def listen(self, wake: Callable[[], None]) -> None:
        """Has `wake` called after appends, whoever made them.

        It is a hint for followers, who must look from time to time all the same: nobody calls it
        while the connection is lost.
        """
        with self._server.errors_translated():
            self._listener = await self._server.connect()
            await self._listener.add_listener(self._server.channel, lambda *_: wake())

    async def close(self) -> None:
        with self._server.errors_translated():
            for connection in (self._writer, self._listener, self._readers):
                if connection is not None:
                    await connection.close()


class _Server:
    """Where the log is: how to connect to it, and what to say when it fails."""

    def __init__(self, url: str, schema: str, timeout_s: float) -> None:
        self.schema = '"' + schema.replace('"', '""') + '"'
        self.channel = f"{schema}_log"
        self._url = url
        self._settings: dict[str, Any] = {
            "timeout": timeout_s,
            "command_timeout": timeout_s,
            "server_settings": {
                "application_name": "muster",
                "search_path": self.schema,
                # The fence relies on a waiting UPDATE seeing what it waited for.
                "default_transaction_isolation": "read committed",
            },
        }

    async def connect(self) -> asyncpg.Connection:
        connection = await asyncpg.connect(self._url, **self._settings)
        # An append that is acknowledged must survive a crash, whatever the server's default is.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection

    async def pool(self) -> asyncpg.Pool:
        # Nothing here changes a session, so the round trip that would reset it is saved.
        return await asyncpg.create_pool(
            self._url, min_size=1, max_size=READERS_MAX, reset=_leave_as_it_is, **self._settings
        )

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        try:
            yield
        except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError) as error:
            raise LogCorrupt(0, f"{self} is damaged; restore a backup ({error})") from error
        except tuple(kind for kind, _ in ADVICE) as error:
            advice = next(text for kind, text in ADVICE if isinstance(error, kind))
            reason = str(error) or type(error).__name__
            raise LogUnavailable(f"{self}: {advice} ({reason})") from error

    def __str__(self) -> str:
        # Without the password.
        where = urlsplit(self._url)
        return f"PostgreSQL at {where.hostname}:{where.port or 5432}{where.path}"


async def _leave_as_it_is(connection: asyncpg.Connection) -> None: ...


async def _prepare(connection: asyncpg.Connection, server: _Server, read_only: bool) -> None:
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise LogUnavailable(f"{server} is encoded in {encoding}; create a database in UTF8")
    if not read_only:
        async with connection.transaction():
            # Replicas that start together must not create the tables twice.
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", server.channel
            )
            await _create_missing(connection, server.schema)
    version = await connection.fetchval("SELECT schema_version FROM head")
    if version != SCHEMA_VERSION:
        raise LogUnavailable(
            f"{server} has schema version {version}, and this release of Muster knows "
            f"{SCHEMA_VERSION}; use the release that wrote it, or a newer one"
        )


async def _create_missing(connection: asyncpg.Connection, schema: str) -> None:
    # Asked first, because "if not exists" wants the right to create what is already there.
    if await connection.fetchval("SELECT to_regnamespace($1) IS NULL", schema):
        await connection.execute(f"CREATE SCHEMA {schema}")
    if await connection.fetchval("SELECT to_regclass('head') IS NULL"):
        await connection.execute(TABLES)


def _as_head(row: asyncpg.Record | None) -> Head:
    if row is None:
        raise LogCorrupt(0, "the log's head is missing; restore a backup")
    return Head(*row)


def _check_end(head: Head, position: int, digest: bytes) -> None:
    """Nobody leads a log that has lost its end, or has more than its head knows of."""
    if position != head.position:
        bad = min(position, head.position) + 1
        raise LogCorrupt(bad, f"the last event is {position}, but the head says {head.position}")
    if digest != head.hash:
        raise LogCorrupt(position, "its hash is not the one that the head has")


def _snapshot_hash(position: int, body: bytes) -> bytes:
    digest = hashlib.sha256(b"%d " % position)
    digest.update(body)
    return digest.digest()
