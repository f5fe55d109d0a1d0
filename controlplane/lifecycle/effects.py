"""What the cluster should do for a job now, derived from the job's state and never stored."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from controlplane.lifecycle.attempt import Attempt, staying
from controlplane.lifecycle.job import Job
from controlplane.model.phases import LIVE, AttemptState, RankState
from controlplane.model.spec import grows


class LaunchGang(NamedTuple):
    """Run the ranks of this attempt. A repeated request changes nothing and is answered by reports.

    `ranks_to_run` returns the ranks. They change only with the attempt, when a single rank must
    stop or run again, and when ranks that wait for others may start. While `revision` is the same,
    nothing new is wanted, whatever else has changed in the job.
    """

    job_id: str
    attempt: int
    revision: tuple[int, ...]
    job: Job


class StopGang(NamedTuple):
    """Stop every rank of this attempt, and report each as exited or gone."""

    job_id: str
    attempt: int
    job: Job


class Tidy(NamedTuple):
    """Delete what is left of a job that no longer runs, except what is kept.

    `job` is None once the job itself is removed: then nothing of it is kept.
    """

    job_id: str
    job: Job | None


@dataclass(frozen=True, slots=True)
class Survey:
    """Report every node, and tidy up after jobs of which objects are left.

    `known` returns the job with an id, or None if it was removed. Call it at once or never: later
    it may be ahead of the log.
    """

    known: Callable[[str], Job | None] | None = field(default=None, compare=False, repr=False)


Effect = LaunchGang | StopGang | Tidy | Survey


def wanted(job: Job) -> LaunchGang | StopGang | None:
    """What this job needs from the cluster, or None if it has no attempt that is not over."""
    attempt = job.attempt
    if attempt is None or attempt.state is AttemptState.OVER:
        return None
    if attempt.state in LIVE:
        return LaunchGang(job.id, attempt.number, _revision(job, attempt), job)
    return StopGang(job.id, attempt.number, job)


def newly_wanted(before: Job | None, job: Job) -> LaunchGang | StopGang | Tidy | None:
    """What this job needs and did not need `before`, or None."""
    attempt = job.attempt
    if attempt is None:
        return None
    old = None if before is None else before.attempt
    if attempt.state is AttemptState.OVER:
        return Tidy(job.id, job) if old is None or old.state is not AttemptState.OVER else None
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
    """The pending ranks of roles that start after another role which is not up yet."""
    spec = job.spec
    waiting = [role for role in spec.roles if role.starts_after]
    held_back: list[int] = []
    for role in waiting:
        there = staying(attempt, spec.size)
        first = [i for i in spec.ranks_of(role.starts_after) if i < there]
        if not all(attempt.ranks[i].state in _UP for i in first):
            mine = [i for i in spec.ranks_of(role.name) if i < there]
            held_back += [i for i in mine if attempt.ranks[i].state is RankState.PENDING]
    return frozenset(held_back)


def _revision(job: Job, attempt: Attempt) -> tuple[int, ...]:
    """A value that changes whenever `ranks_to_run` may have changed."""
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
    """Whether nothing was restarted or added, and no rank waits for others.

    Most attempts are plain. A plain attempt has always been plain, as long as its spec is the same.
    """
    spec = job.spec
    if job.restarts or attempt.repairs or grows(spec):
        return False
    size = 0
    for role in spec.roles:
        if role.starts_after:
            return False
        size += role.replicas
    return size == len(attempt.ranks)
