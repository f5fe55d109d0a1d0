"""Any past instant, exactly: by state hash, from any place, in any process."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from adapters.database.event_log import DatabaseLog
from adapters.logs.memory_log import MemoryLog
from controlplane.log.codec import to_line, to_rows
from controlplane.log.replay import position_at, rebuild
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS
from controlplane.state.world import World
from tests.cli.logs import sqlite_log
from tests.incidents.day import DAY_S, Day
from tests.scenarios.scenario import run_now

ROOT = Path(__file__).parents[2]
HASHES = """
import sys, json
from pathlib import Path
from controlplane.log.codec import from_line
from controlplane.model.rows import GENESIS
from controlplane.log.fold import fold
from controlplane.log.snapshots import state_hash
from controlplane.state.state import State
wanted = set(json.loads(sys.argv[2]))
state, digest, hashes = State(), GENESIS, {}
for line in Path(sys.argv[1]).read_bytes().splitlines():
    digest = fold(state, [from_line(line)], digest)
    if state.position in wanted:
        hashes[state.position] = state_hash(state)
print(json.dumps(hashes))
"""


class IncidentAnalyser:
    """Notes the hash of the live world after some of the steps, as the engine takes them."""

    def __init__(self, share: float) -> None:
        self.day: Day | None = None
        self.hashes: dict[int, str] = {}
        self._dice, self._share = Random(5), share

    def __call__(self, batch: Sequence[Recorded]) -> None:
        if self._dice.random() < self._share:
            assert self.day is not None
            self.hashes[batch[-1].position] = state_hash(self.day.engine.world)


def witnessed(share: float, **how) -> tuple[Day, dict[int, str]]:  # type: ignore[no-untyped-def]
    analyser = IncidentAnalyser(share)
    analyser.day = Day(4, analyser=analyser, **how)
    return analyser.day.run(), analyser.hashes


def check_every_hash(day: Day, hashes: dict[int, str]) -> None:
    """Replays from snapshots, as one looks back in practice; and at times from the beginning."""
    log = MemoryLog(day.log.events)
    for number, (position, expected) in enumerate(sorted(hashes.items())):
        rebuilt = run_now(rebuild(log, position=position))
        assert state_hash(rebuilt.world) == expected, position
        if number % 5 == 0:
            run_now(log.save_snapshot(take_snapshot(rebuilt.world, rebuilt.hash)))
        if number % 100 == 0:
            whole = run_now(rebuild(log, position=position, use_snapshot=False))
            assert state_hash(whole.world) == expected


def test_the_state_at_random_positions_is_the_one_that_was_live() -> None:
    day, hashes = witnessed(0.05, jobs=900, racks=2, nodes=4)
    assert len(hashes) > 100
    check_every_hash(day, hashes)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_day_of_100000_events_is_replayed_at_1000_random_positions() -> None:
    day, hashes = witnessed(0.02, jobs=11_500, racks=12, nodes=8, ttl_s=1_800.0)
    assert len(day.log.events) >= 100_000
    assert len(hashes) >= 1_000
    check_every_hash(day, hashes)


def test_another_process_with_another_hash_seed_finds_the_same(tmp_path: Path) -> None:
    day, hashes = witnessed(0.02, jobs=400, day_s=DAY_S / 2, racks=2, nodes=4)
    path = tmp_path / "day.jsonl"
    rows = to_rows(day.log.events, GENESIS)
    path.write_bytes(b"".join(to_line(row) + b"\n" for row in rows))
    assert len(hashes) > 20
    for seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", HASHES, str(path), json.dumps(sorted(hashes))],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert {int(k): v for k, v in json.loads(done.stdout).items()} == hashes


def test_a_point_in_time_is_located_without_reading_the_log(day: Day) -> None:
    events = day.log.events
    for recorded in Random(3).sample(list(events), 50):
        last = max(r.position for r in events if r.at <= recorded.at)
        assert run_now(position_at(day.log, recorded.at)) == last
        first = min(r.position for r in events if r.at >= recorded.at)
        assert run_now(position_at(day.log, recorded.at, before=True)) == first - 1
    assert run_now(position_at(day.log, events[0].at - 1)) == 0
    assert run_now(position_at(day.log, 1e12)) == len(events)


def test_a_database_that_is_being_written_is_read_without_disturbing_it(
    day: Day, tmp_path: Path
) -> None:
    """A reader of the past holds a page for ever; the writer goes on all the same."""
    events = list(day.log.events[:4_000])
    path = sqlite_log(tmp_path / "live.db", events[:2_000])

    async def both() -> None:
        writer = await DatabaseLog.open(path)
        epoch = (await writer.lead()).epoch
        reader = await DatabaseLog.open(path, read_only=True)
        for start in range(2_000, 4_000, 500):
            await asyncio.gather(
                writer.append(events[start : start + 500], epoch=epoch),
                rebuild(reader, position=1_500),
            )
        then = await rebuild(reader, position=1_500)
        now = await rebuild(reader)
        await reader.close()
        await writer.close()
        assert then.world.position == 1_500
        assert now.world.position == 4_000
        twin = World()
        for recorded in events:
            twin.apply(recorded)
        assert state_hash(now.world) == state_hash(twin)

    asyncio.run(both())
