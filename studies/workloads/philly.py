"""Microsoft's Philly trace: `cluster_job_log`, a JSON list of jobs with their attempts.

The duration of a job is the sum over its attempts, its GPUs are the maximum.
"""

from pathlib import Path
from typing import Any

import msgspec

from studies.workloads.collecting import Collector
from studies.workloads.csv_trace import open_text
from studies.workloads.moments import seconds
from studies.workloads.trace import BadTrace, Trace


class _Server(msgspec.Struct):
    gpus: list[str]
    ip: str = ""


class _Attempt(msgspec.Struct):
    start_time: str | None
    end_time: str | None
    detail: list[_Server]


class _Job(msgspec.Struct):
    jobid: str
    submitted_time: str | None
    attempts: list[_Attempt]
    status: str = ""
    vc: str = ""
    user: str = ""


def read_philly(path: Path) -> Trace:
    """Read a Philly trace; raise BadTrace if it cannot be used."""
    with open_text(path) as file:
        text = file.read()
    try:
        jobs = msgspec.json.decode(text, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise BadTrace(path.name, None, f"is not a JSON list of jobs: {error}") from None
    except RecursionError:
        raise BadTrace(path.name, None, "is nested too deeply") from None
    collector = Collector(path.name)
    for number, raw in enumerate(jobs):
        try:
            _add(collector, msgspec.json.decode(raw, type=_Job))
        except (msgspec.DecodeError, ValueError) as error:
            line = _line_of(text, bytes(raw).decode())
            raise BadTrace(path.name, line, f"entry {number} of the list: {error}") from None
    return collector.trace()


def _line_of(text: str, entry: Any) -> int | None:
    at = text.find(entry)
    return None if at < 0 else text.count("\n", 0, at) + 1


def _add(collector: Collector, job: _Job) -> None:
    submitted = seconds(job.submitted_time or "")
    if submitted is None:
        collector.leave_out("no time of submission")
        return
    ran, gpus = 0.0, 0
    for attempt in job.attempts:
        began, ended = seconds(attempt.start_time or ""), seconds(attempt.end_time or "")
        if began is not None and ended is not None and ended >= began:
            ran += ended - began
            gpus = max(gpus, sum(len(server.gpus) for server in attempt.detail))
    if not job.attempts:
        collector.leave_out("never ran")
    elif gpus == 0:
        collector.leave_out("no attempt with GPUs, a start and an end")
    else:
        collector.add(
            job.jobid, submitted, gpus, ran, queue=job.vc, user=job.user, status=job.status
        )
