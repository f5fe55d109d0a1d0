"""Looking back at a long log: the world at any instant, and every decision decided again.

The log is that of the `replay` suite, a million events made by the engine, in SQLite; snapshots are
those that an engine would have left (one every 100,000 events, of which a few are kept). All is
counted in CPU seconds. The baseline of verification is a plain verified replay of the same log.
"""

import tempfile
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from adapters.database.event_log import DatabaseLog
from bench.append import in_our_loop
from bench.replay import EVENTS, EVENTS_QUICK, write
from controlplane.audit.redecide import redecide
from controlplane.engine import EngineOptions
from controlplane.log.fold import fold
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.state.state import State
from studies.analysis import analyse
from studies.fork import fork, parse_change

INSTANTS = 20
DAY_S = 86_400.0


def run(quick: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        return in_our_loop(_run(Path(folder) / "log.db", EVENTS_QUICK if quick else EVENTS))


async def _run(path: Path, count: int) -> list[dict[str, Any]]:
    await write(path, count, DAY_S)
    log = await DatabaseLog.open(path)
    try:
        await _leave_snapshots(log, count)
        return [
            await _instants(log, count),
            await _decisions(log, count),
            await _analysis(log, count),
            await _fork(log, count),
        ]
    finally:
        await log.close()


async def _leave_snapshots(log: DatabaseLog, count: int) -> None:
    """As an engine leaves them on its way."""
    every = EngineOptions().snapshot_every
    assert every is not None
    state, digest = State(), bytes(32)
    while rows := await log.read(state.position, min(10_000, every)):
        digest = fold(state, rows, digest)
        if state.position % min(every, count // 10) == 0:
            await log.save_snapshot(take_snapshot(state, digest))


async def _instants(log: DatabaseLog, count: int) -> dict[str, Any]:
    first, last = (await log.read(0, 1))[0][1], (await log.read(count - 1, 1))[0][1]
    dice, took = Random(3), []
    for _ in range(INSTANTS):
        at = dice.uniform(first, last)
        began = process_time()
        await rebuild(log, at=at)
        took.append(process_time() - began)
    began = process_time()
    whole = await rebuild(log, use_snapshot=False)
    without_s = process_time() - began
    assert state_hash(whole.world) == state_hash((await rebuild(log)).world)
    return {
        "name": f"the world at any instant of {count:,} events",
        "value": round(max(took), 3),
        "baseline": round(without_s, 3),
        "ratio": round(without_s / max(took), 1),
        "target": None,
        "unit": "CPU s",
        "note": f"the slowest of {INSTANTS} random instants, {sum(took) / INSTANTS:.3f} on average; "
        "goal: within 1 s; baseline: the end, without snapshots; goal: within 5 s",
    }


async def _decisions(log: DatabaseLog, count: int) -> dict[str, Any]:
    began = process_time()
    await rebuild(log, use_snapshot=False)
    plain_s = process_time() - began
    began = process_time()
    # The log was cut off at a round number, in the middle of a step.
    difference = await redecide(log, whole=False)
    took_s = process_time() - began
    assert difference is None, difference
    return {
        "name": f"verification by re-deciding {count:,} events",
        "value": round(count / took_s),
        "baseline": round(count / plain_s),
        "ratio": round(plain_s / took_s, 3),
        "target": None,
        "unit": "events/CPU s",
        "note": "goal: 50,000; baseline: verified replay of the same log, which decides nothing",
    }


async def _analysis(log: DatabaseLog, count: int) -> dict[str, Any]:
    began = process_time()
    analysis = await analyse(log)
    took_s = process_time() - began
    assert analysis.jobs
    return {
        "name": f"analysis of {count:,} events",
        "value": round(count / took_s),
        "baseline": 0,
        "ratio": 0.0,
        "target": None,
        "unit": "events/CPU s",
        "note": f"{analysis.jobs:,} jobs; no baseline",
    }


async def _fork(log: DatabaseLog, count: int) -> dict[str, Any]:
    last = (await log.read(count - 1, 1))[0][1]
    began = process_time()
    forked = await fork(log, at=last - 6 * 3600.0, change=parse_change(add_nodes=4))
    took_s = process_time() - began
    return {
        "name": f"a fork of the last 6 hours of {count:,} events",
        "value": round(took_s, 2),
        "baseline": 0,
        "ratio": 0.0,
        "target": None,
        "unit": "CPU s",
        "note": f"two futures of {forked.comparison.one.jobs:,} jobs; no baseline",
    }
