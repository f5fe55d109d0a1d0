"""What follows from the state a job is in: success, failure, another try, the end.

Decisions here are read off the state and not off the report that led to it, so whoever looks again
finds them again. `settle` is what follows at once; `due` is what follows because time has passed.
"""

from collections.abc import Sequence

from controlplane import events as e
from controlplane import restart
from controlplane.attained import attained_step, next_step_at
from controlplane.attempt import (
    LIVE,
    Attempt,
    AttemptState,
    Rank,
    RankState,
    lacks_image,
    launched_at,
)
from controlplane.attempt_life import goes_on, is_missing, missing, staying
from controlplane.draft import Decided, Draft
from controlplane.job import ACTIVE, FINISHED, Job, Phase
from controlplane.model import (
    PLATFORM_CAUSES,
    Cause,
    DoneWhen,
    Repair,
    Restart,
    RestartScope,
    Role,
    goes_on_smaller,
)
from controlplane.restart import Again, GiveUp

_UP = (RankState.RUNNING, RankState.EXITED)
# Nothing has become of such a rank yet.
_GOING = (RankState.PENDING, RankState.RUNNING)
_STARTING, _STOPPING, _OVER = AttemptState.STARTING, AttemptState.STOPPING, AttemptState.OVER


def settle(draft: Draft) -> Draft:
    """Adds every decision that the job's state calls for now."""
    attempt = draft.job.attempt
    if attempt is not None and attempt.state in LIVE:
        _judge(draft, attempt)
    return close(draft)


def close(draft: Draft) -> Draft:
    """Adds what follows once nothing is left of an attempt that was told to stop."""
    attempt = draft.job.attempt
    if attempt is not None and attempt.state is _STOPPING and not attempt.holding:
        draft.add(e.AttemptEnded(draft.job.id, attempt.number))
        attempt = draft.job.attempt
    if attempt is None or attempt.state is _OVER:
        _go_on(draft)
    return draft


def _judge(draft: Draft, attempt: Attempt) -> None:
    """Success, failure, or at last every rank up: what the ranks of a live attempt amount to."""
    job = draft.job
    if _has_succeeded(job, attempt):
        draft.add(e.JobSucceeded(job.id))
    elif used_up := _used_up_in_place(job, attempt):
        stop_attempt(draft, used_up)
    elif failing := _failing(draft, attempt):
        _fail(draft, attempt, failing)
    elif attempt.state is _STARTING and _has_started(job, attempt):
        draft.add(e.GangStarted(job.id, attempt.number))


def _has_started(job: Job, attempt: Attempt) -> bool:
    """Whether every rank is up; those that failed count if the job does without them."""
    if attempt.up == len(attempt.ranks):
        return True
    spares = any(role.expendable for role in job.spec.roles)
    if not attempt.up or not spares or job.crippled_at is not None:
        return False
    return all(rank.state in _UP or rank.failed or rank.let_go for rank in attempt.ranks)


def _has_succeeded(job: Job, attempt: Attempt) -> bool:
    # As long as all ranks hold their devices, none of them has exited.
    if attempt.holding == len(attempt.ranks):
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
    """Whether the ranks of the role on which success hangs have ended as the rule wants."""
    if rule.first and deciders and deciders[0].done and deciders[0].exit_code == 0:
        return True
    if role.expendable:
        deciders = [rank for rank in deciders if not rank.failed]
    elif goes_on_smaller(role):
        # Those that were lost on the way had their work taken over by the others.
        deciders = [rank for rank in deciders if not is_missing(rank)]
    done = [rank.done for rank in deciders]
    return True in done and (rule.any or False not in done)


def _failing(draft: Draft, attempt: Attempt) -> list[int]:
    """The ranks that failed and that the job cannot do without."""
    ranks = enumerate(attempt.ranks)
    failing = [i for i, rank in ranks if rank.state not in _GOING and rank.failed]
    if not failing:
        return failing
    spec = draft.job.spec
    failing = [i for i in failing if i < spec.size]
    if spec.scheduling.repair is Repair.REPLACE or goes_on(spec, attempt):
        # Ranks that were lost with their node may be replaced: it is the scheduler's turn.
        failing = [i for i in failing if not is_missing(attempt.ranks[i])]
    return [i for i in failing if not _can_be_spared(draft, attempt, i)]


