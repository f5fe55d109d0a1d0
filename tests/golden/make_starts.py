"""Writes this release's golden log of a limit on starts: `python -m tests.golden.make_starts`.

Five jobs that come together where at most two start in 10 s. Decided by an engine in virtual time. Never
run for an old release.
"""

import json
from importlib.metadata import version
from pathlib import Path

from controlplane import codec
from controlplane.folding import fold
from controlplane.replay import state_hash
from controlplane.state import State
from studies.clusters import equal_nodes
from studies.policies import policy_named
from studies.run import run
from studies.workloads.trace import make_trace

HERE = Path(__file__).parent


def main() -> None:
    names = ["0", "1", "2", "3", "4"]
    trace = make_trace("starts", names, [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [100, 100, 100, 100, 100])
    found = run(trace, equal_nodes(1, 8), policy_named("fifo+starts=2/10s"), keep_events=True)
    assert found.log is not None
    rows, name = codec.to_rows(found.log, codec.GENESIS), f"{version('muster')}-starts"
    (HERE / f"{name}.jsonl").write_bytes(b"".join(codec.to_line(row) + b"\n" for row in rows))
    state = State()
    fold(state, rows, codec.GENESIS)
    expected = {
        "position": state.position,
        "state_hash": state_hash(state),
        "decided_by_an_engine": True,
    }
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
