"""The status of a TrainJob: three conditions, and an entry for each replicated job of its runtime.

The operator has no condition for the states in between: a waiting and a running job have the same
conditions and differ only in `jobsStatus`. Muster's own view of the job shows the difference. One
addition to the operator's status is the reason of a restart, which the operator only logs.
"""

from collections.abc import Sequence
from typing import Any

from controlplane.kinds.conditions import ended_by_us, timestamp
from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.messages import job_text, restart_text
from controlplane.model.phases import Phase, RankState
from controlplane.model.spec import Role

FAILURES = (Phase.FAILED, Phase.CANCELLED)
# The operator's names for Muster's failure reasons; any other reason is a failure of a job.
REASONS = {"deadline_exceeded": "DeadlineExceeded", "cancelled": "Cancelled"}


def status(job: Job) -> dict[str, Any]:
    """Return the status that the operator would write; fields that do not apply are left out."""
    if job.spec.is_external:
        return {}
    conditions = _conditions(job)
    jobs = [_job_status(job, role) for role in job.spec.roles if role.replicas]
    written = {"conditions": conditions} if conditions else {}
    return {**written, "jobsStatus": jobs} if job.attempt is not None else written


def _conditions(job: Job) -> list[dict[str, Any]]:
    conditions = []
    if job.phase is Phase.SUSPENDED:
        message = "TrainJob is suspended"
        conditions.append(_condition("Suspended", True, "Suspended", message, job.suspended_at))
    elif job.resumed_at is not None:
        message = "TrainJob is resumed"
        conditions.append(_condition("Suspended", False, "Resumed", message, job.resumed_at))
    if job.phase is Phase.SUCCEEDED:
        message = "every part of the job has succeeded"
        conditions.append(
            _condition("Complete", True, "AllJobsCompleted", message, job.finished_at)
        )
    elif job.phase in FAILURES:
        reason = REASONS.get(job.reason or "", "FailedJobs")
        conditions.append(_condition("Failed", True, reason, job_text(job), job.finished_at))
    elif job.phase is Phase.RESTARTING and job.restarts and job.reason:
        last = job.restarts[-1]
        conditions.append(_condition("Failed", False, "Restarting", restart_text(last), last.at))
    return conditions


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
    """Return the counts of a role, which is one Job of Kubernetes, so every count is 0 or 1."""
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
