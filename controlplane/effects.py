"""What the cluster should do for a job now, read off the job's state and never remembered."""

from dataclasses import dataclass, field

from controlplane.attempt import LIVE, AttemptState
from controlplane.job import Job


@dataclass(frozen=True, slots=True)
class LaunchGang:
    """Every rank of this attempt should run. Asked again, it changes nothing and reports anew.

    Equality leaves the job out: what is wanted changes only with the attempt, or when a single
    rank is to run once more.
    """

    job_id: str
    attempt: int
    incarnations: int
    job: Job = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StopGang:
    """Nothing of this attempt should be left; ranks are to be reported exited or gone."""

    job_id: str
    attempt: int
    job: Job = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Survey:
    """Report every node there is."""


Effect = LaunchGang | StopGang | Survey


def wanted(job: Job) -> LaunchGang | StopGang | None:
    """What this job needs of the cluster, or None when nothing of it is there or should be."""
    attempt = job.attempt
    if attempt is None or attempt.state is AttemptState.OVER:
        return None
    if attempt.state in LIVE:
        # Only single-rank restarts raise incarnations, and each one is in the ledger.
        again = sum(rank.incarnation for rank in attempt.ranks) if job.restarts else 0
        return LaunchGang(job.id, attempt.number, again, job)
    return StopGang(job.id, attempt.number, job)
