"""Timers: when one falls due for a job, and what happens then.

A timer is a field of the job or its attempt (back-off, deadline, time to live), so a restart of the
control plane loses none. `deadline` is the earliest of them; `fire_timers` decides what is due.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from controlplane.lifecycle import restart
from controlplane.lifecycle.attained_service import next_tier_at, service_tier
from controlplane.lifecycle.attempt import (
    Attempt,
    Rank,
    goes_on,
    lacks_image,
    launched_at,
    missing,
)
from controlplane.lifecycle.draft import Decision, Draft
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.settle import settle, stop_attempt
from controlplane.model import events as e
from controlplane.model.failures import Cause, Restart
from controlplane.model.phases import ACTIVE, FINISHED, AttemptState, Phase, RankState
from controlplane.model.reasons import (
    DeadlinePassed,
    FailureReason,
    ImageMissing,
    JobRemovalReason,
    RanksNotReplaced,
    StartTimedOut,
)
from controlplane.model.spec import RestartScope


def deadline(job: Job) -> float | None:
    """When the earliest timer of this job falls due, or None if it has none."""
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
        if job.degraded_since is not None and not goes_on(spec, attempt, coming=True):
            due_at = _earlier(due_at, job.degraded_since + spec.scheduling.recovery_timeout_s)
        if spec.restart.scope is RestartScope.RANK or job.degraded_since is not None:
            for at in _rank_deadlines(attempt, spec.start_timeout_s):
                due_at = _earlier(due_at, at)
        elif phase is Phase.STARTING:
            due_at = _earlier(due_at, attempt.placed_at + spec.start_timeout_s)
        if phase is Phase.STARTING and attempt.image_missing_since is not None:
            due_at = _earlier(due_at, attempt.image_missing_since + spec.image_timeout_s)
        if attempt.next_tier_at is not None:
            due_at = _earlier(due_at, attempt.next_tier_at)
        if attempt.safe_until is not None:
            due_at = _earlier(due_at, attempt.safe_until)
    return due_at


def _earlier(one: float | None, other: float) -> float:
    return other if one is None or other < one else one


def _rank_deadlines(attempt: Attempt, start_timeout_s: float) -> Iterator[float]:
    """The ends of single ranks' back-offs, and of the start timeouts of pending ranks."""
    for rank in attempt.ranks:
        if rank.state is RankState.BACKOFF and rank.retry_at is not None:
            yield rank.retry_at
        elif rank.state is RankState.PENDING:
            yield launched_at(attempt, rank) + start_timeout_s


def fire_timers(job: Job, now: float, position: int) -> Decision:
    """The events of every timer that is due at `now`; none if nothing is due.

    `position` is that of the last event in the log.
    """
    draft = Draft(job, now, position)
    spec, attempt = job.spec, job.attempt
    if job.phase in FINISHED:
        is_over = attempt is None or attempt.state is AttemptState.OVER
        if is_over and _is_past(job.finished_at, spec.ttl_s, now):
            draft.add_removal(JobRemovalReason.TTL)
        return draft
    if spec.active_deadline_s is not None and _is_past(job.active_at, spec.active_deadline_s, now):
        facts = DeadlinePassed(spec.active_deadline_s)
        draft.add(e.JobFailed(job.id, FailureReason.DEADLINE_EXCEEDED, facts=facts))
    elif attempt is not None and job.phase in ACTIVE:
        _attempt_due(draft, attempt)
    return settle(draft)


def _attempt_due(draft: Draft, attempt: Attempt) -> None:
    job, now, limit_s = draft.job, draft.now, draft.job.spec.start_timeout_s
    if attempt.next_tier_at is not None and attempt.next_tier_at <= now:
        _pass_tier(draft, attempt, attempt.next_tier_at)
    if attempt.safe_until is not None and attempt.safe_until <= now:
        draft.add(e.ProtectionEnded(job.id, attempt.number))
    late_s = job.spec.scheduling.recovery_timeout_s
    if _is_past(job.degraded_since, late_s, now) and not goes_on(job.spec, attempt, coming=True):
        _give_up_repair(draft, attempt)
        return
    if job.phase is Phase.STARTING and _is_past(
        attempt.image_missing_since, job.spec.image_timeout_s, now
    ):
        _give_up_images(draft, attempt)
        return
    late = [i for i, rank in enumerate(attempt.ranks) if _is_late(attempt, rank, limit_s, now)]
    if late:
        stuck = next((i for i in late if attempt.ranks[i].reason), None)
        facts = StartTimedOut(len(late), len(attempt.ranks), limit_s)
        if stuck is not None:
            rank = attempt.ranks[stuck]
            facts = replace(facts, stuck_rank=stuck, reason=rank.reason, detail=rank.detail)
        spends = restart.spends_budget(job.spec.restart, Cause.START_TIMEOUT)
        ledger = Restart(now, attempt.number, Cause.START_TIMEOUT, spends, facts=facts)
        stop_attempt(draft, restart.again(job, ledger, now))
        return
    for index, rank in enumerate(attempt.ranks):
        if rank.state is RankState.BACKOFF and rank.retry_at is not None and rank.retry_at <= now:
            draft.add(e.RankRelaunched(job.id, attempt.number, index))


def _give_up_images(draft: Draft, attempt: Attempt) -> None:
    """Fail the job: another attempt would request the same image."""
    job = draft.job
    without = [i for i, rank in enumerate(attempt.ranks) if lacks_image(rank)]
    first, others = without[0], len(without) - 1
    assert job.spec.image_timeout_s is not None
    facts = ImageMissing(
        rank_name=job.spec.rank_name(first),
        node=attempt.placement[first].node,
        others=others,
        limit_s=job.spec.image_timeout_s,
        reason=attempt.ranks[first].reason,
        detail=attempt.ranks[first].detail,
    )
    draft.add(e.JobFailed(job.id, FailureReason.NO_IMAGE, first, facts=facts))


def _pass_tier(draft: Draft, attempt: Attempt, passed_at: float) -> None:
    job = draft.job
    had = job.gpu_s + attempt.gpus * (passed_at - attempt.placed_at)
    # The tier is reached by now; the margin absorbs rounding of the seconds.
    tier = service_tier(had * (1 + 1e-9) + 1e-6)
    next_at = next_tier_at(tier, had_gpu_s=had, gpus=attempt.gpus, at=passed_at)
    draft.add(e.ServiceTierPassed(job.id, attempt.number, tier, next_at))


def _give_up_repair(draft: Draft, attempt: Attempt) -> None:
    """Restart the whole gang: the lost ranks got no devices within the recovery timeout."""
    job, now = draft.job, draft.now
    limit_s = job.spec.scheduling.recovery_timeout_s
    assert limit_s is not None
    facts = RanksNotReplaced(len(missing(attempt, job.spec.size)), limit_s)
    spends = restart.spends_budget(job.spec.restart, Cause.NODE_LOST)
    ledger = Restart(now, attempt.number, Cause.NODE_LOST, spends, facts=facts)
    stop_attempt(draft, restart.again(job, ledger, now))


def _is_late(attempt: Attempt, rank: Rank, limit_s: float, now: float) -> bool:
    return rank.state is RankState.PENDING and _is_past(launched_at(attempt, rank), limit_s, now)


def _is_past(since: float | None, limit_s: float | None, now: float) -> bool:
    return since is not None and limit_s is not None and since + limit_s <= now
