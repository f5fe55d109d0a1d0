"""A job's state as the Kubeflow operators show it: ordered conditions, and counts by role.

Everything is read off the job, so the same job always shows the same conditions, and exactly one of
them is ever terminal. The order is that in which the operators would have set them.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from controlplane.attempt import LIVE, Attempt, Rank, RankState, is_unready
from controlplane.job import FINISHED, WAITING, Job, Phase
from controlplane.model import Cause, RestartRule, is_permanent

# Nothing of a rank was harmed by these, so the operators do not call what follows a restart.
_QUIET = (None, Cause.VANISHED, Cause.SCALED)
# Failures that the operators see in a pass before they look at what runs.
_SEEN_FIRST = ("retries_exhausted", "deadline_exceeded", "permanent_exit_code")


class Style(NamedTuple):
    """Where the operators differ.

    `needs_all`: a job counts as running only when each of its ranks runs.
    `always_running`: a finished or suspended job has Running=False even if nobody saw it run.
    `runs_first`: a finished job has it too, and before its terminal condition.
    `reasons`: what they call our reasons for a failure.
    `order`: the order in which the roles are looked at, where that is fixed.
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
    if job.phase is Phase.SUSPENDED:
        return [*found, *_asleep(job, style)]
    if job.resumed_at is not None:
        found.append(_Condition("Suspended", False, f"{kind}Resumed", job.resumed_at))
    ran = running = _running(job, style)
    if not _is_placed_again(job):
        running = None
    since: list[_Condition] = []
    if job.phase in FINISHED:
        since = _ended(job, style, running)
    elif _restarts(job, running, style):
        last = job.restarts[-1]
        since = [_Condition("Restarting", True, f"{kind}Restarting", last.at, last.message)]
    elif running is not None and job.phase not in (*WAITING, Phase.RESTARTING):
        since = [_Condition("Running", True, f"{kind}Running", running)]
    if job.suspended_at is not None and not _tells_of_running(since) and _ran_before(job, ran):
        # It stays as it was while the job was suspended, until the job runs again.
        found.insert(1, _Condition("Running", False, f"{kind}Suspended", job.suspended_at))
    return found + since


def _asleep(job: Job, style: Style) -> list[_Condition]:
    assert job.suspended_at is not None
    reason, at = f"{job.spec.kind}Suspended", job.suspended_at
    stopped = _Condition("Running", False, reason, at)
    asleep = _Condition("Suspended", True, reason, at)
    if style.always_running:
        return [asleep, stopped]
    return [stopped, asleep] if _ran_before(job, _running(job, style)) else [asleep]


def _ran_before(job: Job, running: float | None) -> bool:
    """Whether the job ran until it was last suspended; `running` is what `_running` says of it.

    Once the job is placed again nothing is left of the attempt that was suspended, so any run
    before the suspension counts. A job that was about to start again did not run.
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
    """Whether the job's attempt began after the job was last suspended, if it ever was."""
    return job.suspended_at is None or job.active_at is not None


def _tells_of_running(conditions: list[_Condition]) -> bool:
    """Whether these say that the job runs, ran, or will run again: then nothing else need."""
    return any(each.type in ("Running", "Restarting") for each in conditions)


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
    first = style.runs_first and not _is_seen_first(job)
    if first or (running is not None and _was_shown(job, running, style)):
        return [stopped, end]
    return [end, stopped] if style.always_running else [end]


def _was_shown(job: Job, running: float, style: Style) -> bool:
    """Whether the job was shown as running before, or at least while, it ended.

    A pass that sees the failure first says nothing of what still runs: a failed job stays as it is.
    """
    assert job.finished_at is not None
    if running < job.finished_at:
        return True
    if running > job.finished_at or job.phase is not Phase.FAILED or _is_seen_first(job):
        return False
    return not any(_has_failed(job, role) for role in _looked_at_first(job, style))


def _is_seen_first(job: Job) -> bool:
    """Whether the operators see that the job has failed before they look at what runs."""
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
    """The roles that the operator looks at before the one that decides the job."""
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


def _restarts(job: Job, running: float | None, style: Style) -> bool:
    """Whether the job, or a rank of it, is between a failure and running again.

    What runs and is looked at later hides that a rank of an earlier role starts again.
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
    """How many ranks of each role run, have done their work, and have failed."""
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
        # What still ran when the job had succeeded was stopped, and counts as having succeeded.
        gone = (
            [rank for rank in ranks if rank.state is RankState.GONE]
            if job.live_attempt is None
            else []
        )
        done += sum(rank.started_at is not None for rank in (*stopped, *gone))
    return {"active": active, "succeeded": done, "failed": failed}


def ended_by_us(job: Job, rank: Rank) -> bool:
    """Whether a rank ended after its gang was told to stop, so that its end is not its own doing."""
    if rank.state not in (RankState.EXITED, RankState.LOST) or rank.ended_at is None:
        return False
    stopped = job.finished_at
    if stopped is None and job.attempt is not None and job.attempt.state not in LIVE:
        stopped = job.restarts[-1].at if job.restarts else None
    return stopped is not None and rank.ended_at > stopped


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
