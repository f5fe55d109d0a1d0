"""Durable appends against the least that any program must do on the same database.

Ours starts from events: it encodes and chains them, begins a transaction through SQLAlchemy, passes the
fence and inserts the rows by the driver's bulk call. The baseline is given finished rows and inserts them by
the same bulk call without a fence, with the same columns, bytes and durability: on SQLite from the thread it
is in.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from adapters.database.event_log import DatabaseLog
from adapters.database.tables import events
from bench.rounds import Contender, race, result
from controlplane.log.codec import to_rows
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS
from controlplane.ports import EventLog
from tests.postgres import PostgresMissing, throwaway_postgres

# How many appends a round has, for each size of a batch: enough for a few checkpoints of SQLite.
APPENDS = {1: 300, 10: 200, 100: 150, 1000: 30}
ROUNDS = 15
ROUNDS_QUICK = 5

T = TypeVar("T")

COLUMNS = [column.name for column in events.c]
INSERT = f"INSERT INTO events VALUES ({', '.join('?' for _ in COLUMNS)})"
TABLE = str(CreateTable(events).compile(dialect=sqlite.dialect()))
POSTGRES_TABLE = str(CreateTable(events).compile(dialect=postgresql.dialect()))


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    results = [in_our_loop(on_sqlite(batch, appends, rounds)) for batch, appends in APPENDS.items()]
    try:
        with throwaway_postgres() as url:
            results.append(in_our_loop(on_postgres(url, 100, 50, rounds)))
    except PostgresMissing:
        pass
    return results


def in_our_loop(work: Coroutine[Any, Any, T]) -> T:
    """On the loop that the server runs on."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


async def on_sqlite(batch: int, appends: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        log = await DatabaseLog.open(Path(folder) / "ours.db")
        with closing(sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)) as plain:
            contenders = {"ours": await ours(log), "plain": plain_sqlite(plain)}
            seconds = await race(contenders, batch=batch, appends=appends, rounds=rounds)
        await log.close()
    return result(
        f"append, SQLite, {batch} a batch", seconds, "ours", "plain",
        events=batch * appends, target=0.5 if batch == 100 else None,
        note="baseline: sqlite3 executemany of finished rows",
    )  # fmt: skip


async def ours(log: EventLog) -> Contender:
    """An EventLog, given its events one batch after the other."""
    epoch = (await log.lead()).epoch
    return Contender(lambda batch: batch, lambda batch: log.append(batch, epoch=epoch))


def plain_sqlite(connection: sqlite3.Connection) -> Contender:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)

    async def append(rows: list[tuple[Any, ...]]) -> None:
        connection.execute("BEGIN")
        connection.executemany(INSERT, rows)
        connection.execute("COMMIT")

    return Contender(finished_rows, append)


def finished_rows(batch: list[Recorded]) -> list[tuple[Any, ...]]:
    """Rows as they are stored, with the payload as text."""
    return [(*row._replace(payload=row.payload.decode()),) for row in to_rows(batch, GENESIS)]


async def on_postgres(url: str, batch: int, appends: int, rounds: int) -> dict[str, Any]:
    log = await DatabaseLog.open(url)
    plain = await asyncpg.connect(url, server_settings={"search_path": "plain"})
    await plain.execute("CREATE SCHEMA plain")
    await plain.execute(POSTGRES_TABLE)
    contenders = {
        "ours": await ours(log),
        "plain": Contender(
            finished_rows,
            lambda rows: plain.copy_records_to_table("events", records=rows, columns=COLUMNS),
        ),
    }
    seconds = await race(contenders, batch=batch, appends=appends, rounds=rounds)
    await plain.close()
    await log.close()
    return result(
        f"append, PostgreSQL, {batch} a batch", seconds, "ours", "plain",
        events=batch * appends, target=0.35,
        note="baseline: asyncpg COPY of finished rows, no fence",
    )  # fmt: skip


if __name__ == "__main__":
    for line in run(quick=False):
        print(line)
