"""What events make of a job: `evolve` is the only way to another state."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from controlplane import attempt as a
from controlplane import attempt_life as life
from controlplane import events as e
from controlplane.attempt import Attempt
from controlplane.job import TRANSITIONS, Job, Phase
from controlplane.model import JobSpec, Repair, Restart


def begin(recorded: e.Recorded, event: e.JobSubmitted) -> Job:
    """The first state of a job's life."""
    return begun(event, recorded.at, recorded.position)


def begun(event: e.JobSubmitted, at: Any, position: Any) -> Job:
    # Not as numbers: compiled, each place that they are put into would get one of its own.
    return Job(
        id=event.job,
        namespace=event.namespace,
        name=event.name,
        spec=event.spec,
        phase=Phase.QUEUED,
        submitted_at=at,
        submitted_as=position,
        queued_as=position,
        queued_at=at,
    )


def evolve(job: Job, recorded: e.Recorded) -> Job:
    """The job after one more event; an event that may not happen now is an AssertionError."""
    event = recorded.event
    return EVOLVE[type(event)](job, event, recorded.at, recorded.position)


def _to(job: Job, kind: type[e.JobEvent]) -> Phase:
    """Where the table says that an event takes the job."""
    phase = TRANSITIONS.get((job.phase, kind))
    assert phase is not None, f"{kind.__name__} cannot meet {job}"
    return phase


def _placed(job: Job, event: e.GangPlaced, at: float, position: int) -> Job:
    active_at = at if job.active_at is None else job.active_at
    attempt = life.placed(event, at)
    phase = _to(job, e.GangPlaced)
    placed = replace(job, phase=phase, attempt=attempt, active_at=active_at, held="")
    return replace(placed, gpu_s=event.gpu_s) if event.gpu_s else placed


def _held(job: Job, event: e.GangHeld, at: float, position: int) -> Job:
    return replace(job, held=event.code)


def _unschedulable(job: Job, event: e.JobUnschedulable, at: float, position: int) -> Job:
    since = at if job.set_aside_at is None else job.set_aside_at
    phase, obstacle = _to(job, e.JobUnschedulable), event.obstacle
    return replace(job, phase=phase, obstacle=obstacle, set_aside_at=since, held="")


def _schedulable(job: Job, event: e.JobSchedulable, at: float, position: int) -> Job:
    return replace(job, phase=_to(job, e.JobSchedulable), obstacle=None, set_aside_at=None)


def _step_passed(job: Job, event: e.StepPassed, at: float, position: int) -> Job:
    return replace(job, attempt=replace(_attempt(job), step_at=event.next_at))


def _protection_ended(job: Job, event: e.ProtectionEnded, at: float, position: int) -> Job:
    return replace(job, attempt=replace(_attempt(job), safe_until=None))


def _ranks_replaced(job: Job, event: e.RanksReplaced, at: float, position: int) -> Job:
    return replace(job, attempt=life.replaced(_attempt(job), event, at))


def _gang_started(job: Job, event: e.GangStarted, at: float, position: int) -> Job:
    running_at = at if job.running_at is None else job.running_at
    attempt = life.moved(job.attempt, event, at)
    return replace(job, phase=_to(job, e.GangStarted), attempt=attempt, running_at=running_at)


def _ranks_started(job: Job, event: e.RanksStarted, at: float, position: int) -> Job:
    attempt = life.started(_attempt(job), event, at)
    if job.crippled_at is not None and attempt.up == len(attempt.ranks):
        return replace(job, attempt=attempt, crippled_at=None)
    return replace(job, attempt=attempt)


def _ranks_exited(job: Job, event: e.RanksExited, at: float, position: int) -> Job:
    return _perhaps_crippled(job, life.exited(_attempt(job), event, at), at)


def _ranks_changed(job: Job, event: e.JobEvent, at: float, position: int) -> Job:
    return _perhaps_crippled(job, life.with_ranks(_attempt(job), event, at), at)


def _perhaps_crippled(job: Job, attempt: Attempt, at: float) -> Job:
    """With the time since when ranks are missing, if they are to be replaced."""
    spec = job.spec
    if job.crippled_at is None and attempt.state in a.LIVE and life.replaces_missing(spec):
        waits = spec.scheduling.repair is Repair.REPLACE and life.missing(attempt, spec.size)
        if waits or life.goes_on(spec, attempt):
            return replace(job, attempt=attempt, crippled_at=at)
    return replace(job, attempt=attempt)


