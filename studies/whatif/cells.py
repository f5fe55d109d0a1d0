"""One cell of a study: from its description to the bytes that are stored for it."""

import csv
import io
from typing import NamedTuple

import msgspec
import numpy as np

from controlplane.engine import EngineOptions
from studies.metrics.summary import summarise
from studies.metrics.waiting import completion_times, waits
from studies.simulation.run import Run, run
from studies.whatif.policies import policy_named
from studies.whatif.scenario import Cell, fingerprint_of, make_cluster, make_trace
from studies.whatif.schedule_csv import fingerprint, schedule_lines
from studies.workloads.csv_trace import number_text

encode = msgspec.json.Encoder(order="sorted").encode


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a worker: a cell, and the files to write in addition to its summary."""

    cell: Cell
    # Part of the key, because another release may decide differently.
    release: str = EngineOptions().release
    # The window of the Gantt chart: its begin and its length in seconds.
    window: tuple[float, float] | None = None
    jobs_csv: bool = False
    schedule: bool = False

    @property
    def key(self) -> str:
        """The fingerprint under which the result is stored."""
        return fingerprint_of(self)


class CellResult(NamedTuple):
    """The output of a worker; the same bytes from every process on every machine."""

    key: str
    document: bytes
    jobs_csv: bytes | None = None
    schedule: bytes | None = None


def run_task(task: Task) -> CellResult:
    """Run a cell and encode its result."""
    outcome = run_cell(task.cell)
    scenario = task.cell.scenario
    summary = summarise(outcome, price_gpu_hour=scenario.price_gpu_hour, window=task.window)
    document = {
        "cell": msgspec.to_builtins(task.cell),
        "schedule_sha256": fingerprint(outcome),
        "summary": summary,
    }
    return CellResult(
        task.key,
        encode(document),
        jobs_csv_of(outcome) if task.jobs_csv else None,
        "".join(schedule_lines(outcome)).encode() if task.schedule else None,
    )


def run_cell(cell: Cell) -> Run:
    scenario = cell.scenario
    return run(
        make_trace(cell),
        make_cluster(scenario, cell.seed * 1_000_003 + cell.replication),
        policy_named(scenario.policy),
        queues=scenario.queues,
        checkpoints=scenario.checkpoints,
        autoscale=scenario.autoscale,
        until_s=scenario.until_s,
        recorded_on=scenario.recorded_on,
        reasons=scenario.reasons,
    )


_HEADER = (
    "id", "submit", "gpus", "duration", "start", "end", "wait", "jct", "restarts", "outcome",
    "queue", "user", "reasons",
)  # fmt: skip


def jobs_csv_of(run: Run) -> bytes:
    """Return a CSV file with one line for each job of a run, in the order of submission."""
    trace = run.trace
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    columns = [
        [number_text(x) for x in np.asarray(column).tolist()]
        for column in (
            trace.submit, trace.gpus, trace.duration, run.started, run.finished,
            waits(run), completion_times(run), run.restarts,
        )
    ]  # fmt: skip
    empty = [""] * len(trace)
    queues, users = trace.labels.get("queue", empty), trace.labels.get("user", empty)
    outcomes = [_outcome(run, row) for row in range(len(trace))]
    reasons = [_reasons(run, row) for row in range(len(trace))]
    writer.writerows(zip(trace.ids, *columns, outcomes, queues, users, reasons, strict=True))
    return text.getvalue().encode()


def _outcome(run: Run, row: int) -> str:
    if row in run.refused:
        return "refused"
    if row in run.unschedulable:
        return "unschedulable"
    if run.finished[row] != run.finished[row]:
        return "unfinished"
    return "failed" if run.failed[row] else "succeeded"


def _reasons(run: Run, row: int) -> str:
    if row in run.refused:
        return run.refused[row]
    if row in run.unschedulable:
        return run.unschedulable[row]
    reasons = run.reasons.get(row, {})
    return "; ".join(f"{code} {number_text(round(s, 3))}" for code, s in sorted(reasons.items()))
