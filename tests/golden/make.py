"""Writes this release's golden log: `python -m tests.golden.make`. Never run for an old release.

The log consists of random histories (see tests/controlplane/test_properties.py); next to it are the hash of the
state that it leads to and a snapshot from the middle of it. A second one is a busy simulated day. The types of
events that neither contains are in the logs of the other modules here.
"""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from controlplane.lifecycle.draft import Decision
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Queue
from controlplane.model.rows import GENESIS
from controlplane.state.state import State
from controlplane.state.world import World
from tests.controlplane.test_properties import Live, history
from tests.incidents.day import Day

HERE = Path(__file__).parent
SEEDS = range(120)


def main() -> None:
    live, release = past(), version("muster")
    keep(release, live.log, live.world, decided=False, snapshot=True)
    # Another one is an engine's own, so that what was decided in it can be decided again.
    day = Day(3, jobs=220, day_s=14_400.0, racks=2, nodes=2).run()
    keep(f"{release}-day", day.log.events, day.engine.world, decided=True, snapshot=True)


def keep(
    name: str, log: Sequence[e.Recorded], world: World, *, decided: bool, snapshot: bool = False
) -> None:
    rows = codec.to_rows(log, GENESIS)
    lines = b"".join(codec.to_line(row) + b"\n" for row in rows)
    (HERE / f"{name}.jsonl").write_bytes(lines)
    expected = {
        "position": world.position,
        "state_hash": state_hash(world),
        "decided_by_an_engine": decided,
    }
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")
    if snapshot:
        first = rows[: len(rows) // 2]
        state = State()
        digest = fold(state, first, GENESIS)
        (HERE / f"{name}.snapshot").write_bytes(take_snapshot(state, digest).body)


def past() -> Live:
    live = Live()
    live.record(
        Decision(
            [
                e.EngineStarted(1, version("muster")),
                e.QueueDefined(Queue("q2")),
                e.NodeReported("n1", NodeInfo("n1", 8)),
                e.ClusterSurveyed(),
            ]
        )
    )
    for seed in SEEDS:
        for thing in history(seed):
            live.do(thing)
    return live


if __name__ == "__main__":
    main()
