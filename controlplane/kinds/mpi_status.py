"""The status of MPIJobs. The launcher of v2beta1 was a job of Kubernetes, and it shows."""

from collections.abc import Sequence
from typing import Any

from controlplane.attempt import Rank
from controlplane.job import Job, Phase
from controlplane.kinds import conditions
from controlplane.kinds.mpi_jobs import LAUNCHER, WORKER
from controlplane.model import Cause, CleanPods

EXHAUSTED = "BackoffLimitExceeded"
EVICTED = "MPIJobEvicted"
STYLE = conditions.Style(
    needs_all=True,
    always_running=True,
    reasons={"deadline_exceeded": "DeadlineExceeded", "retries_exhausted": EXHAUSTED},
)


def status(job: Job) -> dict[str, Any]:
    """Every launcher that ever failed counts, and the last one's own words are passed on."""
    found = conditions.status(job, STYLE)
    launcher = _launcher(job)
    if not found or launcher is None:
        return found
    counts = found["replicaStatuses"]
    counts[LAUNCHER]["failed"] = _failures(job, launcher)
    if job.finished and job.spec.clean is not CleanPods.NONE and WORKER in counts:
        # The operator cleans the workers up and counts them no more.
        counts[WORKER] = dict.fromkeys(counts[WORKER], 0)
    told = [_in_its_words(each, launcher) for each in found["conditions"]]
    found["conditions"] = [_evicted(job, each, (WORKER,)) for each in told]
    return found


def status_v1(job: Job) -> dict[str, Any]:
    """The status of the versions before v2beta1, for which an evicted launcher is evicted too."""
    found = conditions.status(job)
    if found:
        told = [_evicted(job, each, (LAUNCHER, WORKER)) for each in found["conditions"]]
        found["conditions"] = told
    return found


def _evicted(job: Job, condition: dict[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    """The condition with the operator's reason, if the job failed because its pods were evicted."""
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
    """Those that were followed by another try are in the ledger; the last one is not."""
    ranks = job.spec.ranks_of(LAUNCHER)
    ledger = sum(restart.rank in ranks for restart in job.restarts)
    return ledger + (job.phase is Phase.FAILED and launcher.exit_code not in (None, 0))


def _in_its_words(condition: dict[str, Any], launcher: Rank) -> dict[str, Any]:
    """Kubernetes tells why a container ended as a word and a text: `Error: no such file`."""
    word, _, text = launcher.message.partition(": ")
    if condition["reason"] != EXHAUSTED or not word.isalnum():
        return condition
    message = f"{condition['message']}: {text}" if text else condition["message"]
    return {**condition, "reason": f"{EXHAUSTED}/{word}", "message": message}
