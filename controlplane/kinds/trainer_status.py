"""The status of a TrainJob: three conditions, and a line for each part of its runtime.

The operator has no word for what lies between: a job that waits and one that runs look the same in
the conditions, and only `jobsStatus` tells them apart. Muster's own view says it. One thing is said
here that the operator leaves to its log: what went wrong when a job is to be tried again.
"""

from collections.abc import Sequence
from typing import Any

from controlplane.attempt import Rank, RankState
from controlplane.job import Job, Phase
from controlplane.kinds.conditions import ended_by_us, timestamp
from controlplane.model import Role

FAILURES = (Phase.FAILED, Phase.CANCELLED)
# What the operator calls our reasons; all others are failures of its jobs.
REASONS = {"deadline_exceeded": "DeadlineExceeded", "cancelled": "Cancelled"}


def status(job: Job) -> dict[str, Any]:
    """What the operator would write; parts that do not apply are left out."""
    if job.spec.is_external:
        return {}
    conditions = _conditions(job)
    jobs = [_job_status(job, role) for role in job.spec.roles if role.replicas]
    found = {"conditions": conditions} if conditions else {}
    return {**found, "jobsStatus": jobs} if job.attempt is not None else found


def _conditions(job: Job) -> list[dict[str, Any]]:
    found = []
    if job.phase is Phase.SUSPENDED:
        told = "TrainJob is suspended"
        found.append(_condition("Suspended", True, "Suspended", told, job.suspended_at))
    elif job.resumed_at is not None:
        told = "TrainJob is resumed"
        found.append(_condition("Suspended", False, "Resumed", told, job.resumed_at))
    if job.phase is Phase.SUCCEEDED:
        told = "every part of the job has succeeded"
        found.append(_condition("Complete", True, "AllJobsCompleted", told, job.finished_at))
    elif job.phase in FAILURES:
        reason = REASONS.get(job.reason, "FailedJobs")
        found.append(_condition("Failed", True, reason, job.message, job.finished_at))
    elif job.phase is Phase.RESTARTING and job.restarts and job.reason:
        last = job.restarts[-1]
        found.append(_condition("Failed", False, "Restarting", last.message, last.at))
    return found


def _condition(
    type: str, is_true: bool, reason: str, message: str, at: float | None
) -> dict[str, Any]:
    assert at is not None, f"{type} without its time"
    return {
        "type": type,
        "status": str(is_true),
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(at),
    }


def _job_status(job: Job, role: Role) -> dict[str, Any]:
    """Each part of a runtime is one job of Kubernetes, so every count is 0 or 1."""
    ranks = _ranks(job, role)
    done = bool(ranks) and all(r.state is RankState.EXITED and r.exit_code == 0 for r in ranks)
    failed = any(
        r.state is RankState.EXITED and r.exit_code != 0 and not ended_by_us(job, r) for r in ranks
    )
    up = sum(r.state in (RankState.RUNNING, RankState.EXITED) for r in ranks)
    suspended = job.phase is Phase.SUSPENDED
    active = not (done or failed or suspended or job.finished)
    return {
        "name": role.name,
        "ready": int(active and up == role.replicas),
        "succeeded": int(done),
        "failed": int(failed),
        "active": int(active),
        "suspended": int(suspended),
    }


def _ranks(job: Job, role: Role) -> Sequence[Rank]:
    if job.attempt is None:
        return ()
    numbers = job.spec.ranks_of(role.name)
    return job.attempt.ranks[numbers.start : numbers.stop]
