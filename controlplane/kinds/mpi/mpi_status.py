"""The status of MPIJobs, as their operators write it.

The launcher of v2beta1 is a Job of Kubernetes, so its status has the counts and reasons of a Job.
"""

from collections.abc import Sequence
from typing import Any

from controlplane.kinds import conditions
from controlplane.kinds.mpi.mpi_jobs import LAUNCHER, WORKER
from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.model.failures import Cause
from controlplane.model.phases import Phase
from controlplane.model.spec import CleanPods

EXHAUSTED = "BackoffLimitExceeded"
EVICTED = "MPIJobEvicted"
STYLE = conditions.Style(
    needs_all=True,
    always_running=True,
    reasons={"deadline_exceeded": "DeadlineExceeded", "retries_exhausted": EXHAUSTED},
)


def status(job: Job) -> dict[str, Any]:
    """Return the status of a v2beta1 job.

    Every failed launcher counts, and the reason and text of the last one are passed on.
    """
    written = conditions.status(job, STYLE)
    launcher = _launcher(job)
    if not written or launcher is None:
        return written
    counts = written["replicaStatuses"]
    counts[LAUNCHER]["failed"] = _failures(job, launcher)
    if job.finished and job.spec.clean is not CleanPods.NONE and WORKER in counts:
        # The operator deletes the workers and no longer counts them.
        counts[WORKER] = dict.fromkeys(counts[WORKER], 0)
    worded = [_in_its_words(each, launcher) for each in written["conditions"]]
    written["conditions"] = [_evicted(job, each, (WORKER,)) for each in worded]
    return written


def status_v1(job: Job) -> dict[str, Any]:
    """Return the status of versions before v2beta1, which report evicted launchers too."""
    written = conditions.status(job)
    if written:
        evicted = [_evicted(job, each, (LAUNCHER, WORKER)) for each in written["conditions"]]
        written["conditions"] = evicted
    return written


def _evicted(job: Job, condition: dict[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    """Return the condition, with the operator's reason if the job failed because of an eviction.

    Only evictions of ranks of `roles` count.
    """
    if condition["type"] != "Failed" or job.phase is not Phase.FAILED or job.attempt is None:
        return condition
    if job.failed_rank is None or job.failed_rank >= job.spec.size:
        return condition
    role = job.spec.role_of(job.failed_rank)[0].name
    ranks = [job.attempt.ranks[i] for i in job.spec.ranks_of(role) if i < len(job.attempt.ranks)]
    failed = job.attempt.ranks[job.failed_rank]
    if role not in roles or failed.cause is not Cause.EVICTION:
        return condition
    gone = sum(rank.cause is Cause.EVICTION for rank in ranks)
    message = f"{gone}/{len(ranks)} {role.lower()}s are evicted: {condition['message']}"
    return {**condition, "reason": EVICTED, "message": message}


def _launcher(job: Job) -> Rank | None:
    ranks = job.spec.ranks_of(LAUNCHER)
    return job.attempt.ranks[ranks[0]] if job.attempt is not None and ranks else None


def _failures(job: Job, launcher: Rank) -> int:
    """Return how often the launcher failed.

    The restart ledger has the failures that were followed by a restart, but not the last one.
    """
    ranks = job.spec.ranks_of(LAUNCHER)
    ledger = sum(restart.rank in ranks for restart in job.restarts)
    return ledger + (job.phase is Phase.FAILED and launcher.exit_code not in (None, 0))


def _in_its_words(condition: dict[str, Any], launcher: Rank) -> dict[str, Any]:
    """Return the condition with the launcher's own reason and text, if its retries are exhausted.

    Kubernetes reports the end of a container as a reason and a text: `Error`, `no such file`.
    """
    word, text = launcher.reason, launcher.detail
    if condition["reason"] != EXHAUSTED or not word.isalnum():
        return condition
    message = f"{condition['message']}: {text}" if text else condition["message"]
    return {**condition, "reason": f"{EXHAUSTED}/{word}", "message": message}