def _used_up_in_place(job: Job, attempt: Attempt) -> GiveUp | None:
    """Restarts in place have happened already, so the one that uses the budget up is the last."""
    limit = job.spec.restart.limit
    if limit is None or job.failures < max(limit, 1):
        return None
    restarted = sum(rank.restarted for rank in attempt.ranks)
    if not restarted:
        return None
    return GiveUp("retries_exhausted", f"{job.message}; its limit is {limit} restarts", None, None)


def _fail(draft: Draft, attempt: Attempt, failing: list[int]) -> None:
    """One verdict for all ranks that failed; with single-rank restarts, one for each."""
    failing.sort(key=lambda i: attempt.ranks[i].cause not in PLATFORM_CAUSES)
    while failing:
        verdicts = [restart.after_failure(draft.job, i, draft.now) for i in failing]
        verdict = verdicts[0]
        # A lost node takes the other ranks down with it, so their exit codes tell nothing. Among
        # failures of the ranks' own, one that is permanent decides.
        if attempt.ranks[failing[0]].cause not in PLATFORM_CAUSES:
            verdict = next((v for v in verdicts if isinstance(v, GiveUp)), verdict)
        if isinstance(verdict, Again) and verdict.scope is RestartScope.RANK:
            _restart_rank(draft, attempt, failing.pop(0), verdict)
        else:
            stop_attempt(draft, verdict)
            return


def _can_be_spared(draft: Draft, attempt: Attempt, rank: int) -> bool:
    """Whether the rank failed for good and its role is one that goes on without it."""
    role, _ = draft.job.spec.role_of(rank)
    if not role.expendable:
        return False
    there = staying(attempt, draft.job.spec.size)
    others = [attempt.ranks[i] for i in draft.job.spec.ranks_of(role.name) if i < there]
    verdict = restart.after_failure(draft.job, rank, draft.now)
    return isinstance(verdict, GiveUp) and not all(other.failed for other in others)


def stop_attempt(draft: Draft, verdict: Again | GiveUp) -> None:
    """Ends the attempt: for another one after the back-off, or for good."""
    job = draft.job.id
    if isinstance(verdict, GiveUp) and verdict.reason == "deactivated":
        # Not a failure: somebody may look into it and resume the job.
        draft.add(e.JobSuspended(job, verdict.reason, verdict.message))
    elif isinstance(verdict, GiveUp):
        draft.add(e.JobFailed(job, *verdict))
    else:
        draft.add(e.JobRestarting(job, verdict.restart, verdict.streak, verdict.retry_at))


def _restart_rank(draft: Draft, attempt: Attempt, rank: int, again: Again) -> None:
    draft.add(
        e.RankRestarting(
            draft.job.id, attempt.number, rank, again.restart, again.streak, again.retry_at
        )
    )


def _go_on(draft: Draft) -> None:
    """What follows once nothing is left of the last attempt."""
    job = draft.job
    if job.phase is Phase.RESTARTING and job.retry_at is not None and job.retry_at <= draft.now:
        draft.add(e.JobRequeued(job.id, keeps_place=_keeps_place(job)))
    elif job.deleting and job.phase in FINISHED:
        draft.add_removal("deleted")


def _keeps_place(job: Job) -> bool:
    """Whether it was stopped by no fault of its own and goes back to where it stood in line."""
    return bool(job.restarts) and job.reason in _BLAMELESS


_BLAMELESS = frozenset(
    {
        Cause.PREEMPTION.value,
        Cause.CONSOLIDATION.value,
        Cause.NODE_LOST.value,
        Cause.SPOT_RECLAIM.value,
    }
)


def due(job: Job, now: float, position: int) -> Decided:
    """What the passing of time has brought about since `position`. Empty if nothing was due."""
    draft = Draft(job, now, position)
    spec, attempt = job.spec, job.attempt
    if job.phase in FINISHED:
        is_over = attempt is None or attempt.state is _OVER
        if is_over and _is_past(job.finished_at, spec.ttl_s, now):
            draft.add_removal("ttl")
        return draft
    if _is_past(job.active_at, spec.active_deadline_s, now):
        message = f"it was active for its limit of {spec.active_deadline_s:g} s"
        draft.add(e.JobFailed(job.id, "deadline_exceeded", message))
    elif attempt is not None and job.phase in ACTIVE:
        _attempt_due(draft, attempt)
    return settle(draft)


