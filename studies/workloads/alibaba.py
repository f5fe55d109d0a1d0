"""Alibaba's traces: PAI (2020), openb (2023) and Lingjun (2023).

PAI and Lingjun are folders of tables; the table of jobs and the table of their parts are read. A
request for a part of one GPU stays a part; a fractional request beyond one GPU is rounded up, and
the notes count these.
"""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from controlplane.model.values import in_gpus
from controlplane.state.devices import WHOLE
from studies.workloads.collecting import Collector
from studies.workloads.csv_trace import Table, open_text
from studies.workloads.moments import seconds
from studies.workloads.shares import Part, written
from studies.workloads.trace import BadTrace, Trace

# PAI's tables are published without a header line; the headers are in separate files.
PAI_JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
PAI_TASKS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip
OPENB = (
    "name", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
    "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
LINGJUN_JOBS = (
    "job_name", "kind", "model", "status", "gmt_job_submitted", "gmt_job_running",
    "gmt_job_finished", "gmt_job_stopped",
)  # fmt: skip
LINGJUN_WORKERS = ("job_name", "RES")
ROUNDED = "asked for more than one GPU and a part, and get the next whole number"


def read_pai(folder: Path) -> Trace:
    """Read a PAI trace; raise BadTrace if it cannot be used."""
    jobs = _headless(folder / "pai_job_table.csv", PAI_JOBS)
    tasks = _headless(folder / "pai_task_table.csv", PAI_TASKS)
    parts: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row, line in _rows(tasks, PAI_TASKS):
        parts[row["job_name"]].append({**row, "line": str(line)})
    collector = Collector(folder.name)
    for row, line in _rows(jobs, PAI_JOBS):
        submitted = _number(jobs, line, "start_time", row["start_time"])
        if submitted is None:
            collector.leave_out("no time of submission")
        else:
            _add_pai(collector, tasks, row, submitted, parts.get(row["job_name"], []))
    return collector.trace()


def _add_pai(
    collector: Collector, tasks: Table, job: dict[str, str], submitted: float, parts: list[Any]
) -> None:
    gpus, parts_of_gpus, rounded, types = 0, list[Part](), False, set()
    begins, ends = [], []
    for part in parts:
        line = int(part["line"])
        instances = _number(tasks, line, "inst_num", part["inst_num"]) or 0.0
        share = (_number(tasks, line, "plan_gpu", part["plan_gpu"]) or 0.0) / 100
        if 0 < share < 1 and instances >= 1:
            parts_of_gpus.append(Part(int(instances), max(1, round(share * WHOLE))))
        else:
            gpus += int(instances) * math.ceil(share)
            rounded = rounded or share != math.ceil(share)
        if share:
            types.add(part["gpu_type"])
        begins.append(_number(tasks, line, "start_time", part["start_time"]))
        ends.append(_number(tasks, line, "end_time", part["end_time"]))
    began = min((at for at in begins if at), default=None)
    ended = max((at for at in ends if at), default=None)
    if not gpus and not parts_of_gpus:
        collector.leave_out("no GPUs")
    elif began is None or ended is None or ended < began:
        collector.leave_out("never ran, or has no end")
    else:
        if rounded:
            collector.note(ROUNDED)
        shared_milli = sum(part.ranks * part.share for part in parts_of_gpus)
        collector.add(
            job["job_name"], submitted, in_gpus(gpus * WHOLE + shared_milli), ended - began,
            shares=written(tuple(parts_of_gpus)),
            user=job["user"], status=job["status"], gpu_type="|".join(sorted(types)),
        )  # fmt: skip


def read_openb(path: Path) -> Trace:
    """Read pods, each as one job; a pod that was never placed is left out."""
    table = _table(path)
    table.columns(OPENB)
    collector = Collector(path.name)
    for row, line in _rows(table, tuple(table.header)):
        gpus = round(_number(table, line, "num_gpu", row["num_gpu"]) or 0.0)
        milli = _number(table, line, "gpu_milli", row["gpu_milli"]) or 0.0
        created = _number(table, line, "creation_time", row["creation_time"])
        placed = _number(table, line, "scheduled_time", row["scheduled_time"])
        deleted = _number(table, line, "deletion_time", row["deletion_time"])
        if gpus <= 0:
            collector.leave_out("no GPUs")
        elif created is None or placed is None or deleted is None or deleted < placed:
            collector.leave_out("never placed, or has no end")
        else:
            is_part = gpus == 1 and 0 < milli < WHOLE
            collector.add(
                row["name"], created, max(1, round(milli)) / WHOLE if is_part else gpus,
                deleted - placed,
                kind=row["qos"], status=row["pod_phase"], gpu_type=row["gpu_spec"],
            )  # fmt: skip
    return collector.trace()


def read_lingjun(folder: Path) -> Trace:
    """Read a Lingjun trace; raise BadTrace if it cannot be used."""
    jobs, workers = _table(folder / "job.csv"), _table(folder / "worker.csv")
    jobs.columns(LINGJUN_JOBS)
    workers.columns(LINGJUN_WORKERS)
    gpus: dict[str, int] = defaultdict(int)
    for row, line in _rows(workers, tuple(workers.header)):
        gpus[row["job_name"]] += _gpus_of(workers, line, row["RES"])
    collector = Collector(folder.name)
    for row, line in _rows(jobs, tuple(jobs.header)):
        try:
            submitted = seconds(row["gmt_job_submitted"])
            began = seconds(row["gmt_job_running"])
            ended = seconds(row["gmt_job_finished"]) or seconds(row["gmt_job_stopped"])
        except ValueError as error:
            raise jobs.bad(line, str(error)) from None
        if not gpus[row["job_name"]]:
            collector.leave_out("no GPUs")
        elif submitted is None or began is None or ended is None or ended < began:
            collector.leave_out("never ran, or has no end")
        else:
            collector.add(
                row["job_name"], submitted, gpus[row["job_name"]], ended - began,
                kind=row["kind"], model=row["model"], status=row["status"],
            )  # fmt: skip
    return collector.trace()


def _gpus_of(table: Table, line: int, resources: str) -> int:
    if not resources.strip():
        return 0
    try:
        asked = msgspec.json.decode(resources, type=dict[str, Any])
        return sum(round(float(n)) for name, n in asked.items() if name.endswith("/gpu"))
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise table.bad(line, f"RES is not a JSON object of resources: {error}") from None


def _table(path: Path) -> Table:
    with open_text(path) as file:
        return Table(path.name, file)


def _headless(path: Path, header: tuple[str, ...]) -> Table:
    """Read a table whose first line may or may not be its header."""
    table = _table(path)
    if table.header != list(header):
        table.rows.insert(0, table.header)
        table.lines.insert(0, 1)
        table.header = list(header)
    table.columns(header)
    return table


def _rows(table: Table, header: tuple[str, ...]) -> Any:
    for row, line in zip(table.rows, table.lines, strict=True):
        yield dict(zip(header, row, strict=True)), line


def _number(table: Table, line: int, column: str, text: str) -> float | None:
    if text.strip().lower() in ("", "nan", "none", "null"):
        return None
    try:
        return float(text)
    except ValueError:
        raise BadTrace(table.name, line, f"{column} is {text!r}, not a number") from None