def _ranks_added(job: Job, event: e.RanksAdded, at: float, position: int) -> Job:
    return replace(job, attempt=life.added(_attempt(job), event, at))


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, f"{job} was never placed"
    return job.attempt


def _attempt_ended(job: Job, event: e.AttemptEnded, at: float, position: int) -> Job:
    return replace(job, attempt=life.moved(job.attempt, event, at))


def _succeeded(job: Job, event: e.JobSucceeded, at: float, position: int) -> Job:
    return _finished(job, event, at, reason="", message="")


def _failed(job: Job, event: e.JobFailed, at: float, position: int) -> Job:
    failed = _finished(job, event, at, reason=event.reason, message=event.message)
    return failed if event.rank is None else replace(failed, failed_rank=event.rank)


def _cancelled(job: Job, event: e.JobCancelled, at: float, position: int) -> Job:
    return _finished(job, event, at, reason="cancelled", message="")


def _finished(job: Job, event: e.JobEvent, at: float, *, reason: str, message: str) -> Job:
    if job.obstacle is not None:
        job = replace(job, obstacle=None, set_aside_at=None)
    return replace(
        job,
        phase=_to(job, type(event)),
        attempt=life.moved(job.attempt, event, at),
        finished_at=at,
        retry_at=None,
        crippled_at=None,
        reason=reason,
        message=message,
    )


def _gang_restarting(job: Job, event: e.JobRestarting, at: float, position: int) -> Job:
    return replace(
        _one_more_restart(job, event.restart, event.streak),
        phase=_to(job, e.JobRestarting),
        attempt=life.moved(job.attempt, event, at),
        retry_at=event.retry_at,
        crippled_at=None,
    )


def _rank_restarting(job: Job, event: e.RankRestarting, at: float, position: int) -> Job:
    restarted = _one_more_restart(job, event.restart, event.streak)
    return replace(restarted, attempt=life.with_ranks(_attempt(job), event, at))


def _restarted_in_place(job: Job, event: e.RanksRestartedInPlace, at: float, position: int) -> Job:
    for restart in event.restarts:
        job = _one_more_restart(job, restart, job.streak)
    return replace(job, attempt=life.with_ranks(_attempt(job), event, at))


def _one_more_restart(job: Job, restart: Restart, streak: int) -> Job:
    """The job with one more entry in its ledger."""
    return replace(
        job,
        restarts=(*job.restarts, restart),
        failures=job.failures + restart.spends_budget,
        streak=streak,
        reason=restart.cause.value,
        message=restart.message,
    )


def _requeued(job: Job, event: e.JobRequeued, at: float, position: int) -> Job:
    phase = _to(job, e.JobRequeued)
    place = job.queued_as if event.keeps_place else position
    return replace(job, phase=phase, queued_as=place, queued_at=at, retry_at=None)


def _suspended(job: Job, event: e.JobSuspended, at: float, position: int) -> Job:
    attempt = life.moved(job.attempt, event, at)
    phase = _to(job, e.JobSuspended)
    asleep = replace(
        job, phase=phase, attempt=attempt, retry_at=None, active_at=None, suspended_at=at, held=""
    )
    if job.crippled_at is not None:
        asleep = replace(asleep, crippled_at=None)
    if job.obstacle is not None:
        asleep = replace(asleep, obstacle=None, set_aside_at=None)
    if event.reason:
        return replace(asleep, reason=event.reason, message=event.message)
    return asleep


def _resumed(job: Job, event: e.JobResumed, at: float, position: int) -> Job:
    return replace(job, phase=_to(job, e.JobResumed), retry_at=at, resumed_at=at)


def _code_resolved(job: Job, event: e.CodeResolved, at: float, position: int) -> Job:
    return replace(job, commits=(*job.commits, event.commit))


def _scaled(job: Job, event: e.JobScaled, at: float, position: int) -> Job:
    return replace(job, spec=scaled(job.spec, event.role, event.replicas))


def _amended(job: Job, event: e.JobAmended, at: float, position: int) -> Job:
    return replace(job, spec=amended(job.spec, event))


def _delete_requested(job: Job, event: e.JobDeleteRequested, at: float, position: int) -> Job:
    return replace(job, deleting=True)


def _errored(job: Job, event: e.JobErrored, at: float, position: int) -> Job:
    # The verdict comes right behind it; the error itself changes nothing.
    return job


