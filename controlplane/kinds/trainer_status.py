"""The status of a TrainJob: three conditions, and a line for each part of its runtime.

The operator has no word for what lies between: a job that waits and one that runs look the same in
the conditions, and only `jobsStatus` tells them apart. Muster's own view says it.
"""

from collections.abc import Sequence
from typing import Any

from controlplane.attempt import Rank, RankState
from controlplane.job import Job, Phase
from controlplane.kinds.stamps import stamp
from controlplane.model import Role

DEADLINE = "deadline_exceeded"


def status(job: Job) -> dict[str, Any]:
    """What the operator would write; parts that do not apply are left out."""
    conditions = _conditions(job)
    jobs = [_job_status(job, role) for role in job.spec.roles if role.replicas]
    found = {"conditions": conditions} if conditions else {}
    return {**found, "jobsStatus": jobs} if job.attempt is not None else found


def _conditions(job: Job) -> list[dict[str, Any]]:
    if job.phase is Phase.SUSPENDED:
        return [_condition("Suspended", "Suspended", "TrainJob is suspended", None)]
    if job.phase is Phase.SUCCEEDED:
        told = "jobset completed successfully"
        return [_condition("Complete", "AllJobsCompleted", told, job.finished_at)]
    if job.phase is Phase.FAILED and job.reason == DEADLINE:
        told = "TrainJob exceeded its active deadline"
        return [_condition("Failed", "DeadlineExceeded", told, job.finished_at)]
    if job.phase in (Phase.FAILED, Phase.CANCELLED):
        told = job.message or "jobset failed due to one or more job failures"
        return [_condition("Failed", "FailedJobs", told, job.finished_at)]
    return []


def _condition(type: str, reason: str, message: str, at: float | None) -> dict[str, Any]:
    found = {"type": type, "status": "True", "reason": reason, "message": message}
    return found if at is None else {**found, "lastTransitionTime": stamp(at)}


def _job_status(job: Job, role: Role) -> dict[str, Any]:
    """Each part of a runtime is one job of Kubernetes, so every count is 0 or 1."""
    ranks = _ranks(job, role)
    done = bool(ranks) and all(r.state is RankState.EXITED and r.exit_code == 0 for r in ranks)
    failed = any(r.state is RankState.EXITED and r.exit_code != 0 for r in ranks)
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
