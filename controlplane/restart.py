"""After a failure: how long to wait, or that we give up, and why.

Pure verdicts with reasons. The person's faults (an exit code, out of memory) spend the job's
budget; the platform's (a lost node, an eviction, a preemption) do not, unless the policy asks.
"""

import zlib
from typing import NamedTuple

from controlplane.attempt import Rank, RankState
from controlplane.job import Job
from controlplane.model import (
    PLATFORM_CAUSES,
    Cause,
    Restart,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
    StartPolicy,
    is_permanent,
)

JITTER_SHARE = 0.2
# After these a rank may run once more in the same place; after the others the gang is placed anew.
KEEPS_ITS_PLACE = frozenset({Cause.EXIT, Cause.OOM, Cause.EVICTION, Cause.VANISHED})


class Again(NamedTuple):
    """Try again from `retry_at` on: the gang, or the one rank alone."""

    restart: Restart
    streak: int
    retry_at: float
    scope: RestartScope


class GiveUp(NamedTuple):
    reason: str
    message: str
    rank: int | None
    exit_code: int | None


def retry_after(policy: RestartPolicy, streak: int, key: str) -> float:
    """Seconds to wait before the try after `streak` failures in a row.

    The wait doubles up to the cap. The jitter takes up to a fifth off, so that gangs felled by one
    fault do not return as one; it comes from the key, so the same failure waits the same time
    wherever it is decided.
    """
    doubled = policy.backoff_s_first * 2.0 ** min(streak - 1, 60)
    share = zlib.crc32(f"{key}/{streak}".encode()) / 2**32
    return min(doubled, policy.backoff_s_max) * (1.0 - JITTER_SHARE * share)


def after_failure(job: Job, rank: int, now: float) -> Again | GiveUp:
    """What follows when a rank of a live attempt has failed."""
    attempt = job.attempt
    assert attempt is not None
    failed = attempt.ranks[rank]
    cause = Cause.VANISHED if failed.cause is None else failed.cause
    what = _what_happened(job, rank, failed, cause)
    if cause is Cause.CANNOT_RUN:
        return GiveUp(cause.value, what, rank, failed.exit_code)
    role, _ = job.spec.role_of(rank)
    refusal = _rule_forbids(role, failed, cause)
    if refusal:
        return GiveUp(refusal, f"{what}; restart rule {role.restart}", rank, failed.exit_code)
    restart = Restart(
        at=now,
        attempt=attempt.number,
        cause=cause,
        spends_budget=spends_budget(job.spec.restart, cause),
        rank=rank,
        exit_code=failed.exit_code,
        node=attempt.placement[rank].node,
        message=what,
    )
    return again(job, restart, now)


def again(job: Job, restart: Restart, now: float) -> Again | GiveUp:
    """The next try with its back-off, if the budget allows one."""
    policy = job.spec.restart
    if restart.spends_budget and policy.limit is not None and job.failures >= policy.limit:
        used = f"{job.failures} of {policy.limit} restarts were already used"
        return GiveUp(
            "retries_exhausted", f"{restart.message}; {used}", restart.rank, restart.exit_code
        )
    if restart.cause is Cause.SCALED:
        # Nothing went wrong, so there is nothing to wait for.
        return Again(restart, job.streak, now, RestartScope.GANG)
    if restart.cause in (Cause.PREEMPTION, Cause.CONSOLIDATION):
        # It did nothing wrong: it may come back as soon as there is room for it.
        return Again(restart, job.streak, now, RestartScope.GANG)
    streak = _streak(job, now)
    if restart.cause is Cause.START_TIMEOUT and job.spec.start is not None:
        return _after_late_start(job, restart, job.spec.start, now)
    alone = policy.scope is RestartScope.RANK and restart.cause in KEEPS_ITS_PLACE
    scope = RestartScope.RANK if alone else RestartScope.GANG
    # What somebody removed by hand is put back at once, unless it keeps on vanishing.
    wait_s = 0.0 if restart.cause is Cause.VANISHED and streak == 1 else None
    if wait_s is None:
        wait_s = retry_after(policy, streak, job.id)
    return Again(restart, streak, now + wait_s, scope)


def _after_late_start(job: Job, restart: Restart, start: StartPolicy, now: float) -> Again | GiveUp:
    """A gang that did not come up waits twice as long each time, and in the end is put to sleep."""
    late = 1
    for past in reversed(job.restarts):
        if past.cause is not Cause.START_TIMEOUT:
            break
        late += 1
    if start.limit is not None and late > start.limit:
        told = f"{restart.message}; that was time-out number {late}, and {start.limit} are allowed"
        return GiveUp("deactivated", told, restart.rank, None)
    wait_s = min(start.backoff_s_first * 2.0 ** min(late - 1, 60), start.backoff_s_max)
    return Again(restart, job.streak, now + wait_s, RestartScope.GANG)


def spends_budget(policy: RestartPolicy, cause: Cause) -> bool:
    return cause is not Cause.SCALED and (cause not in PLATFORM_CAUSES or policy.counts_platform)


def _streak(job: Job, now: float) -> int:
    attempt = job.attempt
    began = None if attempt is None else attempt.running_at
    if began is not None and now - began >= job.spec.restart.healthy_after_s:
        return 1
    return job.streak + 1


def _rule_forbids(role: Role, failed: Rank, cause: Cause) -> str:
    """The reason why the role's rule ends the job here, or nothing."""
    match role.restart:
        case RestartRule.NEVER:
            # Never means that nothing runs twice, so a rank that never ran may still be tried; and
            # one that somebody removed without a trace is put back, as Kubernetes would do it.
            ran = cause not in PLATFORM_CAUSES or failed.started_at is not None
            return "restart_never" if ran and cause is not Cause.VANISHED else ""
        case RestartRule.EXIT_CODE:
            permanent = cause is Cause.EXIT and is_permanent(failed.exit_code)
            permanent |= cause is Cause.OOM and role.oom_is_permanent
            return "permanent_exit_code" if permanent else ""
        case RestartRule.ALWAYS | RestartRule.ON_FAILURE:
            return ""


def _what_happened(job: Job, rank: int, failed: Rank, cause: Cause) -> str:
    assert job.attempt is not None
    name, node = job.spec.rank_name(rank), job.attempt.placement[rank].node
    told = f": {failed.message}" if failed.message else ""
    if failed.state is RankState.EXITED and failed.exit_code is not None:
        out_of_memory = " (out of memory)" if cause is Cause.OOM else ""
        return f"{name} exited with code {failed.exit_code}{out_of_memory} on {node}{told}"
    return f"{name} on {node} ended by {cause.value.replace('_', ' ')}{told}"
