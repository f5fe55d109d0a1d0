"""The status of a job as the Kubeflow operators write it: ordered conditions, and counts by role.

Everything is derived from the job, so the same job always has the same conditions, and at most one
of them is terminal. Conditions are in the order in which the operators would have set them.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from controlplane.lifecycle.attempt import Attempt, Rank, is_unready
from controlplane.lifecycle.job import Job
from controlplane.messages import job_text, restart_text
from controlplane.model.failures import Cause, is_permanent
from controlplane.model.phases import FINISHED, LIVE, WAITING, Phase, RankState
from controlplane.model.spec import RestartRule

# The operators do not show a restart after these causes, because no rank failed.
_QUIET = (None, Cause.VANISHED, Cause.SCALED)
# Failures that the operators detect in a reconcile before they look at running pods.
_SEEN_FIRST = ("retries_exhausted", "deadline_exceeded", "permanent_exit_code")


class Style(NamedTuple):
    """The differences between operators.

    `needs_all`: a job counts as running only when all of its ranks run.
    `always_running`: a finished or suspended job has Running=False even if it never ran.
    `runs_first`: a finished job has Running=False too, before its terminal condition.
    `reasons`: the operator's names for Muster's failure reasons.
    `order`: the order in which the operator examines the roles, if it is fixed.
    """

    needs_all: bool = False
    always_running: bool = False
    runs_first: bool = False
    reasons: Mapping[str, str] = {}
    order: tuple[str, ...] = ()


PLAIN = Style()


class _Condition(NamedTuple):
    type: str
    is_true: bool
    reason: str
    at: float
    message: str = ""


def styled(style: Style) -> Callable[[Job], dict[str, Any]]:
    """Return a status function for a kind whose operator has this style."""
    return lambda job: status(job, style)


def status(job: Job, style: Style = PLAIN) -> dict[str, Any]:
    """Return the status that an operator would write; empty for a job of another controller."""
    if job.spec.is_external:
        return {}
    written: dict[str, Any] = {
        "conditions": [_written(condition) for condition in _conditions(job, style)],
        "replicaStatuses": replica_statuses(job),
    }
    started = _start_time(job)
    if started is not None:
        written["startTime"] = timestamp(started)
    if job.finished_at is not None:
        written["completionTime"] = timestamp(job.finished_at)
    return written


def _start_time(job: Job) -> float | None:
    if job.active_at is not None:
        return job.active_at
    return None if job.attempt is None else job.attempt.placed_at


def _conditions(job: Job, style: Style) -> list[_Condition]:
    kind = job.spec.kind
    conditions = [_Condition("Created", True, f"{kind}Created", job.submitted_at)]
    if job.phase is Phase.SUSPENDED:
        return [*conditions, *_asleep(job, style)]
    if job.resumed_at is not None:
        conditions.append(_Condition("Suspended", False, f"{kind}Resumed", job.resumed_at))
    ran = running = _running(job, style)
    if not _is_placed_again(job):
        running = None
    since: list[_Condition] = []
    if job.phase in FINISHED:
        since = _ended(job, style, running)
    elif _restarts(job, running, style):
        last = job.restarts[-1]
        since = [_Condition("Restarting", True, f"{kind}Restarting", last.at, restart_text(last))]
    elif running is not None and job.phase not in (*WAITING, Phase.RESTARTING):
        since = [_Condition("Running", True, f"{kind}Running", running)]
    if job.suspended_at is not None and not _shows_running(since) and _ran_before(job, ran):
        # The condition of the suspension stays until the job runs again.
        conditions.insert(1, _Condition("Running", False, f"{kind}Suspended", job.suspended_at))
    return conditions + since


def _asleep(job: Job, style: Style) -> list[_Condition]:
    assert job.suspended_at is not None
    reason, at = f"{job.spec.kind}Suspended", job.suspended_at
    stopped = _Condition("Running", False, reason, at)
    asleep = _Condition("Suspended", True, reason, at)
    if style.always_running:
        return [asleep, stopped]
    return [stopped, asleep] if _ran_before(job, _running(job, style)) else [asleep]


def _ran_before(job: Job, running: float | None) -> bool:
    """Return whether the job ran until its last suspension; `running` is the result of `_running`.

    Once the job is placed again, nothing of the suspended attempt is left, so any run before the
    suspension counts. A job that was restarting when it was suspended did not run.
    """
    if job.suspended_at is None:
        return False
    if not _is_placed_again(job):
        if running is not None:
            return True
        if job.restarts and job.restarts[-1].at >= (job.running_at or 0.0):
            return False
    return job.running_at is not None and job.running_at <= job.suspended_at


def _is_placed_again(job: Job) -> bool:
    """Return whether the attempt began after the last suspension; True if there was none."""
    return job.suspended_at is None or job.active_at is not None


def _shows_running(conditions: list[_Condition]) -> bool:
    """Return whether one of these already shows that the job runs, ran, or will run again."""
    return any(each.type in ("Running", "Restarting") for each in conditions)


def _ended(job: Job, style: Style, running: float | None) -> list[_Condition]:
    """Return the terminal condition, and Running=False if the job was ever shown as running."""
    assert job.finished_at is not None
    kind, at = job.spec.kind, job.finished_at
    verdict = {
        Phase.SUCCEEDED: ("Succeeded", f"{kind}Succeeded"),
        Phase.FAILED: ("Failed", style.reasons.get(job.reason or "", f"{kind}Failed")),
        Phase.CANCELLED: ("Failed", f"{kind}Cancelled"),
    }[job.phase]
    end = _Condition(verdict[0], True, verdict[1], at, job_text(job))
    stopped = _Condition("Running", False, f"{kind}Running", at)
    first = style.runs_first and not _is_seen_first(job)
    if first or (running is not None and _was_shown(job, running, style)):
        return [stopped, end]
    return [end, stopped] if style.always_running else [end]


def _was_shown(job: Job, running: float, style: Style) -> bool:
    """Return whether the job was shown as running before it ended, or in the same reconcile.

    An operator that detects the failure first does not update Running, because a failed job stays
    as it is.
    """
    assert job.finished_at is not None
    if running < job.finished_at:
        return True
    if running > job.finished_at or job.phase is not Phase.FAILED or _is_seen_first(job):
        return False
    return not any(_has_failed(job, role) for role in _looked_at_first(job, style))


def _is_seen_first(job: Job) -> bool:
    """Return whether the operators detect the failure before they look at running pods."""
    if job.phase is not Phase.FAILED or job.attempt is None:
        return False
    if job.reason in _SEEN_FIRST:
        return True
    roles = [role for role in job.spec.roles if role.restart is RestartRule.EXIT_CODE]
    return any(
        rank.state is RankState.EXITED and rank.cause is Cause.EXIT and is_permanent(rank.exit_code)
        for role in roles
        for rank in _ranks(job, job.attempt, role.name)
        if not ended_by_us(job, rank)
    )


def _looked_at_first(job: Job, style: Style) -> tuple[str, ...]:
    """Return the roles that the operator examines before the role that decides the job."""
    decides = job.spec.done_when.role
    return style.order[: style.order.index(decides)] if decides in style.order else ()


def _has_failed(job: Job, role: str) -> bool:
    assert job.attempt is not None
    ranks = _ranks(job, job.attempt, role)
    return any(
        rank.state in _FAILED or (rank.state is RankState.EXITED and not rank.done)
        for rank in ranks
        if not ended_by_us(job, rank)
    )


def _running(job: Job, style: Style) -> float | None:
    """Return since when the deciding ranks run, or ran until they were stopped; None if they do not.

    With `style.needs_all` these are all ranks of the job.
    """
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
    """Return the start time of a rank that runs, or that ran until its job ended; otherwise None."""
    if live:
        return rank.started_at if rank.state is RankState.RUNNING else None
    if rank.started_at is None:
        return None
    ended = job.finished_at if job.finished_at is not None else job.suspended_at
    if rank.state is RankState.EXITED and rank.ended_at == rank.started_at == ended:
        return None
    return rank.started_at


def _restarts(job: Job, running: float | None, style: Style) -> bool:
    """Return whether the job, or one of its ranks, is between a failure and running again.

    A running role that the operator examines later hides the restart of a rank of an earlier role.
    """
    if not job.restarts or (job.resumed_at or 0.0) > job.restarts[-1].at:
        return False
    attempt = job.attempt
    ranks = attempt.ranks if attempt is not None and attempt.state in LIVE else ()
    hidden = _looked_at_first(job, style) if running is not None else ()
    again = [i for i, x in enumerate(ranks) if x.retry_at is not None and x.cause not in _QUIET]
    if any(i >= job.spec.size or job.spec.role_of(i)[0].name not in hidden for i in again):
        return True
    return running is None and job.restarts[-1].cause not in _QUIET


def replica_statuses(job: Job) -> dict[str, dict[str, int]]:
    """Return the counts of active, succeeded and failed ranks by role."""
    attempt = job.attempt
    if attempt is None or job.phase is Phase.SUSPENDED:
        return {role.name: _counts([], job) for role in job.spec.roles}
    return {role.name: _counts(_ranks(job, attempt, role.name), job) for role in job.spec.roles}


def _ranks(job: Job, attempt: Attempt, role: str) -> list[Rank]:
    return [attempt.ranks[i] for i in job.spec.ranks_of(role) if i < len(attempt.ranks)]


_FAILED = (RankState.LOST, RankState.BACKOFF)


def _counts(ranks: list[Rank], job: Job) -> dict[str, int]:
    active = sum(rank.state is RankState.RUNNING or is_unready(rank) for rank in ranks)
    done = sum(rank.done for rank in ranks)
    stopped = [rank for rank in ranks if not rank.done and ended_by_us(job, rank)]
    failed = sum(
        rank.state in _FAILED or (rank.state is RankState.EXITED and not rank.done)
        for rank in ranks
    ) - len(stopped)
    if job.phase is Phase.SUCCEEDED:
        # Ranks that still ran when the job succeeded were stopped and count as succeeded.
        gone = (
            [rank for rank in ranks if rank.state is RankState.GONE]
            if job.live_attempt is None
            else []
        )
        done += sum(rank.started_at is not None for rank in (*stopped, *gone))
    return {"active": active, "succeeded": done, "failed": failed}


def ended_by_us(job: Job, rank: Rank) -> bool:
    """Return whether a rank ended because Muster stopped its gang, and not by itself."""
    if rank.state not in (RankState.EXITED, RankState.LOST) or rank.ended_at is None:
        return False
    stopped = job.finished_at
    if stopped is None and job.attempt is not None and job.attempt.state not in LIVE:
        stopped = job.restarts[-1].at if job.restarts else None
    return stopped is not None and rank.ended_at > stopped


def timestamp(at: float) -> str:
    """Format a time in Unix seconds as Kubernetes does: RFC 3339 in UTC."""
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
