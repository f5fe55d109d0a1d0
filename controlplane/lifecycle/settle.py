"""What follows at once from a job's state: success, failure, another attempt, the end.

Decisions depend on the state and not on the report that led to it, so deciding again from the same
state gives the same events. `timers.py` decides what follows because time has passed.
"""

from collections.abc import Sequence

from controlplane.lifecycle import restart
from controlplane.lifecycle.attempt import Attempt, Rank, goes_on, is_missing, staying
from controlplane.lifecycle.draft import Draft
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.restart import Again
from controlplane.model import events as e
from controlplane.model.failures import PLATFORM_CAUSES, Cause, Failure
from controlplane.model.phases import FINISHED, LIVE, UP, AttemptState, Phase, RankState
from controlplane.model.reasons import BudgetSpentInPlace, FailureReason, JobRemovalReason
from controlplane.model.spec import DoneWhen, Repair, RestartScope, Role, goes_on_smaller

# A rank in one of these states has not ended.
_GOING = (RankState.PENDING, RankState.RUNNING)


def settle(draft: Draft) -> Draft:
    """Add every decision that the job's state calls for now."""
    attempt = draft.job.attempt
    if attempt is not None and attempt.state in LIVE:
        _judge(draft, attempt)
    return close(draft)


def close(draft: Draft) -> Draft:
    """Add what follows once no rank of a stopping attempt holds devices."""
    attempt = draft.job.attempt
    if attempt is not None and attempt.state is AttemptState.STOPPING and not attempt.with_devices:
        draft.add(e.AttemptEnded(draft.job.id, attempt.number))
        attempt = draft.job.attempt
    if attempt is None or attempt.state is AttemptState.OVER:
        _go_on(draft)
    return draft


def _judge(draft: Draft, attempt: Attempt) -> None:
    """Derive success, failure or the gang's start from the ranks of a live attempt."""
    job = draft.job
    if _has_succeeded(job, attempt):
        draft.add(e.JobSucceeded(job.id))
    elif used_up := _used_up_in_place(job, attempt):
        stop_attempt(draft, used_up)
    elif failing := _failing(draft, attempt):
        _fail(draft, attempt, failing)
    elif attempt.state is AttemptState.STARTING and _has_started(job, attempt):
        draft.add(e.GangStarted(job.id, attempt.number))


def _has_started(job: Job, attempt: Attempt) -> bool:
    """Whether every rank is up; failed ranks count if the job continues without them."""
    if attempt.up == len(attempt.ranks):
        return True
    spares = any(role.optional for role in job.spec.roles)
    if not attempt.up or not spares or job.degraded_since is not None:
        return False
    return all(rank.state in UP or rank.failed or rank.released for rank in attempt.ranks)


def _has_succeeded(job: Job, attempt: Attempt) -> bool:
    # While all ranks hold their devices, none of them has exited.
    if attempt.with_devices == len(attempt.ranks):
        return False
    rule, roles, first = job.spec.done_when, job.spec.roles, 0
    for role in roles:
        if role.name == rule.role:
            size = role.replicas if len(roles) == 1 else job.spec.size
            there = min(first + role.replicas, staying(attempt, size))
            return _has_done_its_part(role, rule, attempt.ranks[first:there])
        first += role.replicas
    return False


def _has_done_its_part(role: Role, rule: DoneWhen, deciders: Sequence[Rank]) -> bool:
    """Whether the ranks of the deciding role have ended as the rule demands."""
    if rule.first and deciders and deciders[0].done and deciders[0].exit_code == 0:
        return True
    if role.optional:
        deciders = [rank for rank in deciders if not rank.failed]
    elif goes_on_smaller(role):
        # The remaining ranks have taken over the work of those that were lost.
        deciders = [rank for rank in deciders if not is_missing(rank)]
    done = [rank.done for rank in deciders]
    return True in done and (rule.any or False not in done)


def _failing(draft: Draft, attempt: Attempt) -> list[int]:
    """The ranks that failed and that the job cannot continue without."""
    ranks = enumerate(attempt.ranks)
    failing = [i for i, rank in ranks if rank.state not in _GOING and rank.failed]
    if not failing:
        return failing
    spec = draft.job.spec
    failing = [i for i in failing if i < spec.size]
    if spec.scheduling.repair is Repair.REPLACE or goes_on(spec, attempt):
        # Ranks that were lost with their node may be replaced; the scheduler decides that.
        failing = [i for i in failing if not is_missing(attempt.ranks[i])]
    return [i for i in failing if not _can_be_spared(draft, attempt, i)]


