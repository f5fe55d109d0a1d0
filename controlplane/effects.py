"""What the cluster should do for a job now, read off the job's state and never remembered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.attempt import LIVE, Attempt, AttemptState, RankState
from controlplane.attempt_life import staying
from controlplane.job import Job
from controlplane.job_life import grows


class LaunchGang(NamedTuple):
    """The ranks of this attempt should run. Asked again, it changes nothing and reports anew.

    `ranks_to_run` says which ranks those are. What is wanted changes only with the attempt, when a
    single rank is to stop or to run once more, and when ranks that wait for others may start: so
    long as the `revision` is the same, nothing new is wanted, whatever else became of the job.
    """

    job_id: str
    attempt: int
    revision: tuple[int, ...]
    job: Job


class StopGang(NamedTuple):
    """Nothing of this attempt should be left; ranks are to be reported exited or gone."""

    job_id: str
    attempt: int
    job: Job


class Tidy(NamedTuple):
    """Nothing of the job runs any more; what is left of it and nobody keeps should go.

    `job` is None once the job itself is gone: then nothing of it is kept.
    """

    job_id: str
    job: Job | None


@dataclass(frozen=True, slots=True)
class Survey:
    """Report every node there is, and tidy up after jobs of which something is left.

    `known` tells what is known of a job, None of one that is gone. It is asked at once or never:
    later it may run ahead of the log.
    """

    known: Callable[[str], Job | None] | None = field(default=None, compare=False, repr=False)


Effect = LaunchGang | StopGang | Tidy | Survey

_OVER = AttemptState.OVER


def wanted(job: Job) -> LaunchGang | StopGang | None:
    """What this job needs of the cluster, or None when nothing of it is there or should be."""
    attempt = job.attempt
    if attempt is None or attempt.state is _OVER:
        return None
    if attempt.state in LIVE:
        return LaunchGang(job.id, attempt.number, _revision(job, attempt), job)
    return StopGang(job.id, attempt.number, job)


def newly_wanted(before: Job | None, job: Job) -> LaunchGang | StopGang | Tidy | None:
    """What this job needs and did not need `before`, made only if there is such a thing."""
    attempt = job.attempt
    if attempt is None:
        return None
    old = None if before is None else before.attempt
    if attempt.state is _OVER:
        return Tidy(job.id, job) if old is None or old.state is not _OVER else None
    if before is not None and old is not None and old.number == attempt.number:
        live = attempt.state in LIVE
        if (old.state in LIVE) is live and (not live or _same_ranks(before, old, job, attempt)):
            return None
    return wanted(job)


def _same_ranks(before: Job, old: Attempt, job: Job, attempt: Attempt) -> bool:
    if before.spec is job.spec and _is_plain(job, attempt):
        return True
    return _revision(before, old) == _revision(job, attempt)


def ranks_to_run(job: Job) -> list[int]:
    """The ranks that should have a process now: those that wait for nothing and have not ended."""
    attempt = job.attempt
    if attempt is None or attempt.state not in LIVE:
        return []
    held_back = _held_back(job, attempt)
    return [i for i, rank in enumerate(attempt.ranks) if rank.state in _RUNS and i not in held_back]


_RUNS = (RankState.PENDING, RankState.RUNNING)
_UP = (RankState.RUNNING, RankState.EXITED)


def _held_back(job: Job, attempt: Attempt) -> frozenset[int]:
    """Ranks of roles that start only once another role runs, and it does not yet."""
    spec = job.spec
    waiting = [role for role in spec.roles if role.starts_after]
    found: list[int] = []
    for role in waiting:
        there = staying(attempt, spec.size)
        first = [i for i in spec.ranks_of(role.starts_after) if i < there]
        if not all(attempt.ranks[i].state in _UP for i in first):
            mine = [i for i in spec.ranks_of(role.name) if i < there]
            found += [i for i in mine if attempt.ranks[i].state is RankState.PENDING]
    return frozenset(found)


def _revision(job: Job, attempt: Attempt) -> tuple[int, ...]:
    """Changes whenever `ranks_to_run` may have."""
    if _is_plain(job, attempt):
        return ()
    again = sum(rank.incarnation for rank in attempt.ranks)
    size = job.spec.size
    return (
        len(job.restarts),
        again,
        len(_held_back(job, attempt)),
        size,
        len(attempt.ranks),
        staying(attempt, size),
    )


def _is_plain(job: Job, attempt: Attempt) -> bool:
    """As most are: nothing was started again or came later, and no rank waits for others.

    Who is plain has always been, as long as its spec is the same.
    """
    spec = job.spec
    if job.restarts or attempt.mended or grows(spec):
        return False
    size = 0
    for role in spec.roles:
        if role.starts_after:
            return False
        size += role.replicas
    return size == len(attempt.ranks)
