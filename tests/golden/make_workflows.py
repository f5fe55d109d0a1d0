"""Writes this release's golden log of arrays and dependencies: `python -m tests.golden.make_workflows`.

A chain of which one job fails, an array with a limit whose indices fail and are retried, arrays that are
suspended, resumed, cancelled, deleted and errored. Decision by an engine in virtual time. Never run for an
old release.
"""

import json
from importlib.metadata import version
from pathlib import Path

from adapters.logs.memory_log import MemoryLog
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.snapshots import state_hash
from controlplane.model import commands as c
from controlplane.model.dependencies import Condition
from controlplane.model.failures import Exit
from controlplane.model.rows import GENESIS
from controlplane.state.state import State
from tests.controlplane.test_engine import Setup
from tests.controlplane.workflows.flow import after, array, asks, job

HERE = Path(__file__).parent


def main() -> None:
    setup = Setup(MemoryLog()).ready()
    for command in (
        job("prep"),
        job("train", "prep"),
        job("report", after("train", Condition.FAILED)),
        array("0-3%2", "prep"),
        array("0-3", after("sweep", Condition.CORRESPONDING), name="eval", owner="a2"),
        array("1-9:4%1", name="slow", owner="a3"),
        array("0-1", name="odd", owner="a4", ttl_s=30.0),
    ):
        setup.submit(command)
    setup.after(1)
    ends(setup, "id-prep", "id-train", code={"id-train": 1})
    ends(setup, "a1-0", "a1-1", "a1-2", code={"a1-1": 1})
    for command in (
        asks(c.SuspendJob, "slow"),
        asks(c.ResumeJob, "slow"),
        asks(c.RetryMembers, "sweep"),
        c.ReportError(job="a4", where="due", error="ValueError", text="made up"),
    ):
        setup.submit(command)
        setup.after(1)
    ends(setup, "a1-1-1", "a1-3", "a2-0", "a2-2")
    ends(setup, "a2-1", "a2-3", "id-report")
    setup.submit(asks(c.CancelJob, "slow"))
    setup.submit(asks(c.DeleteJob, "eval"))
    setup.after(60)
    rows, name = codec.to_rows(setup.log.events, GENESIS), f"{version('muster')}-workflows"
    (HERE / f"{name}.jsonl").write_bytes(b"".join(codec.to_line(row) + b"\n" for row in rows))
    state = State()
    fold(state, rows, GENESIS)
    expected = {
        "position": state.position,
        "state_hash": state_hash(state),
        "decided_by_an_engine": True,
    }
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


def ends(setup: Setup, *jobs: str, code: dict[str, int] | None = None) -> None:
    """Jobs that were placed come up, exit and are gone."""
    for name in jobs:
        job = setup.engine.world.jobs.get(name)
        if job is None or job.live_attempt is None:
            continue
        number, exit_code = job.live_attempt.number, (code or {}).get(name, 0)
        setup.submit(c.ReportRanks(job=name, attempt=number, started=(0,)))
        setup.after(1)
        setup.submit(c.ReportRanks(job=name, attempt=number, exited=(Exit(0, exit_code),)))
        setup.after(1)
        setup.submit(c.ReportRanks(job=name, attempt=number, gone=(0,)))
        setup.after(1)


if __name__ == "__main__":
    main()
