"""The event log in a database.

Fence and insert are one transaction. The fence is an UPDATE of the one row of `head` that matches only the
leader's epoch and the end of the log as the leader knows it: a stale leader's UPDATE matches no row, and its
append changes nothing. The lock on that row is released after the commit, so positions have no gaps and
become visible in order: a reader that asks for what follows a position misses nothing.

When a connection is lost during an append, it is unknown whether the append was committed. That too is
`LogUnavailable`: the engine stops, and the next engine reads from the log what is true. A task that is
cancelled while it appends may have appended all the same.

A row that cannot be read ends a read before it, and the next read raises `LogCorrupt`, so the good part of
a damaged log can always be read.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Text, bindparam, cast, select, type_coerce, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import NullType

from adapters.database import snapshots
from adapters.database.database import Backend, Database
from adapters.database.opening import open_database
from adapters.database.postgres import Listener, Postgres
from adapters.database.tables import events, head
from controlplane.log.codec import to_rows
from controlplane.model.errors import LogConflict, LogCorrupt
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import Head, StateSnapshot

# Values come as the driver gives them: a damaged file may hold any type in any column.
_HEAD = select(*(type_coerce(head.c[name], NullType()) for name in Head._fields))
_LAST = (
    select(events.c.position, type_coerce(events.c.hash, NullType()))
    .order_by(events.c.position.desc())
    .limit(1)
)
_FENCE = (
    update(head)
    .where(
        head.c.epoch == bindparam("leader"),
        head.c.position == bindparam("before"),
        head.c.hash == bindparam("previous"),
    )
    .values(position=bindparam("last"), hash=bindparam("digest"))
)
_LEAD = update(head).values(epoch=head.c.epoch + 1)


class DatabaseLog:
    """The log in an open database, which `close` closes too."""

    def __init__(self, database: Database) -> None:
        self._database = database
        rows = _rows(database.backend)
        after = events.c.position > bindparam("after")
        in_order = rows.where(after).order_by(events.c.position)
        self._page = in_order.limit(bindparam("rows_max"))
        self._stream = in_order.where(
            events.c.stream == bindparam("stream"), events.c.position <= bindparam("upto")
        )
        self._writing = asyncio.Lock()
        # The head as this log left it, so that an append need not ask first.
        self._tail: Head | None = None
        self._listener: Listener | None = None

    @classmethod
    async def open(cls, where: str | Path, **options: Any) -> "DatabaseLog":
        """The log at a URL or in a SQLite file; the options are those of `open_database`."""
        return cls(await open_database(where, **options))

    async def lead(self) -> Head:
        async with self._writing:
            self._tail = None
            self._tail = await self._database.write(_lead)
            return self._tail

    async def head(self) -> Head:
        return await self._database.read(_head)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if not batch:
            return
        async with self._writing:
            # If anything fails from here on, the known head is out of date.
            tail, self._tail = self._tail, None
            before = batch[0].position - 1
            if tail is None or (tail.epoch, tail.position) != (epoch, before):
                tail = await self.head()
            # Encoding and hashing need no lock of the database.
            rows = to_rows(batch, tail.hash)
            after = Head(rows[-1].position, rows[-1].hash, epoch)
            assert after.position - before == len(rows), "a batch has no holes"

            async def insert(connection: AsyncConnection) -> None:
                await _move_head(connection, before=before, previous=tail.hash, after=after)
                await self._database.backend.insert_events(connection, rows)

            await self._database.write(insert)
            self._tail = after

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        values = {"after": after, "rows_max": limit}
        try:
            return await self._database.read(lambda c: _fetch(c, self._page, values))
        except LogCorrupt as damage:
            if limit <= 1:
                raise LogCorrupt(after + 1, f"the row cannot be read: {damage}") from damage
        # The rows before the damaged one are still good: a shorter page may end before it.
        return await self.read(after, limit // 2)

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        values = {"stream": stream, "after": after, "upto": upto}
        return await self._database.read(lambda c: _fetch(c, self._stream, values))

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        insert = self._database.backend.insert
        await self._database.write(lambda c: snapshots.save(c, snapshot, insert))

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        try:
            return await self._database.read(lambda c: snapshots.latest(c, at_most))
        except LogCorrupt:
            # A snapshot is a cache, so a damaged one is as good as none.
            return None

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` after appends of any process, where the database can notify.

        It is a hint for followers, which must look from time to time all the same: no call is made while
        the connection is lost, and SQLite never makes one.
        """
        if isinstance(self._database.backend, Postgres):
            self._listener = await Listener.start(self._database.backend, wake)

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        await self._database.close()


def _rows(backend: Backend) -> Any:
    """A SELECT of rows as `Row` has them, with these types even in a damaged file."""
    columns: list[ColumnElement[Any]] = []
    for column in events.c:
        wanted: ColumnElement[Any] = column
        if column is events.c.payload:
            wanted = backend.payload_bytes(column)
        elif isinstance(column.type, Text):
            wanted = cast(column, Text)
        columns.append(type_coerce(wanted, NullType()))
    return select(*columns)


async def _fetch(
    connection: AsyncConnection, statement: Any, values: Mapping[str, object]
) -> list[Row]:
    return list(map(Row._make, await connection.execute(statement, values)))


async def _head(connection: AsyncConnection) -> Head:
    row: Any = (await connection.execute(_HEAD)).first()
    if row is None:
        raise LogCorrupt(0, "the log's head is missing; restore a backup")
    if [type(value) for value in row] != [int, bytes, int]:
        raise LogCorrupt(0, f"the log's head is damaged: it is {row}; restore a backup")
    return Head(*row)


async def _lead(connection: AsyncConnection) -> Head:
    # The UPDATE comes first: it waits for an append of another leader, and its row stays locked.
    await connection.execute(_LEAD)
    now = await _head(connection)
    await _check_end(connection, now)
    return now


async def _check_end(connection: AsyncConnection, now: Head) -> None:
    """Refuse to lead a log that has lost its end, or that goes on behind its head."""
    position, digest = (await connection.execute(_LAST)).first() or (0, GENESIS)
    if position != now.position:
        bad = min(position, now.position) + 1
        raise LogCorrupt(bad, f"the last event is {position}, but the head is at {now.position}")
    if digest != now.hash:
        raise LogCorrupt(position, "its hash is not the one that the head has")


async def _move_head(
    connection: AsyncConnection, *, before: int, previous: bytes, after: Head
) -> None:
    """Pass the fence; raises LogConflict if another leader moved the head or took the lead."""
    values = {
        "leader": after.epoch,
        "before": before,
        "previous": previous,
        "last": after.position,
        "digest": after.hash,
    }
    if (await connection.execute(_FENCE, values)).rowcount == 0:
        now = await _head(connection)
        raise LogConflict(
            f"epoch {after.epoch} may not append at {before + 1}: "
            f"epoch {now.epoch} leads and the log ends at {now.position}"
        )
