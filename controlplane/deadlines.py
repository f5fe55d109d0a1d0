"""When something falls due for a job by itself; `settling.due` says what."""

from collections.abc import Iterator

from controlplane.attempt import Attempt, AttemptState, RankState, launched_at
from controlplane.attempt_life import goes_on
from controlplane.job import ACTIVE, Job, Phase
from controlplane.model import RestartScope


def deadline(job: Job) -> float | None:
    """When something falls due for this job by itself, or None. `settling.due` says what."""
    phase, spec, attempt = job.phase, job.spec, job.attempt
    is_over = attempt is None or attempt.state is AttemptState.OVER
    if job.finished_at is not None:
        if spec.ttl_s is None or not is_over:
            return None
        return None if job.quarantined else job.finished_at + spec.ttl_s
    due_at = None
    if spec.active_deadline_s is not None and job.active_at is not None:
        due_at = job.active_at + spec.active_deadline_s
    if phase is Phase.RESTARTING:
        if job.retry_at is not None and is_over:
            due_at = _earlier(due_at, job.retry_at)
    elif attempt is not None and phase in ACTIVE:
        if job.crippled_at is not None and not goes_on(spec, attempt, coming=True):
            due_at = _earlier(due_at, job.crippled_at + spec.scheduling.recovery_timeout_s)
        if spec.restart.scope is RestartScope.RANK or job.crippled_at is not None:
            for at in _rank_deadlines(attempt, spec.start_timeout_s):
                due_at = _earlier(due_at, at)
        elif phase is Phase.STARTING:
            due_at = _earlier(due_at, attempt.placed_at + spec.start_timeout_s)
        if phase is Phase.STARTING and attempt.imageless_at is not None:
            due_at = _earlier(due_at, attempt.imageless_at + spec.image_timeout_s)
        if attempt.step_at is not None:
            due_at = _earlier(due_at, attempt.step_at)
        if attempt.safe_until is not None:
            due_at = _earlier(due_at, attempt.safe_until)
    return due_at


def _earlier(one: float | None, other: float) -> float:
    return other if one is None or other < one else one


def _rank_deadlines(attempt: Attempt, start_timeout_s: float) -> Iterator[float]:
    """When the back-off of single ranks ends, and when one that has not started is too late."""
    for rank in attempt.ranks:
        if rank.state is RankState.BACKOFF and rank.retry_at is not None:
            yield rank.retry_at
        elif rank.state is RankState.PENDING:
            yield launched_at(attempt, rank) + start_timeout_s
