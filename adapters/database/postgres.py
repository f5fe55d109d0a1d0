"""PostgreSQL: how sessions are set up, what its errors mean, the bulk insert and notifications.

The tables are in one schema of the database, which the search path names. Connect directly or through a
pooler in session mode: statements are prepared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import ColumnElement, NullPool, Text, cast, event, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from adapters.database.database import Database
from adapters.database.tables import events
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.rows import Row

CONNECTIONS_MAX = 6

ADVICE = (
    (asyncpg.DiskFullError, "its disk is full; make room and start again"),
    (asyncpg.ReadOnlySQLTransactionError, "it is a standby; name the primary server"),
    (asyncpg.InvalidAuthorizationSpecificationError, "it does not know this user or password"),
    (asyncpg.InvalidCatalogNameError, "the database does not exist; create it first"),
    (asyncpg.InsufficientPrivilegeError, "this user lacks a right; grant it"),
    (asyncpg.TooManyConnectionsError, "it has no connection left; allow more of them"),
    (asyncpg.SyntaxOrAccessError, "the schema holds something else; name another one"),
    (asyncpg.PostgresError, "it failed"),
    (asyncpg.InterfaceError, "the connection failed; check that it runs and start again"),
    # Raised by a connection that was cut off in the middle of an answer.
    (asyncpg.InternalClientError, "the connection failed; check that it runs and start again"),
    (PoolTimeout, "all connections of this process are in use; it answers too slowly"),
    (OSError, "it cannot be reached; check that it runs and that the address is right"),
)

_COLUMNS = [column.name for column in events.c]
_PAYLOAD = _COLUMNS.index("payload")


class Postgres:
    def __init__(self, url: str, schema: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self.schema = schema
        self.channel = f"{schema}_log"
        self.insert = insert

    def __str__(self) -> str:
        # Without the password.
        where = urlsplit(self._url)
        return f"PostgreSQL at {where.hostname}:{where.port or 5432}{where.path}"

    def engine(
        self, application: str = "muster", settings: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncEngine:
        arguments = {
            # asyncpg reads the URL itself: it understands every parameter that libpq does.
            "dsn": self._url,
            "timeout": self._timeout_s,
            "command_timeout": self._timeout_s,
            "server_settings": {
                "application_name": application,
                "search_path": quoted(self.schema),
                # The fence relies on a waiting UPDATE seeing what it waited for.
                "default_transaction_isolation": "read committed",
                **(settings or {}),
            },
        }
        engine = create_async_engine("postgresql+asyncpg://", connect_args=arguments, **options)
        event.listen(engine.sync_engine, "connect", _commit_durably)
        return engine

    def translated(self, error: Exception) -> LogUnavailable | LogCorrupt | None:
        cause: BaseException = error
        if isinstance(error, DBAPIError) and error.orig is not None:
            cause = error.orig.__cause__ or error.orig
        if isinstance(cause, (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)):
            return LogCorrupt(0, f"{self} is damaged; restore a backup ({cause})")
        for kind, advice in ADVICE:
            if isinstance(cause, kind):
                return LogUnavailable(f"{self}: {advice} ({str(cause) or type(cause).__name__})")
        return None

    def payload_bytes(self, payload: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.convert_to(cast(payload, Text), "UTF8")

    async def insert_events(self, connection: AsyncConnection, rows: Sequence[Row]) -> None:
        values = [(*row[:_PAYLOAD], row.payload.decode(), *row[_PAYLOAD + 1 :]) for row in rows]
        raw = await connection.get_raw_connection()
        driver: Any = raw.driver_connection
        await driver.copy_records_to_table(events.name, records=values, columns=_COLUMNS)
        await driver.execute("SELECT pg_notify($1, '')", self.channel)

    async def lock_schema(self, connection: AsyncConnection) -> None:
        lock = func.pg_advisory_xact_lock(func.hashtextextended(self.channel, 0))
        await connection.execute(select(lock))

    async def mark_as_ours(self, connection: AsyncConnection) -> None:
        """Nothing: the schema has a name of its own."""

    async def create_schema(self, connection: AsyncConnection) -> None:
        # Asked first, because "if not exists" needs the right to create what exists already.
        missing = select(func.to_regnamespace(quoted(self.schema)).is_(None))
        if await connection.scalar(missing):
            await connection.execute(text(f"CREATE SCHEMA {quoted(self.schema)}"))


class Listener:
    """A session that calls back after appends of any process."""

    def __init__(self, engine: AsyncEngine, session: AsyncConnection) -> None:
        self._engine = engine
        self._session = session

    @classmethod
    async def start(cls, backend: Postgres, wake: Callable[[], None]) -> "Listener":
        engine = backend.engine(poolclass=NullPool)
        try:
            session = await engine.connect()
            raw = await session.get_raw_connection()
            driver: Any = raw.driver_connection
            await driver.add_listener(backend.channel, lambda *_: wake())
        except Exception as error:
            raise backend.translated(error) or error from error
        return cls(engine, session)

    async def close(self) -> None:
        # The driver warns of a session that goes back to a pool while it listens.
        await self._session.invalidate()
        await self._session.close()
        await self._engine.dispose()


async def connect(url: str, *, schema: str, read_only: bool, timeout_s: float) -> Database:
    """The database at this URL; its schema is created unless it exists, without tables."""
    backend = Postgres(url, schema, timeout_s)
    engine = backend.engine(
        pool_size=CONNECTIONS_MAX, max_overflow=0, pool_timeout=timeout_s, pool_use_lifo=True
    )
    reader = engine.execution_options(isolation_level="AUTOCOMMIT")
    database = Database(backend, reader=reader, writer=None if read_only else engine)
    try:
        encoding = await database.read(
            lambda connection: connection.scalar(text("SHOW server_encoding"))
        )
        if encoding != "UTF8":
            raise LogUnavailable(f"{backend} is encoded in {encoding}; create a database in UTF8")
        if not read_only:
            await database.write(lambda connection: _create_schema(backend, connection))
    except BaseException:
        await database.close()
        raise
    return database


async def _create_schema(backend: Postgres, connection: AsyncConnection) -> None:
    # Replicas that start together must not create it twice.
    await backend.lock_schema(connection)
    await backend.create_schema(connection)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _commit_durably(connection: Any, _: object) -> None:
    """An append that is acknowledged must survive a crash, regardless of the server's default."""
    connection.run_async(
        lambda driver: driver.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
    )
