"""One cell of a study, from its description to the bytes that are kept of it."""

import csv
import io
from typing import NamedTuple

import msgspec
import numpy as np

from controlplane.engine import EngineOptions
from studies.answers.summary import summarise
from studies.answers.waiting import completion_times, waits
from studies.policies import policy_named
from studies.run import Run, run
from studies.scenario import Cell, fingerprint_of, make_cluster, make_trace
from studies.schedule_lines import fingerprint, schedule_lines
from studies.workloads.csv_trace import number_text

encode = msgspec.json.Encoder(order="sorted").encode


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told: a cell, and what is wanted of it beside the numbers."""

    cell: Cell
    # Another release may decide otherwise, so its results are others.
    release: str = EngineOptions().release
    # The window of the Gantt chart, as begin and length in seconds.
    window: tuple[float, float] | None = None
    jobs_csv: bool = False
    schedule: bool = False

    @property
    def key(self) -> str:
        return fingerprint_of(self)


class CellResult(NamedTuple):
    """The same bytes from every process on every machine."""

    key: str
    document: bytes
    jobs_csv: bytes | None = None
    schedule: bytes | None = None


def run_task(task: Task) -> CellResult:
    found = run_cell(task.cell)
    scenario = task.cell.scenario
    summary = summarise(found, price_gpu_hour=scenario.price_gpu_hour, window=task.window)
    document = {
        "cell": msgspec.to_builtins(task.cell),
        "schedule_sha256": fingerprint(found),
        "summary": summary,
    }
    return CellResult(
        task.key,
        encode(document),
        jobs_csv_of(found) if task.jobs_csv else None,
        "".join(schedule_lines(found)).encode() if task.schedule else None,
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


def jobs_csv_of(found: Run) -> bytes:
    """Every job of a run, one line each, in the order of submission."""
    trace = found.trace
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    columns = [
        [number_text(x) for x in np.asarray(column).tolist()]
        for column in (
            trace.submit, trace.gpus, trace.duration, found.started, found.finished,
            waits(found), completion_times(found), found.restarts,
        )
    ]  # fmt: skip
    empty = [""] * len(trace)
    queues, users = trace.labels.get("queue", empty), trace.labels.get("user", empty)
    outcomes = [_outcome(found, row) for row in range(len(trace))]
    reasons = [_reasons(found, row) for row in range(len(trace))]
    writer.writerows(zip(trace.ids, *columns, outcomes, queues, users, reasons, strict=True))
    return text.getvalue().encode()


def _outcome(found: Run, row: int) -> str:
    if row in found.refused:
        return "refused"
    if row in found.unschedulable:
        return "unschedulable"
    if found.finished[row] != found.finished[row]:
        return "unfinished"
    return "failed" if found.failed[row] else "succeeded"


def _reasons(found: Run, row: int) -> str:
    if row in found.refused:
        return found.refused[row]
    if row in found.unschedulable:
        return found.unschedulable[row]
    said = found.reasons.get(row, {})
    return "; ".join(f"{code} {number_text(round(s, 3))}" for code, s in sorted(said.items()))
