"""Gangs in the machine by name, what is remembered of each attempt, and which ranks go together."""

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from controlplane.attempt import Attempt, RankState
from controlplane.commands import ReportRanks
from controlplane.effects import ranks_to_run
from controlplane.job import Job


class GangKey(NamedTuple):
    """A gang in the machine: the attempt's ranks, or one rank that starts by itself."""

    job: str
    attempt: int
    incarnation: int = 0
    rank: int = -1


class Seen:
    """What is known of a job's latest attempt: what was started, and all that was reported."""

    __slots__ = ("attempt", "first", "job", "keys", "leaving", "left", "reports", "stopping")

    def __init__(self, job: str, attempt: int) -> None:
        self.job = job
        self.attempt = attempt
        self.keys: list[GangKey] = []
        # The ranks that were started in one go; the others are started by themselves.
        self.first: tuple[int, ...] = ()
        # The runs of single ranks that were told to end, as (rank, incarnation).
        self.leaving: set[tuple[int, int]] = set()
        # How many ranks have neither exited nor gone.
        self.left = 0
        self.reports: list[ReportRanks] = []
        self.stopping = False


def attempt_of(job: Job) -> Attempt:
    assert job.attempt is not None, f"{job.id} was never placed"
    return job.attempt


def first_ranks(job: Job, attempt: Attempt) -> tuple[int, ...]:
    """The ranks that start with the gang, and not only once others run."""
    if not any(role.starts_after for role in job.spec.roles):
        return _ranks(len(attempt.ranks))
    return tuple(i for i in range(len(attempt.ranks)) if not comes_later(job, i))


def comes_later(job: Job, rank: int) -> bool:
    return bool(job.spec.role_of(rank)[0].starts_after)


def by_themselves(seen: Seen, job: Job, attempt: Attempt) -> list[GangKey]:
    """The ranks that start by themselves: once more, or later than the first ones."""
    keys = once_more(job, attempt)
    if len(seen.first) < len(attempt.ranks):
        first = frozenset(seen.first)
        keys += [
            GangKey(job.id, attempt.number, 0, i)
            for i in ranks_to_run(job)
            if attempt.ranks[i].incarnation == 0 and i not in first
        ]
    return keys


def once_more(job: Job, attempt: Attempt, *, lost: bool = False) -> list[GangKey]:
    """The ranks that run, or should, for another time in this attempt; the lost ones if asked."""
    states = (RankState.PENDING, RankState.RUNNING, *((RankState.LOST,) if lost else ()))
    return [
        GangKey(job.id, attempt.number, rank.incarnation, i)
        for i, rank in enumerate(attempt.ranks)
        if rank.incarnation > 0 and rank.state in states
    ]


def by_incarnation(attempt: Attempt) -> dict[int, list[int]]:
    groups = defaultdict[int, list[int]](list)
    for i, rank in enumerate(attempt.ranks):
        groups[rank.incarnation].append(i)
    return groups


# The same for every gang of a size.
@lru_cache(maxsize=1024)
def _ranks(size: int) -> tuple[int, ...]:
    return tuple(range(size))
