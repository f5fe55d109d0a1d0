"""Commands through the whole engine, until the durable reply, against plain commits of SQLite.

The cluster is full, so that every submission is decided, joins the line, and lets the scheduler
look at the head once more. There are two baselines, both of which are handed finished rows:

- submitters: as many coroutines, each of which waits until its own row is durable; a thread takes
  all that wait, executemany, one commit. This is the minimum for a program with as many submitters.
- batches: as many rows at once as there are submitters, from one thread. No submitter waits for
  a reply, so it is an upper limit rather than a program.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.database.event_log import DatabaseLog
from bench.append import INSERT, TABLE, in_our_loop
from bench.history import submission
from bench.rounds import result
from controlplane.decisions.step import Answer
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.effects import Effect
from controlplane.lifecycle.job import Job
from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import ReportCluster, SubmitJob
from controlplane.state.image import Receipt

# A row as it is stored.
Finished = tuple[Any, ...]

# Submitters -> commands that they hand in together in a round.
COMMANDS = {1: 300, 10: 1_500, 100: 6_000}
ROUNDS = 9
ROUNDS_QUICK = 3


class FullCluster:
    """A node that takes the first gang and never lets go of it."""

    async def connect(self, report: Any) -> None:
        report(ReportCluster(up=tuple(NodeInfo(f"node-{n}", 8) for n in range(128))))

    async def carry_out(self, effects: Sequence[Effect]) -> None: ...

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return []


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    return [line for submitters in COMMANDS for line in in_our_loop(at(submitters, rounds))]


async def at(submitters: int, rounds: int) -> list[dict[str, Any]]:
    commands = COMMANDS[submitters]
    seconds: dict[str, list[float]] = {"ours": [], "batches": [], "submitters": []}
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        where = Path(folder)
        with closing(plain_log(where / "a.db")) as a, closing(plain_log(where / "b.db")) as b:
            log = await DatabaseLog.open(where / "ours.db")
            engine = Engine(AsyncioClock(), log, FullCluster(), EngineOptions(snapshot_every=None))
            running = asyncio.ensure_future(engine.run())
            await fill(engine)
            arrivals = fresh_commands()
            for turn in range(rounds + 1):
                before = engine.world.position
                took = await hand_in(engine, islice(arrivals, commands), submitters)
                rows = await written(log, before)
                theirs = commit_in_batches(a, rows, submitters)
                together = await commit_for_submitters(b, rows, submitters)
                if turn > 0:
                    seconds["ours"].append(took)
                    seconds["batches"].append(theirs)
                    seconds["submitters"].append(together)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await log.close()
    notes = {
        "submitters": f"baseline: {submitters} coroutines, one thread with sqlite3, group commit",
        "batches": f"baseline: sqlite3 commits of {submitters} rows, no submitter waits for a reply",
    }
    return [
        result(
            f"engine, SQLite, {submitters} submitters",
            seconds,
            "ours",
            baseline,
            events=commands,
            target=0.4,
            note=note,
        )
        for baseline, note in notes.items()
    ]


async def fill(engine: Engine) -> None:
    """Takes every GPU there is, once the engine leads and knows the cluster."""
    number = 0
    while not engine.world.surveyed or engine.world.devices.free.total:
        await answer(engine, submission(number, Random(5)))
        number += 1


def fresh_commands() -> Iterator[SubmitJob]:
    """Commands made as they are handed in, as an API does; people submit a few kinds of jobs."""
    dice = Random(1)
    kinds = [submission(number, dice) for number in range(50)]
    for number in count(1_000):
        yield replace(
            kinds[number % 50], id=f"c{number:08x}", job=f"j{number:012x}", name=f"train-{number}"
        )


async def hand_in(engine: Engine, commands: Iterator[SubmitJob], submitters: int) -> float:
    """Seconds until all of them are answered; each submitter waits for one answer at a time."""

    async def submitter() -> None:
        for command in commands:
            assert isinstance(await answer(engine, command), Receipt)

    began = perf_counter()
    await asyncio.gather(*(submitter() for _ in range(submitters)))
    return perf_counter() - began


async def answer(engine: Engine, command: SubmitJob) -> Answer:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    engine.submit(command, future.set_result)
    return await future


async def written(log: DatabaseLog, after: int) -> list[Finished]:
    """What the engine wrote for it, as finished rows for the baseline."""
    rows: list[Finished] = []
    while page := await log.read(after + len(rows), 10_000):
        rows += [(*row._replace(payload=row.payload.decode()),) for row in page]
    return rows


def plain_log(path: Path) -> sqlite3.Connection:
    """The same table, as durable as ours."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    return connection


def commit_rows(connection: sqlite3.Connection, rows: list[Finished]) -> None:
    connection.execute("BEGIN")
    connection.executemany(INSERT, rows)
    connection.execute("COMMIT")


def commit_in_batches(
    connection: sqlite3.Connection, rows: list[Finished], submitters: int
) -> float:
    began = perf_counter()
    for first in range(0, len(rows), submitters):
        commit_rows(connection, rows[first : first + submitters])
    return perf_counter() - began


async def commit_for_submitters(
    connection: sqlite3.Connection, rows: list[Finished], submitters: int
) -> float:
    """Each submitter waits until its row is durable; a thread commits all that wait at once."""
    loop = asyncio.get_running_loop()
    waiting: list[tuple[Finished, asyncio.Future[None]]] = []
    left, idle = iter(rows), asyncio.Event()

    async def submitter() -> None:
        for row in left:
            done = loop.create_future()
            waiting.append((row, done))
            idle.set()
            await done

    async def writer() -> None:
        while True:
            await idle.wait()
            idle.clear()
            taken = waiting.copy()
            waiting.clear()
            await loop.run_in_executor(thread, commit_rows, connection, [row for row, _ in taken])
            for _, done in taken:
                done.set_result(None)

    with ThreadPoolExecutor(1) as thread:
        began = perf_counter()
        writing = asyncio.ensure_future(writer())
        await asyncio.gather(*(submitter() for _ in range(submitters)))
        took = perf_counter() - began
        writing.cancel()
    return took


if __name__ == "__main__":
    for line in run(quick=True):
        print(line)
