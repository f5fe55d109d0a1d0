"""Durable appends against the event store that Python already has: PyPI's `eventsourcing`.

Both are given the same hundred events of ten jobs in one call, and are done when those are durable.
The library is used as its own applications use it: an event store whose mapper turns events into
JSON and whose recorder inserts them. The recorder alone, given finished JSON, is measured too.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from eventsourcing.domain import DomainEvent
from eventsourcing.persistence import (
    ApplicationRecorder,
    DatetimeAsISO,
    EventStore,
    JSONTranscoder,
    Mapper,
)
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

from adapters.database.event_log import DatabaseLog
from bench.append import in_our_loop, ours
from bench.rounds import Contender, race, result
from controlplane.model.events import JobRestarting, Recorded
from controlplane.ports import EventLog
from tests.postgres import PostgresMissing, throwaway_postgres

BATCH = 100
APPENDS = 50
ROUNDS = 15
ROUNDS_QUICK = 5


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    results = in_our_loop(on_sqlite(rounds))
    try:
        with throwaway_postgres() as url:
            results += in_our_loop(on_postgres(url, rounds))
    except PostgresMissing:
        pass
    return results


async def on_sqlite(rounds: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, ExitStack() as stack:
        log = await DatabaseLog.open(Path(name) / "ours.db")
        recorders = []
        for use in ("store", "recorder"):
            datastore = SQLiteDatastore(f"{name}/{use}.db")
            stack.callback(datastore.close)
            recorders.append(SQLiteApplicationRecorder(datastore))
        results = await against("SQLite", log, *recorders, rounds=rounds, target=1.0)
        await log.close()
    return results


async def on_postgres(url: str, rounds: int) -> list[dict[str, Any]]:
    where = urlsplit(url)
    with ExitStack() as stack:
        log = await DatabaseLog.open(url)
        recorders = []
        for use in ("store", "recorder"):
            datastore = PostgresDatastore(
                where.path[1:], where.hostname or "", where.port or 5432, where.username or "", ""
            )
            stack.callback(datastore.close)
            recorders.append(PostgresApplicationRecorder(datastore, events_table_name=use))
        results = await against("PostgreSQL", log, *recorders, rounds=rounds, target=1.0)
        await log.close()
    return results


async def against(
    database: str,
    log: EventLog,
    store: ApplicationRecorder,
    recorder: ApplicationRecorder,
    *,
    rounds: int,
    target: float,
) -> list[dict[str, Any]]:
    contenders = {
        "ours": await ours(log),
        "event store": event_store(store),
        "recorder alone": recorder_alone(recorder),
    }
    seconds = await race(contenders, batch=BATCH, appends=APPENDS, rounds=rounds)
    return [
        result(
            f"append, {database}, {BATCH} a batch, against eventsourcing's {baseline}",
            seconds, "ours", baseline, events=BATCH * APPENDS, target=goal,
        )
        for baseline, goal in (("event store", target), ("recorder alone", None))
    ]  # fmt: skip


@dataclass(frozen=True)
class Restarting(DomainEvent):
    """The library's equal of our JobRestarting: about as many bytes of JSON, in as many fields."""

    streak: int
    retry_at: float
    attempt: int
    cause: str
    spends_budget: bool
    rank: int | None
    exit_code: int | None
    node: str
    message: str


def as_domain_event(recorded: Recorded) -> Restarting:
    event = recorded.event
    assert isinstance(event, JobRestarting)
    restart = event.restart
    return Restarting(
        # Positions grow, so they will do as the versions of every job.
        UUID(int=int(event.job[-1])), recorded.position, datetime.fromtimestamp(recorded.at, UTC),
        event.streak, event.retry_at, restart.attempt, restart.cause.value, restart.spends_budget,
        restart.rank, restart.exit_code, restart.node, restart.detail,
    )  # fmt: skip


def event_store(recorder: ApplicationRecorder) -> Contender:
    recorder.create_table()  # type: ignore[attr-defined]
    store: EventStore[UUID] = EventStore(mapper(), recorder)

    async def append(events: list[Restarting]) -> None:
        store.put(events)

    return Contender(lambda batch: [as_domain_event(recorded) for recorded in batch], append)


def recorder_alone(recorder: ApplicationRecorder) -> Contender:
    recorder.create_table()  # type: ignore[attr-defined]
    stored = mapper().to_stored_event

    async def append(events: list[Any]) -> None:
        recorder.insert_events(events)

    return Contender(lambda batch: [stored(as_domain_event(event)) for event in batch], append)


def mapper() -> Mapper[UUID]:
    transcoder = JSONTranscoder()
    transcoder.register(DatetimeAsISO())
    return Mapper(transcoder)


if __name__ == "__main__":
    for line in run(quick=False):
        print(line)