def _used_up_in_place(job: Job, attempt: Attempt) -> Failure | None:
    """The failure if restarts in place have used up the budget, else None.

    Restarts in place are reported after the fact, so the one that reaches the limit is the last.
    """
    limit = job.spec.restart.limit
    if limit is None or job.failures < max(limit, 1):
        return None
    restarted = sum(rank.restarted for rank in attempt.ranks)
    if not restarted:
        return None
    last = job.restarts[-1] if job.restarts else None
    return Failure(FailureReason.RETRIES_EXHAUSTED, last=last, facts=BudgetSpentInPlace(limit))


def _fail(draft: Draft, attempt: Attempt, failing: list[int]) -> None:
    """Decide one verdict for all failed ranks; with single-rank restarts, one for each."""
    failing.sort(key=lambda i: attempt.ranks[i].cause not in PLATFORM_CAUSES)
    while failing:
        verdicts = [restart.after_failure(draft.job, i, draft.now) for i in failing]
        verdict = verdicts[0]
        # The loss of a node makes the other ranks fail too, so their exit codes carry no
        # information. Among the ranks' own failures, a permanent one decides.
        if attempt.ranks[failing[0]].cause not in PLATFORM_CAUSES:
            verdict = next((v for v in verdicts if isinstance(v, Failure)), verdict)
        if isinstance(verdict, Again) and verdict.scope is RestartScope.RANK:
            _restart_rank(draft, attempt, failing.pop(0), verdict)
        else:
            stop_attempt(draft, verdict)
            return


def _can_be_spared(draft: Draft, attempt: Attempt, rank: int) -> bool:
    """Whether the rank failed permanently and its role continues without it."""
    role, _ = draft.job.spec.role_of(rank)
    if not role.optional:
        return False
    there = staying(attempt, draft.job.spec.size)
    others = [attempt.ranks[i] for i in draft.job.spec.ranks_of(role.name) if i < there]
    verdict = restart.after_failure(draft.job, rank, draft.now)
    return isinstance(verdict, Failure) and not all(other.failed for other in others)


def stop_attempt(draft: Draft, verdict: Again | Failure) -> None:
    """End the attempt: with another one after the back-off, or permanently."""
    job = draft.job.id
    if isinstance(verdict, Failure) and verdict.reason is FailureReason.DEACTIVATED:
        # This is not a failure: a person may investigate and resume the job.
        draft.add(e.JobSuspended(job, verdict.reason, verdict.last, verdict.facts))
    elif isinstance(verdict, Failure):
        draft.add(failed(job, verdict))
    else:
        draft.add(e.JobRestarting(job, verdict.restart, verdict.streak, verdict.retry_at))


def failed(job: str, failure: Failure) -> e.JobFailed:
    """The event of a failure."""
    return e.JobFailed(
        job, failure.reason, failure.rank, failure.exit_code, failure.last, failure.facts
    )


def _restart_rank(draft: Draft, attempt: Attempt, rank: int, again: Again) -> None:
    draft.add(
        e.RankRestarting(
            draft.job.id, attempt.number, rank, again.restart, again.streak, again.retry_at
        )
    )


def _go_on(draft: Draft) -> None:
    """Requeue or remove the job once nothing is left of its last attempt."""
    job = draft.job
    if job.phase is Phase.RESTARTING and job.retry_at is not None and job.retry_at <= draft.now:
        draft.add(e.JobRequeued(job.id, keeps_place=_keeps_place(job)))
    elif job.deleting and job.phase in FINISHED:
        draft.add_removal(JobRemovalReason.DELETED)


def _keeps_place(job: Job) -> bool:
    """Whether the platform stopped the job, so that it returns to its old place in the queue."""
    return bool(job.restarts) and job.reason in _BLAMELESS


_BLAMELESS = frozenset(
    {
        Cause.PREEMPTION,
        Cause.CONSOLIDATION,
        Cause.NODE_LOST,
        Cause.SPOT_RECLAIM,
    }
)