def _attempt_due(draft: Draft, attempt: Attempt) -> None:
    job, now, limit_s = draft.job, draft.now, draft.job.spec.start_timeout_s
    if attempt.step_at is not None and attempt.step_at <= now:
        _pass_step(draft, attempt, attempt.step_at)
    if attempt.safe_until is not None and attempt.safe_until <= now:
        draft.add(e.ProtectionEnded(job.id, attempt.number))
    late_s = job.spec.scheduling.recovery_timeout_s
    if _is_past(job.crippled_at, late_s, now) and not goes_on(job.spec, attempt, coming=True):
        _give_up_repair(draft, attempt)
        return
    if job.phase is Phase.STARTING and _is_past(
        attempt.imageless_at, job.spec.image_timeout_s, now
    ):
        _give_up_images(draft, attempt)
        return
    late = [i for i, rank in enumerate(attempt.ranks) if _is_late(attempt, rank, limit_s, now)]
    if late:
        message = f"{len(late)} of {len(attempt.ranks)} ranks had not started after {limit_s:g} s"
        told = next((i for i in late if attempt.ranks[i].message), None)
        if told is not None:
            message += f"; rank {told}: {attempt.ranks[told].message}"
        spends = restart.spends_budget(job.spec.restart, Cause.START_TIMEOUT)
        ledger = Restart(now, attempt.number, Cause.START_TIMEOUT, spends, message=message)
        stop_attempt(draft, restart.again(job, ledger, now))
        return
    for index, rank in enumerate(attempt.ranks):
        if rank.state is RankState.BACKOFF and rank.retry_at is not None and rank.retry_at <= now:
            draft.add(e.RankRelaunched(job.id, attempt.number, index))


def _give_up_images(draft: Draft, attempt: Attempt) -> None:
    """Another try would ask for the same image, so the job has failed."""
    job = draft.job
    without = [i for i, rank in enumerate(attempt.ranks) if lacks_image(rank)]
    first, others = without[0], len(without) - 1
    message = (
        f"no image for {job.spec.rank_name(first)} on {attempt.placement[first].node}"
        f"{f' and {others} more' if others else ''} within {job.spec.image_timeout_s:g} s; "
        f"{attempt.ranks[first].message}"
    )
    draft.add(e.JobFailed(job.id, "no_image", message, first))


def _pass_step(draft: Draft, attempt: Attempt, passed_at: float) -> None:
    job = draft.job
    had = job.gpu_s + attempt.gpus * (passed_at - attempt.placed_at)
    # It is there by now, whatever rounding makes of the seconds.
    step = attained_step(had * (1 + 1e-9) + 1e-6)
    next_at = next_step_at(step, had_gpu_s=had, gpus=attempt.gpus, at=passed_at)
    draft.add(e.StepPassed(job.id, attempt.number, step, next_at))


def _give_up_repair(draft: Draft, attempt: Attempt) -> None:
    """The lost ranks found no room in time: the gang lets go of all it has and starts again."""
    job, now = draft.job, draft.now
    limit_s = job.spec.scheduling.recovery_timeout_s
    message = f"{len(missing(attempt, draft.job.spec.size))} lost ranks were not replaced within {limit_s:g} s"
    spends = restart.spends_budget(job.spec.restart, Cause.NODE_LOST)
    ledger = Restart(now, attempt.number, Cause.NODE_LOST, spends, message=message)
    stop_attempt(draft, restart.again(job, ledger, now))


def _is_late(attempt: Attempt, rank: Rank, limit_s: float, now: float) -> bool:
    return rank.state is RankState.PENDING and _is_past(launched_at(attempt, rank), limit_s, now)


def _is_past(since: float | None, limit_s: float | None, now: float) -> bool:
    return since is not None and limit_s is not None and since + limit_s <= now
