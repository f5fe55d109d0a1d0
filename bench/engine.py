"""Commands through the whole engine, until the durable reply, against bare commits of SQLite.

The cluster is full, so that every submission is decided, joins the line, and lets the scheduler
look at the head once more. The baseline commits as many finished rows at once as there are
submitters, in the thread it is in: perfect batches, no decisions.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from adapters.asyncio_clock import AsyncioClock
from adapters.sqlite_log import SqliteLog
from bench.append import in_our_loop, plain_sqlite
from bench.history import submission
from bench.rounds import result
from controlplane.commands import ReportCluster, SubmitJob
from controlplane.effects import Effect
from controlplane.engine import Answer, Engine, EngineOptions
from controlplane.job import Job
from controlplane.model import NodeInfo
from controlplane.state import Receipt

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
    return [in_our_loop(at(submitters, rounds)) for submitters in COMMANDS]


async def at(submitters: int, rounds: int) -> dict[str, Any]:
    commands = COMMANDS[submitters]
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        with closing(sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)) as plain:
            baseline = plain_sqlite(plain)
            log = await SqliteLog.open(Path(folder) / "ours.db")
            engine = Engine(AsyncioClock(), log, FullCluster(), EngineOptions(snapshot_every=None))
            running = asyncio.ensure_future(engine.run())
            await fill(engine)
            dice, number = Random(1), 1_000
            for turn in range(rounds + 1):
                batch = [submission(number + n, dice) for n in range(commands)]
                number += commands
                before = engine.world.position
                took = await hand_in(engine, batch, submitters)
                rows = await written(log, before)
                theirs = await commit(baseline, rows, submitters)
                if turn > 0:
                    seconds["ours"].append(took)
                    seconds["plain"].append(theirs)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await log.close()
    return result(
        f"engine, SQLite, {submitters} submitters",
        seconds,
        "ours",
        "plain",
        events=commands,
        target=0.4,
        note=f"durable replies/s; baseline: sqlite3 commits of {submitters} finished rows",
    )


async def fill(engine: Engine) -> None:
    """Takes every GPU there is, once the engine leads and knows the cluster."""
    number = 0
    while not engine.world.surveyed or engine.world.free.total:
        await answer(engine, submission(number, Random(5)))
        number += 1


async def hand_in(engine: Engine, commands: list[SubmitJob], submitters: int) -> float:
    """Seconds until all of them are answered; each submitter waits for one answer at a time."""
    waiting = iter(commands)

    async def submitter() -> None:
        for command in waiting:
            assert isinstance(await answer(engine, command), Receipt)

    began = perf_counter()
    await asyncio.gather(*(submitter() for _ in range(submitters)))
    return perf_counter() - began


async def answer(engine: Engine, command: SubmitJob) -> Answer:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    engine.submit(command, future.set_result)
    return await future


async def written(log: SqliteLog, after: int) -> list[tuple[Any, ...]]:
    """What the engine wrote for it, as finished rows for the baseline."""
    rows: list[tuple[Any, ...]] = []
    while page := await log.read(after + len(rows), 10_000):
        rows += [(*row[:5], row[5].decode(), *row[6:]) for row in page]
    return rows


async def commit(baseline: Any, rows: list[tuple[Any, ...]], submitters: int) -> float:
    began = perf_counter()
    for first in range(0, len(rows), submitters):
        await baseline.append(rows[first : first + submitters])
    return perf_counter() - began


if __name__ == "__main__":
    for line in run(quick=True):
        print(line)
