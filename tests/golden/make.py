"""Writes this release's golden log: `python -m tests.golden.make`. Never run for an old release.

The log is a random history (see tests/controlplane/test_properties.py) in which every type of event
happens; beside it stands the hash of the state that it leads to. A second one is a busy simulated day.
"""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from controlplane import codec
from controlplane import events as e
from controlplane.model import NodeInfo
from controlplane.replay import state_hash
from controlplane.sharing import Queue
from controlplane.world import World
from tests.controlplane.test_properties import Live, history
from tests.incidents.day import Day

HERE = Path(__file__).parent
SEEDS = range(1_000)


def main() -> None:
    live, release = past(), version("muster")
    keep(release, live.log, live.world, decided=False)
    # Another one is an engine's own, so that what was decided in it can be decided again.
    day = Day(3, jobs=220, day_s=14_400.0, racks=2, nodes=2).run()
    keep(f"{release}-day", day.log.events, day.engine.world, decided=True)


def keep(name: str, log: Sequence[e.Recorded], world: World, *, decided: bool) -> None:
    rows = codec.to_rows(log, codec.GENESIS)
    lines = b"".join(codec.to_line(row) + b"\n" for row in rows)
    (HERE / f"{name}.jsonl").write_bytes(lines)
    expected = {
        "position": world.position,
        "state_hash": state_hash(world),
        "decided_by_an_engine": decided,
    }
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


def past() -> Live:
    """One random history after the other, until every type of event has happened."""
    live = Live()
    live.record(
        [
            e.EngineStarted(1, version("muster")),
            e.QueueDefined(Queue("q2")),
            e.NodeReported("n1", NodeInfo("n1", 8)),
            e.ClusterSurveyed(),
        ]
    )
    for seed in SEEDS:
        if types_in(live) == set(codec.EVENT_TYPES):
            return live
        for thing in history(seed):
            live.do(thing)
    raise AssertionError(f"never seen: {set(codec.EVENT_TYPES) - types_in(live)}")


def types_in(live: Live) -> set[str]:
    return {type(recorded.event).__name__ for recorded in live.log}


if __name__ == "__main__":
    main()
