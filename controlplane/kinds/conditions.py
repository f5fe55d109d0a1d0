"""A job's state as the Kubeflow operators show it: ordered conditions, and counts by role.

Everything is read off the job, so the same job always shows the same conditions, and exactly one of
them is ever terminal. The order is that in which the operators would have set them.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from controlplane.attempt import LIVE, Attempt, Rank, RankState
from controlplane.job import FINISHED, Job, Phase
from controlplane.model import Cause

# Nothing of a rank was harmed by these, so the operators do not call what follows a restart.
_QUIET = (None, Cause.VANISHED, Cause.SCALED)
# Why a job may fail although all that is left of it runs.
_OVERRUN = ("retries_exhausted", "deadline_exceeded")


class Style(NamedTuple):
    """Where the operators differ.

    `needs_all`: a job counts as running only when each of its ranks runs.
    `always_running`: a finished or suspended job has Running=False even if nobody saw it run.
    `runs_first`: a finished job has it too, and before its terminal condition.
    `reasons`: what they call our reasons for a failure.
    """

    needs_all: bool = False
    always_running: bool = False
    runs_first: bool = False
    reasons: Mapping[str, str] = {}


PLAIN = Style()


class _Condition(NamedTuple):
    type: str
    is_true: bool
    reason: str
    at: float
    message: str = ""


def styled(style: Style) -> Callable[[Job], dict[str, Any]]:
    """The status of a kind whose operator has its own ways."""
    return lambda job: status(job, style)


def status(job: Job, style: Style = PLAIN) -> dict[str, Any]:
    """What an operator would have written into the job's status."""
    if job.spec.is_external:
        return {}
    found: dict[str, Any] = {
        "conditions": [_written(condition) for condition in _conditions(job, style)],
        "replicaStatuses": replica_statuses(job),
    }
    started = _start_time(job)
    if started is not None:
        found["startTime"] = timestamp(started)
    if job.finished_at is not None:
        found["completionTime"] = timestamp(job.finished_at)
    return found


def _start_time(job: Job) -> float | None:
    if job.active_at is not None:
        return job.active_at
    return None if job.attempt is None else job.attempt.placed_at


def _conditions(job: Job, style: Style) -> list[_Condition]:
    kind = job.spec.kind
    found = [_Condition("Created", True, f"{kind}Created", job.submitted_at)]
    suspended = job.phase is Phase.SUSPENDED
    if job.resumed_at is not None and not suspended:
        found.append(_Condition("Suspended", False, f"{kind}Resumed", job.resumed_at))
    running = _running(job, style)
    if job.phase in FINISHED:
        found += _ended(job, style, running)
    elif suspended:
        assert job.suspended_at is not None
        stopped = _Condition("Running", False, f"{kind}Suspended", job.suspended_at)
        asleep = _Condition("Suspended", True, f"{kind}Suspended", job.suspended_at)
        if style.always_running:
            found += [asleep, stopped]
        else:
            found += [asleep] if running is None else [stopped, asleep]
    elif _restarts(job, running):
        last = job.restarts[-1]
        found.append(_Condition("Restarting", True, f"{kind}Restarting", last.at, last.message))
    elif running is not None and job.phase not in (Phase.QUEUED, Phase.RESTARTING):
        found.append(_Condition("Running", True, f"{kind}Running", running))
    return found


def _ended(job: Job, style: Style, running: float | None) -> list[_Condition]:
    """The terminal condition, and that the job no longer runs if it ever did."""
    assert job.finished_at is not None
    kind, at = job.spec.kind, job.finished_at
    verdict = {
        Phase.SUCCEEDED: ("Succeeded", f"{kind}Succeeded"),
        Phase.FAILED: ("Failed", style.reasons.get(job.reason, f"{kind}Failed")),
        Phase.CANCELLED: ("Failed", f"{kind}Cancelled"),
    }[job.phase]
    end = _Condition(verdict[0], True, verdict[1], at, job.message)
    stopped = _Condition("Running", False, f"{kind}Running", at)
    if style.runs_first or (running is not None and _was_shown(job, running)):
        return [stopped, end]
    return [end, stopped] if style.always_running else [end]


def _was_shown(job: Job, running: float) -> bool:
    """Whether the job was shown as running before, or at least while, it ended."""
    assert job.finished_at is not None
    if running < job.finished_at:
        return True
    same = running == job.finished_at and job.phase is Phase.FAILED
    return same and job.reason not in _OVERRUN


def _running(job: Job, style: Style) -> float | None:
    """Since when the ranks that speak for the job run, or ran until they were stopped."""
    attempt = job.attempt
    if attempt is None:
        return None
    live = attempt.state in LIVE
    which = range(job.spec.size) if style.needs_all else job.spec.ranks_of(job.spec.done_when.role)
    ranks = [attempt.ranks[i] for i in which if i < len(attempt.ranks)]
    since = [_runs_since(rank, job, live) for rank in ranks]
    known = [at for at in since if at is not None]
    if not known or (style.needs_all and len(known) < len(since)):
        return None
    return max(known) if style.needs_all else min(known)


def _runs_since(rank: Rank, job: Job, live: bool) -> float | None:
    """A rank runs, or ran before its job ended, or ran until it was stopped with the others."""
    if live:
        return rank.started_at if rank.state is RankState.RUNNING else None
    if rank.started_at is None:
        return None
    ended = job.finished_at if job.finished_at is not None else job.suspended_at
    if rank.state is RankState.EXITED and rank.ended_at == rank.started_at == ended:
        return None
    return rank.started_at


def _restarts(job: Job, running: float | None) -> bool:
    """Whether the job, or a rank of it, is between a failure and running again."""
    if not job.restarts or (job.resumed_at or 0.0) > job.restarts[-1].at:
        return False
    attempt = job.attempt
    ranks = attempt.ranks if attempt is not None and attempt.state in LIVE else ()
    if any(rank.retry_at is not None and rank.cause not in _QUIET for rank in ranks):
        return True
    return running is None and job.restarts[-1].cause not in _QUIET


def replica_statuses(job: Job) -> dict[str, dict[str, int]]:
    """How many ranks of each role run, have done their work, and have failed."""
    attempt = job.attempt
    if attempt is None or job.phase is Phase.SUSPENDED:
        return {role.name: _counts([], job) for role in job.spec.roles}
    return {role.name: _counts(_ranks(job, attempt, role.name), job) for role in job.spec.roles}


def _ranks(job: Job, attempt: Attempt, role: str) -> list[Rank]:
    return [attempt.ranks[i] for i in job.spec.ranks_of(role) if i < len(attempt.ranks)]


_FAILED = (RankState.LOST, RankState.BACKOFF)


def _counts(ranks: list[Rank], job: Job) -> dict[str, int]:
    active = sum(rank.state is RankState.RUNNING for rank in ranks)
    done = sum(rank.done for rank in ranks)
    failed = sum(
        rank.state in _FAILED or (rank.state is RankState.EXITED and not rank.done)
        for rank in ranks
    )
    if job.phase is Phase.SUCCEEDED and job.live_attempt is None:
        # What still ran when the job had succeeded was stopped, and counts as having succeeded.
        done += sum(r.state is RankState.GONE and r.started_at is not None for r in ranks)
    return {"active": active, "succeeded": done, "failed": failed}


def timestamp(at: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _written(condition: _Condition) -> dict[str, str]:
    at = timestamp(condition.at)
    return {
        "type": condition.type,
        "status": str(condition.is_true),
        "reason": condition.reason,
        "message": condition.message,
        "lastUpdateTime": at,
        "lastTransitionTime": at,
    }
