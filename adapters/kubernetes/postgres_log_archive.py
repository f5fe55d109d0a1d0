"""What ranks wrote, in a table beside a PostgreSQL log: every replica finds what any leader kept.

It is a cache as the file is. Keeping something that the database does not take is told in the
server's own log and given up; who asks while it does not answer learns that.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]

from adapters.kubernetes.log_archive import Run, packed, unpacked
from controlplane.errors import LogUnavailable

ANSWER_S_MAX = 10.0
# What is too much is dropped down to this share, so that it is not looked for every time.
KEPT_SHARE = 0.95
# Another replica may have kept something meanwhile, so the size is asked for again after so many.
TRUSTED_KEEPS = 50

TABLE = """
    CREATE TABLE rank_logs (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job text NOT NULL,
        attempt integer NOT NULL,
        rank integer NOT NULL,
        incarnation integer NOT NULL,
        place integer NOT NULL,
        container text NOT NULL,
        bytes integer NOT NULL,
        body bytea NOT NULL,
        UNIQUE (job, attempt, rank, incarnation, place)
    )
"""
SIZE = "SELECT coalesce(sum(bytes), 0) FROM rank_logs"
FORGET_RUN = """
    DELETE FROM rank_logs
    WHERE job = $1 AND attempt = $2 AND rank = $3 AND incarnation = $4 AND place = $5
"""
KEEP = """
    INSERT INTO rank_logs (job, attempt, rank, incarnation, place, container, bytes, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
# The oldest, as long as those after them are more than may stay.
TRIM = """
    DELETE FROM rank_logs WHERE number <= (
        SELECT max(number) FROM (
            SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS upto FROM rank_logs
        ) AS each WHERE upto > $1
    )
"""
LINES = """
    SELECT body FROM rank_logs WHERE job = $1 AND attempt = $2 AND rank = $3
    AND CASE WHEN $4 = '' THEN place = 0 ELSE container = $4 END ORDER BY incarnation
"""
CONTAINERS = """
    SELECT container FROM rank_logs WHERE job = $1 AND attempt = $2 AND rank = $3
    GROUP BY container ORDER BY min(place)
"""
# The third is what a connection says that was cut off in the middle of an answer.
_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)

_log = logging.getLogger("muster.kubernetes")


class PostgresLogArchive:
    def __init__(self, url: str, bytes_max: int, *, schema: str = "muster") -> None:
        self._url = url
        self._bytes_max = bytes_max
        self._schema = schema
        self._session: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._bytes = 0
        # How often something was kept since the size was asked for.
        self._keeps = 0

    async def close(self) -> None:
        if self._session is not None:
            self._session.terminate()

    @property
    def size_bytes(self) -> int:
        """As far as this one knows, once it has asked."""
        return self._bytes

    async def keep(self, run: Run, lines: list[str]) -> None:
        if not lines:
            return
        body = await asyncio.to_thread(packed, lines)
        if len(body) > self._bytes_max:
            return
        try:
            async with self._asking() as session, session.transaction():
                await session.execute(FORGET_RUN, *run[:-1])
                await session.execute(KEEP, *run, len(body), body)
                await self._stay_small(session, len(body))
        except LogUnavailable as error:
            _log.warning("what rank %d of job %s wrote is not kept: %s", run.rank, run.job, error)

    async def lines(
        self, job: str, attempt: int, rank: int, lines_max: int, container: str = ""
    ) -> list[str]:
        async with self._asking() as session:
            rows = await session.fetch(LINES, job, attempt, rank, container)
        found = [line for row in rows for line in unpacked(row["body"])]
        return found[-lines_max:] if lines_max > 0 else []

    async def containers(self, job: str, attempt: int, rank: int) -> list[str]:
        async with self._asking() as session:
            rows = await session.fetch(CONTAINERS, job, attempt, rank)
        return [row["container"] for row in rows]

    async def forget(self, job: str) -> None:
        try:
            async with self._asking() as session:
                await session.execute("DELETE FROM rank_logs WHERE job = $1", job)
                self._bytes = await session.fetchval(SIZE)
        except LogUnavailable as error:
            _log.warning("what job %s wrote is kept although it was deleted: %s", job, error)

    async def _stay_small(self, session: asyncpg.Connection, more: int) -> None:
        self._bytes, self._keeps = self._bytes + more, self._keeps + 1
        if self._keeps >= TRUSTED_KEEPS or self._bytes > self._bytes_max:
            self._bytes, self._keeps = await session.fetchval(SIZE), 0
        if self._bytes > self._bytes_max:
            await session.execute(TRIM, int(self._bytes_max * KEPT_SHARE))
            self._bytes = await session.fetchval(SIZE)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._turn:
            try:
                yield await self._connected()
            except _FAILURES as error:
                # Whatever it was, the next one asks on a connection that knows nothing of it.
                await self.close()
                raise LogUnavailable(f"logs of ranks cannot be had: {error}") from error

    async def _connected(self) -> asyncpg.Connection:
        if self._session is None or self._session.is_closed():
            path = '"' + self._schema.replace('"', '""') + '"'
            self._session = await asyncpg.connect(
                self._url,
                timeout=ANSWER_S_MAX,
                command_timeout=ANSWER_S_MAX,
                server_settings={"application_name": "muster logs", "search_path": path},
            )
            async with self._session.transaction():
                # Replicas that start together must not create it twice.
                await self._session.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"{self._schema}_logs"
                )
                if await self._session.fetchval("SELECT to_regclass('rank_logs') IS NULL"):
                    await self._session.execute(TABLE)
            self._bytes, self._keeps = await self._session.fetchval(SIZE), 0
        return self._session
