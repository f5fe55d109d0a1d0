"""Writes this release's golden log of a limit on starts: `python -m tests.golden.make_starts`.

Five jobs that come together where at most two start in 10 s. Decision by an engine in virtual time. Never
run for an old release.
"""

import json
from importlib.metadata import version
from pathlib import Path

from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.snapshots import state_hash
from controlplane.model.rows import GENESIS
from controlplane.state.state import State
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes
from studies.whatif.policies import policy_named
from studies.workloads.trace import make_trace

HERE = Path(__file__).parent


def main() -> None:
    names = ["0", "1", "2", "3", "4"]
    trace = make_trace("starts", names, [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [100, 100, 100, 100, 100])
    result = run(trace, equal_nodes(1, 8), policy_named("fifo+starts=2/10s"), keep_events=True)
    assert result.log is not None
    rows, name = codec.to_rows(result.log, GENESIS), f"{version('muster')}-starts"
    (HERE / f"{name}.jsonl").write_bytes(b"".join(codec.to_line(row) + b"\n" for row in rows))
    state = State()
    fold(state, rows, GENESIS)
    expected = {
        "position": state.position,
        "state_hash": state_hash(state),
        "decided_by_an_engine": True,
    }
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
