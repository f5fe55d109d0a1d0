"""One open database: its engines, its transactions and its errors.

A call runs in a task of its own that is shielded from the caller: a caller that is cancelled leaves a
transaction that ends by itself, never a connection in the middle of one. `close` waits for those tasks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from controlplane.model.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.model.rows import Row

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]


class Backend(Protocol):
    """What differs between SQLite and PostgreSQL."""

    # INSERT with `on_conflict_do_update`, which SQLAlchemy has for each dialect.
    insert: Callable[..., Any]

    def translated(self, error: Exception) -> LogUnavailable | LogCorrupt | None:
        """What an exception of the driver or of SQLAlchemy means; None if it is from neither."""

    def payload_bytes(self, payload: ColumnElement[Any]) -> ColumnElement[Any]:
        """The payload of an event as the bytes that were hashed."""

    async def insert_events(self, connection: AsyncConnection, rows: Sequence[Row]) -> None:
        """Insert rows by the driver's bulk call, inside the transaction of `connection`."""

    async def lock_schema(self, connection: AsyncConnection) -> None:
        """Let no other process create or upgrade tables until the transaction ends."""

    async def mark_as_ours(self, connection: AsyncConnection) -> None:
        """Record in a new database that it belongs to Muster."""


class Database:
    """Open it with `adapters.database.opening.open_database`."""

    def __init__(
        self, backend: Backend, *, reader: AsyncEngine, writer: AsyncEngine | None
    ) -> None:
        self.backend = backend
        self._reader = reader
        # None when the database was opened to read only.
        self._writer = writer
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """The result of `work` on a connection; raises LogUnavailable and LogCorrupt."""
        return await self._shielded(self._in_connection(work))

    async def write(self, work: Work[T]) -> T:
        """The result of `work` in a transaction, which is durable once this returns."""
        return await self._shielded(self._in_transaction(work))

    async def _shielded(self, call: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            call.close()
            raise LogUnavailable(f"{self.backend} was closed")
        task = asyncio.create_task(call)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _in_connection(self, work: Work[T]) -> T:
        try:
            async with self._reader.connect() as connection:
                return await work(connection)
        except Exception as error:
            raise self._translated(error) from error

    async def _in_transaction(self, work: Work[T]) -> T:
        if self._writer is None:
            raise LogUnavailable(f"{self.backend} was opened to only read the log")
        try:
            async with self._writer.begin() as connection:
                return await work(connection)
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, (LogConflict, LogCorrupt, LogUnavailable)):
            return error
        return self.backend.translated(error) or error

    async def close(self) -> None:
        """Wait for the calls that run, refuse further ones, and close every connection."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running)
        # SQLite's last connection folds the write-ahead log into the file, which needs a writer.
        await self._reader.dispose()
        if self._writer is not None:
            await self._writer.dispose()
