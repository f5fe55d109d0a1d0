"""What ranks wrote, kept in a table after their pods are gone, within a size: the oldest go first.

It is a cache: every control plane on the same database reads what any leader kept. Lines that the database
does not take are reported in the server's own log and given up.
"""

import asyncio
import logging
import zlib
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.database.database import Database
from adapters.database.tables import rank_logs
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.ports import ContainerRun

# What is too much is dropped down to this share, so that it is not looked for every time.
KEPT_SHARE = 0.95
# Another replica may have kept something, so the size is asked for again after this many writes.
TRUSTED_KEEPS = 50

_log = logging.getLogger("muster")
_SIZE = select(func.coalesce(func.sum(rank_logs.c.bytes), 0))


class DatabaseRankLogs:
    """`bytes_max` bounds what is kept, compressed."""

    def __init__(self, database: Database, bytes_max: int) -> None:
        self._database = database
        self._bytes_max = bytes_max
        self._bytes = 0
        # How often something was kept since the size was asked for; None before the first time.
        self._keeps: int | None = None

    @property
    def size_bytes(self) -> int:
        """As far as this process knows, once it has kept or read something."""
        return self._bytes

    async def keep(self, run: ContainerRun, lines: list[str]) -> None:
        """Keep what a run wrote, in place of what was kept of it before."""
        if not lines:
            return
        body = await asyncio.to_thread(_packed, lines)
        if len(body) > self._bytes_max:
            return
        try:
            await self._database.write(lambda c: self._keep(c, run, body))
        except (LogUnavailable, LogCorrupt) as error:
            _log.warning("what rank %d of job %s wrote is not kept: %s", run.rank, run.job, error)

    async def lines(
        self, job: str, attempt: int, rank: int, lines_max: int, container: str = ""
    ) -> list[str]:
        """The last lines of a rank's runs in an attempt, one run after the other.

        Without a container's name, those of the first container of the pod.
        """
        logs = rank_logs.c
        one = logs.container == container if container else logs.place == 0
        bodies = select(logs.body).where(_of(job, attempt, rank), one).order_by(logs.incarnation)

        async def read(connection: AsyncConnection) -> list[bytes]:
            await self._measure(connection)
            return list(await connection.scalars(bodies))

        kept = [line for body in await self._database.read(read) for line in _unpacked(body)]
        return kept[-lines_max:] if lines_max > 0 else []

    async def containers(self, job: str, attempt: int, rank: int) -> list[str]:
        """The containers of a rank of which something is kept, in the order of their pod."""
        name = rank_logs.c.container
        names = select(name).where(_of(job, attempt, rank)).group_by(name)
        in_order = names.order_by(func.min(rank_logs.c.place))
        return list(await self._database.read(lambda c: c.scalars(in_order)))

    async def forget(self, job: str) -> None:
        """Drop what is kept of a job that was deleted."""

        async def drop(connection: AsyncConnection) -> None:
            await connection.execute(delete(rank_logs).where(rank_logs.c.job == job))
            self._bytes = await _size(connection)

        try:
            await self._database.write(drop)
        except (LogUnavailable, LogCorrupt) as error:
            _log.warning("what job %s wrote is kept although it was deleted: %s", job, error)

    async def _keep(self, connection: AsyncConnection, run: ContainerRun, body: bytes) -> None:
        await self._measure(connection)
        values = run._asdict()
        same = and_(*(c == values[c.name] for c in _RUN))
        await connection.execute(delete(rank_logs).where(same))
        await connection.execute(insert(rank_logs).values(**values, bytes=len(body), body=body))
        await self._trim(connection, len(body))

    async def _measure(self, connection: AsyncConnection) -> None:
        if self._keeps is None:
            self._bytes, self._keeps = await _size(connection), 0

    async def _trim(self, connection: AsyncConnection, added: int) -> None:
        self._bytes, self._keeps = self._bytes + added, (self._keeps or 0) + 1
        if self._keeps >= TRUSTED_KEEPS or self._bytes > self._bytes_max:
            self._bytes, self._keeps = await _size(connection), 0
        if self._bytes > self._bytes_max:
            await connection.execute(_without_oldest(int(self._bytes_max * KEPT_SHARE)))
            self._bytes = await _size(connection)


# What names a run; its container's name belongs to its place.
_RUN = [rank_logs.c[name] for name in ContainerRun._fields if name != "container"]


def _of(job: str, attempt: int, rank: int) -> ColumnElement[bool]:
    return and_(rank_logs.c.job == job, rank_logs.c.attempt == attempt, rank_logs.c.rank == rank)


def _without_oldest(bytes_max: int) -> Any:
    """Delete a log and all before it if it and those after it have more than `bytes_max` bytes."""
    number = rank_logs.c.number
    upto = func.sum(rank_logs.c.bytes).over(order_by=number.desc()).label("upto")
    sums = select(number, upto).subquery()
    last = select(func.max(sums.c.number)).where(sums.c.upto > bytes_max).scalar_subquery()
    return delete(rank_logs).where(number <= last)


async def _size(connection: AsyncConnection) -> int:
    return int(await connection.scalar(_SIZE) or 0)


def _packed(lines: list[str]) -> bytes:
    return zlib.compress("\n".join(lines).encode(), 3)


def _unpacked(body: bytes) -> list[str]:
    return zlib.decompress(body).decode().split("\n")
