"""Names of gangs in the machine, and which ranks start together."""

from collections.abc import Iterable
from typing import NamedTuple

from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import RankRun


class GangKey(NamedTuple):
    """The name of a gang in the machine: the initial ranks of an attempt, or one rank on its own."""

    job: str
    attempt: int
    incarnation: int = 0
    rank: int = -1


def attempt_of(job: Job) -> Attempt:
    assert job.attempt is not None, f"{job.id} was never placed"
    return job.attempt


def initial_runs(
    job: Job, attempt: Attempt, runs: Iterable[RankRun]
) -> tuple[list[RankRun], list[RankRun]]:
    """Return the runs that start with the gang, and those that started later on their own."""
    waits = any(role.starts_after for role in job.spec.roles)
    gang: list[RankRun] = []
    alone: list[RankRun] = []
    for run in runs:
        later = waits and job.spec.role_of(run.rank)[0].starts_after
        first = run.incarnation == 0 and attempt.ranks[run.rank].relaunched_at is None
        (gang if first and not later else alone).append(run)
    return gang, alone
