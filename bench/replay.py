"""Reading a long log: verified replay against PyPI's `eventsourcing`, and a start from a snapshot.

Ours reads rows from SQLite, checks position and chain, decodes, and folds jobs, nodes and queues.
The library reads one aggregate of the same number of events as its benchmark allows, decodes and
folds it; it has no chain. Both are counted in CPU seconds, of all threads.
"""

import asyncio
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from adapters.database.event_log import DatabaseLog
from bench.append import in_our_loop
from bench.history import events
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash, take_snapshot

EVENTS = 1_000_000
EVENTS_QUICK = 100_000
THEIR_EVENTS = 20_000
TAIL = 2_000
BATCH = 2_000
# The minimum of this many rounds counts, for both sides: other work on the machine only adds time.
ROUNDS = 5
# How long finished jobs are kept: they are removed after a day, or never.
KEPT = {"kept a day": 86_400.0, "kept for ever": None}


def run(quick: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        return [
            line
            for kept, ttl_s in KEPT.items()
            for line in in_our_loop(in_turns(Path(folder) / f"{kept}.db", quick, kept, ttl_s))
        ]


async def in_turns(path: Path, quick: bool, kept: str, ttl_s: float | None) -> list[dict[str, Any]]:
    count = EVENTS_QUICK if quick else EVENTS
    await write_elsewhere(path, count, ttl_s)
    log = await DatabaseLog.open(path)
    whole_s = restart_s = their_s = float("inf")
    for turn in range(ROUNDS):
        their_s = min(their_s, replay_with_the_library(path.with_suffix(f".{turn}.db")))
        # That the world of the round before is forgotten is no part of this one.
        rebuilt = None
        began = process_time()
        rebuilt = await rebuild(log, use_snapshot=False)
        whole_s = min(whole_s, process_time() - began)
    early = await rebuild(log, position=count - TAIL, use_snapshot=False)
    await log.save_snapshot(take_snapshot(early.world, early.hash))
    for _ in range(ROUNDS):
        again = None
        began = process_time()
        again = await rebuild(log)
        restart_s = min(restart_s, process_time() - began)
    assert rebuilt is not None
    assert again is not None
    assert state_hash(again.world) == state_hash(rebuilt.world)
    jobs = len(again.world.jobs)
    await log.close()
    return [
        {
            "name": f"verified replay of {count:,} events, jobs {kept}",
            "value": round(count / whole_s),
            "baseline": round(THEIR_EVENTS / their_s),
            "ratio": round(count / whole_s * their_s / THEIR_EVENTS, 1),
            "target": 10.0,
            "unit": "events/CPU s",
            "note": f"{whole_s:.2f} CPU s in all; baseline: eventsourcing, {THEIR_EVENTS:,} events",
        },
        {
            "name": f"start with {count:,} events and a snapshot, jobs {kept}",
            "value": round(restart_s, 3),
            "baseline": round(whole_s, 3),
            "ratio": round(whole_s / restart_s, 1),
            "target": None,
            "unit": "CPU s",
            "note": f"goal: within 1 s; {jobs:,} jobs in the snapshot, {TAIL:,} events behind it; "
            "baseline: without the snapshot",
        },
    ]


async def write_elsewhere(path: Path, count: int, ttl_s: float | None) -> None:
    """Writes a log in a process of its own: who reads one has not just decided all of it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:
        await asyncio.get_running_loop().run_in_executor(elsewhere, _write, path, count, ttl_s)


def _write(path: Path, count: int, ttl_s: float | None) -> None:
    in_our_loop(write(path, count, ttl_s))


async def write(path: Path, count: int, ttl_s: float | None) -> None:
    """A log made by the engine, on disk."""
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch
    history = islice(events(count, ttl_s=ttl_s), count)
    while batch := list(islice(history, BATCH)):
        await log.append(batch, epoch=epoch)
    await log.close()


class Training(Aggregate):
    """A job as the library's users would write it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.restarts: list[str] = []

    @event("Restarting")
    def restart(self, attempt: int, cause: str, rank: int, node: str, message: str) -> None:
        self.restarts = [cause]
        self.last = (attempt, rank, node, message)


class Trainings(Application):
    pass


def replay_with_the_library(path: Path) -> float:
    """CPU seconds to load one aggregate of many events from SQLite."""
    app = Trainings(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path),
            "SQLITE_LOCK_TIMEOUT": "10",
        }
    )
    with closing(app):
        training = Training(name="train")
        for number in range(THEIR_EVENTS - 1):
            training.restart(
                attempt=number,
                cause="node_lost",
                rank=3,
                node=f"gpu-rack-07-node-{number % 64:04}",
                message="node does not answer",
            )
        app.save(training)
        began = process_time()
        again = app.repository.get(training.id)
        took = process_time() - began
        assert again.version == THEIR_EVENTS
        return took


if __name__ == "__main__":
    import sys

    for line in run(quick="--full" not in sys.argv):
        print(line)