def _stopped_engine(job: Job, event: e.EngineFailed, at: float, position: int) -> Job:
    return replace(job, stopped_engine=f"{event.where}: {event.error}")


def _quarantined(job: Job, event: e.JobQuarantined, at: float, position: int) -> Job:
    message = error_line(event)
    return replace(job, quarantined=True, reason=QUARANTINED, message=message, retry_at=None)


# One function an event; a job's first event is `begin`'s, and JobRemoved leaves no job.
EVOLVE: dict[type[e.Event], Callable[[Job, Any, float, int], Job]] = {
    e.GangPlaced: _placed,
    e.RanksStarted: _ranks_started,
    e.GangStarted: _gang_started,
    e.RanksExited: _ranks_exited,
    e.RanksLost: _ranks_changed,
    e.RanksStuck: _ranks_changed,
    e.RanksGone: _ranks_changed,
    e.RankRelaunched: _ranks_changed,
    e.RankRestarting: _rank_restarting,
    e.RanksRestartedInPlace: _restarted_in_place,
    e.RanksAdded: _ranks_added,
    e.RanksReplaced: _ranks_replaced,
    e.GangHeld: _held,
    e.JobUnschedulable: _unschedulable,
    e.JobSchedulable: _schedulable,
    e.StepPassed: _step_passed,
    e.ProtectionEnded: _protection_ended,
    e.AttemptEnded: _attempt_ended,
    e.JobRestarting: _gang_restarting,
    e.JobRequeued: _requeued,
    e.JobSucceeded: _succeeded,
    e.JobFailed: _failed,
    e.JobCancelled: _cancelled,
    e.JobSuspended: _suspended,
    e.JobResumed: _resumed,
    e.CodeResolved: _code_resolved,
    e.JobScaled: _scaled,
    e.JobAmended: _amended,
    e.JobDeleteRequested: _delete_requested,
    e.JobErrored: _errored,
    e.EngineFailed: _stopped_engine,
    e.JobQuarantined: _quarantined,
}

# Why a job failed that an error of the platform concerns, or that stopped the engine twice.
PLATFORM_ERROR = "platform_error"
QUARANTINED = "quarantined"


def error_line(event: e.JobErrored | e.JobQuarantined) -> str:
    """The facts of an error in one line: operation, type, text."""
    return ": ".join(part for part in (event.where, event.error, event.text) if part)


def scaled(spec: JobSpec, role: str, replicas: int) -> JobSpec:
    """The spec with another number of replicas in one role."""
    roles = tuple(replace(r, replicas=replicas) if r.name == role else r for r in spec.roles)
    return replace(spec, roles=roles)


def amended(spec: JobSpec, limits: e.JobAmended) -> JobSpec:
    """The spec with other limits."""
    return replace(
        spec,
        ttl_s=limits.ttl_s,
        active_deadline_s=limits.active_deadline_s,
        restart=replace(spec.restart, limit=limits.restart_limit),
        clean=limits.clean,
    )


def grows(spec: JobSpec) -> bool:
    """Whether it may run with fewer ranks than it asks for, and get the others later."""
    last = spec.roles[-1]
    if last.expendable or last.min_replicas is not None or last.max_replicas is not None:
        return True
    return spec.min_available is not None and spec.min_available < spec.size


def scales_in_place(job: Job, role: str) -> bool:
    """Whether the role's ranks can come and go while the rest of the gang runs on.

    The role must be made for it, and be the last one, since ranks count through the roles.
    """
    last = job.spec.roles[-1]
    return job.phase is Phase.RUNNING and last.name == role and grows(job.spec)


def ranks_wanted(job: Job) -> range:
    """The ranks that a running gang should have and has not: it was told to grow."""
    attempt, size = job.attempt, job.spec.size
    if job.phase is not Phase.RUNNING or attempt is None or not grows(job.spec):
        return range(0)
    first = life.staying(attempt, size)
    if any(rank.state in a.HOLDING for rank in attempt.ranks[first:]):
        # Those that were let go must have left before others take their numbers.
        return range(0)
    return range(first, size)


def attained_gpu_s(job: Job) -> float:
    """GPUs times seconds that a job has had in the attempts that have ended."""
    attempt = job.attempt
    if attempt is None or attempt.ended_at is None:
        return job.gpu_s
    return job.gpu_s + attempt.gpus * (attempt.ended_at - attempt.placed_at)
