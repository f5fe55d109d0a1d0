"""The status of an MPIJob v2beta1. Its launcher was a job of Kubernetes, and it shows."""

from typing import Any

from controlplane.attempt import Rank
from controlplane.job import Job, Phase
from controlplane.kinds import conditions
from controlplane.kinds.mpi_jobs import LAUNCHER

EXHAUSTED = "BackoffLimitExceeded"
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
    found["replicaStatuses"][LAUNCHER]["failed"] = _failures(job, launcher)
    found["conditions"] = [_in_its_words(each, launcher) for each in found["conditions"]]
    return found


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
