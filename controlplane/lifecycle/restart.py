"""The verdict after a failure: try again after a back-off, or fail with a reason.

The functions are pure. Failures of the program (an exit code, out of memory) spend the job's
restart budget; failures of the platform (a lost node, an eviction, a preemption) do not, unless the
restart policy counts them.
"""

import zlib
from typing import NamedTuple

from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.model.failures import PLATFORM_CAUSES, Cause, Failure, Restart, is_permanent
from controlplane.model.phases import RankState
from controlplane.model.reasons import (
    BudgetSpent,
    FailureReason,
    RestartRuleForbids,
    TimeoutsSpent,
)
from controlplane.model.spec import RestartPolicy, RestartRule, RestartScope, Role, StartPolicy

JITTER_SHARE = 0.2
# After these a rank may restart on the same devices; after any other cause the gang is placed
# again.
KEEPS_ITS_PLACE = frozenset({Cause.EXIT, Cause.OOM, Cause.EVICTION, Cause.VANISHED})


class Again(NamedTuple):
    """Restart at `retry_at`: the whole gang, or this rank alone."""

    restart: Restart
    streak: int
    retry_at: float
    scope: RestartScope


def retry_after(policy: RestartPolicy, streak: int, key: str) -> float:
    """Seconds to wait before the next try after `streak` failures in a row.

    The wait doubles up to the cap. The jitter takes up to a fifth off, so that gangs stopped by one
    fault do not all return at once; it is derived from `key`, so the same failure always waits the
    same time.
    """
    doubled = policy.backoff_s_first * 2.0 ** min(streak - 1, 60)
    share = zlib.crc32(f"{key}/{streak}".encode()) / 2**32
    return min(doubled, policy.backoff_s_max) * (1.0 - JITTER_SHARE * share)


def after_failure(job: Job, rank: int, now: float) -> Again | Failure:
    """The verdict when a rank of a live attempt has failed."""
    attempt = job.attempt
    assert attempt is not None
    failed = attempt.ranks[rank]
    cause = Cause.VANISHED if failed.cause is None else failed.cause
    restart = Restart(
        at=now,
        attempt=attempt.number,
        cause=cause,
        spends_budget=spends_budget(job.spec.restart, cause),
        rank=rank,
        # A rank that is lost in its back-off did not end with the exit code of its last run.
        exit_code=failed.exit_code if failed.state is RankState.EXITED else None,
        node=attempt.placement[rank].node,
        rank_name=job.spec.rank_name(rank),
        detail=failed.detail,
        reason=failed.reason,
        loss=failed.loss,
    )
    if cause is Cause.CANNOT_RUN:
        return Failure(FailureReason.CANNOT_RUN, rank, failed.exit_code, restart)
    role, _ = job.spec.role_of(rank)
    refusal = _rule_forbids(role, failed, cause)
    if refusal is not None:
        facts = RestartRuleForbids(role.restart)
        return Failure(refusal, rank, failed.exit_code, restart, facts)
    return again(job, restart, now)


def again(job: Job, restart: Restart, now: float) -> Again | Failure:
    """The next try with its back-off, or a failure if the budget is spent."""
    policy = job.spec.restart
    if restart.spends_budget and policy.limit is not None and job.failures >= policy.limit:
        facts = BudgetSpent(job.failures, policy.limit)
        exhausted = FailureReason.RETRIES_EXHAUSTED
        return Failure(exhausted, restart.rank, restart.exit_code, restart, facts)
    if restart.cause is Cause.SCALED:
        # Scaling is not a failure, so there is no back-off.
        return Again(restart, job.streak, now, RestartScope.GANG)
    if restart.cause in (Cause.PREEMPTION, Cause.CONSOLIDATION):
        # The job did not fail, so it may restart as soon as there is room.
        return Again(restart, job.streak, now, RestartScope.GANG)
    streak = _streak(job, now)
    if restart.cause is Cause.START_TIMEOUT and job.spec.start is not None:
        return _after_late_start(job, restart, job.spec.start, now)
    alone = policy.scope is RestartScope.RANK and restart.cause in KEEPS_ITS_PLACE
    scope = RestartScope.RANK if alone else RestartScope.GANG
    # A pod that was removed by hand is recreated at once, unless pods keep vanishing.
    wait_s = 0.0 if restart.cause is Cause.VANISHED and streak == 1 else None
    if wait_s is None:
        wait_s = retry_after(policy, streak, job.id)
    return Again(restart, streak, now + wait_s, scope)


def _after_late_start(
    job: Job, restart: Restart, start: StartPolicy, now: float
) -> Again | Failure:
    """The verdict for a gang that did not start in time.

    The wait doubles with each late start in a row; past the limit the job is suspended.
    """
    late = 1
    for past in reversed(job.restarts):
        if past.cause is not Cause.START_TIMEOUT:
            break
        late += 1
    if start.limit is not None and late > start.limit:
        facts = TimeoutsSpent(late, start.limit)
        return Failure(FailureReason.DEACTIVATED, restart.rank, last=restart, facts=facts)
    wait_s = min(start.backoff_s_first * 2.0 ** min(late - 1, 60), start.backoff_s_max)
    return Again(restart, job.streak, now + wait_s, RestartScope.GANG)


def spends_budget(policy: RestartPolicy, cause: Cause) -> bool:
    """Whether a restart for this cause counts against the restart limit."""
    return cause is not Cause.SCALED and (cause not in PLATFORM_CAUSES or policy.counts_platform)


def _streak(job: Job, now: float) -> int:
    attempt = job.attempt
    began = None if attempt is None else attempt.running_at
    if began is not None and now - began >= job.spec.restart.healthy_after_s:
        return 1
    return job.streak + 1


def _rule_forbids(role: Role, failed: Rank, cause: Cause) -> FailureReason | None:
    """The reason why the role's restart rule ends the job here, or None."""
    match role.restart:
        case RestartRule.NEVER:
            # Never means that nothing runs twice, so a rank that never ran may still be tried. A
            # rank that was removed without a trace is recreated, as Kubernetes does.
            ran = cause not in PLATFORM_CAUSES or failed.started_at is not None
            ends = ran and cause is not Cause.VANISHED
            return FailureReason.RESTART_NEVER if ends else None
        case RestartRule.EXIT_CODE:
            permanent = cause is Cause.EXIT and is_permanent(failed.exit_code)
            permanent |= cause is Cause.OOM and role.oom_is_permanent
            return FailureReason.PERMANENT_EXIT_CODE if permanent else None
        case RestartRule.ALWAYS | RestartRule.ON_FAILURE:
            return None
