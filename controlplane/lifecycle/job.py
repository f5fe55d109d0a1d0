"""A job, and how events change it.

A job is the fold of its events: `begin` makes it from the first event, and `evolve` is the only way
from one state to the next. `evolve` checks the transition table first (`transitions.py`), so an
event that cannot happen now is refused, and then calls the function in `EVOLVE` for the type of the
event.

- A job reaches one finished phase and keeps it: no row of the table leaves one.
- The verdict and the devices are separate. A job is finished at the instant of its verdict; its
  last attempt (`attempt.py`) is over only when every rank has exited or is gone, and a rank keeps
  its devices until then.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from msgspec import UnsetType
from msgspec.structs import replace

from controlplane.lifecycle import attempt as attempts
from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.transitions import TRANSITIONS, require_allowed
from controlplane.model import events as e
from controlplane.model.dependencies import Dependency
from controlplane.model.errors import ImpossibleEvent
from controlplane.model.failures import Cause, Failure, Restart
from controlplane.model.obstacle import Obstacle
from controlplane.model.owners import OwnedBy
from controlplane.model.phases import (
    FINISHED,
    LIVE,
    UP,
    WITH_DEVICES,
    AttemptState,
    Phase,
)
from controlplane.model.reasons import FailureReason, PlatformFault, WaitReason
from controlplane.model.spec import JobSpec, Repair, grows
from controlplane.model.values import Value

_T = TypeVar("_T")


class Job(Value, frozen=True, kw_only=True):
    """The state of one job, as the fold of its events."""

    id: str
    namespace: str
    name: str
    spec: JobSpec
    phase: Phase
    submitted_at: float
    # The positions of the events that submitted it and that last put it in the queue: the queue order.
    submitted_position: int
    queue_position: int
    queued_at: float
    attempt: Attempt | None = None
    # Every restart, oldest first. `failures` counts those that spent the budget, and `streak` those
    # in a row without a healthy run in between.
    restarts: tuple[Restart, ...] = ()
    failures: int = 0
    streak: int = 0
    retry_at: float | None = None
    # When the job was first placed since its last suspension: the active deadline counts from it.
    active_at: float | None = None
    # When it was last suspended and last resumed.
    suspended_at: float | None = None
    resumed_at: float | None = None
    running_at: float | None = None
    finished_at: float | None = None
    # Why it failed, was cancelled or was suspended by the control plane; None once it runs again.
    failure: Failure | None = None
    # The rank whose end ended the job.
    failed_rank: int | None = None
    deleting: bool = False
    # Since when ranks are missing that will be replaced.
    degraded_since: float | None = None
    # The last recorded reason to wait; None once the job is placed.
    wait_reason: WaitReason | None = None
    # The commits of its code that ranks received, oldest first: later attempts get the same.
    commits: tuple[str, ...] = ()
    # GPU-seconds of the attempts before the last one, where the policy counts them.
    gpu_s: float = 0.0
    # Where and how it last stopped an engine; the second time in the same way it is quarantined.
    stopped_engine: str = ""
    # Timers and scheduling ignore the job; it can only be deleted.
    quarantined: bool = False
    # Why it is unschedulable and outside its queue, and since when; None while it is not.
    obstacle: Obstacle | None = None
    set_aside_at: float | None = None
    # The dependencies that must be met before it is queued; empty once they are.
    awaits: tuple[Dependency, ...] = ()
    # What submitted it; None if a person did.
    owner: OwnedBy | None = None

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def reason(self) -> FailureReason | Cause | None:
        """Why it failed, or why it last restarted; None if it has done neither, or has succeeded."""
        if self.failure is not None:
            return self.failure.reason
        if self.restarts and self.phase is not Phase.SUCCEEDED:
            return self.restarts[-1].cause
        return None

    @property
    def live_attempt(self) -> Attempt | None:
        """The attempt that is not over yet, or None."""
        attempt = self.attempt
        return None if attempt is None or attempt.state is AttemptState.OVER else attempt


def begin(recorded: e.Recorded) -> Job:
    """The job after its first event, JobSubmitted."""
    event = recorded.event
    assert isinstance(event, e.JobSubmitted), event
    return Job(
        id=event.job,
        namespace=event.namespace,
        name=event.name,
        spec=event.spec,
        phase=Phase.QUEUED,
        submitted_at=recorded.at,
        submitted_position=recorded.position,
        queue_position=recorded.position,
        queued_at=recorded.at,
        awaits=event.after,
        owner=event.owner,
    )


def evolve(job: Job, recorded: e.Recorded) -> Job:
    """The job after one more event. Raises ImpossibleEvent if it cannot happen to the job now."""
    event = recorded.event
    assert isinstance(event, e.JobEvent), event
    require_allowed(event, job.phase, job.attempt)
    return EVOLVE[type(event)](job, event, recorded.at, recorded.position)


def require_removable(job: Job, event: e.JobRemoved) -> None:
    """Raise ImpossibleEvent if the job cannot be removed now; the event leaves no job to return."""
    require_allowed(event, job.phase, job.attempt)


def _refuse(event: e.JobEvent, why: str) -> NoReturn:
    """Raise ImpossibleEvent where the fold of one event requires more than the table does."""
    raise ImpossibleEvent(f"{type(event).__name__} cannot happen to job {event.job}: {why}")


def _to(job: Job, event: e.JobEvent) -> Phase:
    """The phase that the table leads to."""
    return TRANSITIONS[job.phase, type(event)]


def _placed(job: Job, event: e.GangPlaced, at: float, position: int) -> Job:
    number = 1 if job.attempt is None else job.attempt.number + 1
    if event.attempt != number:
        _refuse(event, f"its attempt is {event.attempt}, not {number}")
    size = len(event.placement)
    # An elastic gang may start with fewer ranks than it asks for.
    if size > job.spec.size:
        _refuse(event, f"{size} ranks are placed of {job.spec.size}")
    if job.awaits:
        _refuse(event, "it waits for other jobs")
    active_at = at if job.active_at is None else job.active_at
    attempt = attempts.placed(event, at)
    phase = _to(job, event)
    placed = replace(job, phase=phase, attempt=attempt, active_at=active_at, wait_reason=None)
    return replace(placed, gpu_s=event.gpu_s) if event.gpu_s else placed


def _dependencies_met(job: Job, event: e.DependenciesMet, at: float, position: int) -> Job:
    if not job.awaits:
        _refuse(event, "it waits for nothing")
    # Its place in the queue counts from here on.
    return replace(job, awaits=(), queue_position=position, queued_at=at)


def _waiting(job: Job, event: e.GangWaiting, at: float, position: int) -> Job:
    return replace(job, wait_reason=event.code)


def _unschedulable(job: Job, event: e.JobUnschedulable, at: float, position: int) -> Job:
    since = at if job.set_aside_at is None else job.set_aside_at
    phase, obstacle = _to(job, event), event.obstacle
    return replace(job, phase=phase, obstacle=obstacle, set_aside_at=since, wait_reason=None)


def _schedulable(job: Job, event: e.JobSchedulable, at: float, position: int) -> Job:
    return replace(job, phase=_to(job, event), obstacle=None, set_aside_at=None)


def _tier_passed(job: Job, event: e.ServiceTierPassed, at: float, position: int) -> Job:
    attempt = _attempt(job)
    if attempt.next_tier_at is None:
        _refuse(event, "its tiers are not counted")
    return replace(job, attempt=replace(attempt, next_tier_at=event.next_at))


def _protection_ended(job: Job, event: e.ProtectionEnded, at: float, position: int) -> Job:
    attempt = _attempt(job)
    if attempt.safe_until is None:
        _refuse(event, "it is not protected")
    return replace(job, attempt=replace(attempt, safe_until=None))


def _ranks_replaced(job: Job, event: e.RanksReplaced, at: float, position: int) -> Job:
    ranks, slots = len(event.ranks), len(event.slots)
    if ranks != slots:
        _refuse(event, f"it has {slots} slots for {ranks} ranks")
    return replace(job, attempt=attempts.replaced(_attempt(job), event, at))


def _gang_started(job: Job, event: e.GangStarted, at: float, position: int) -> Job:
    waiting = [
        i
        for i, rank in enumerate(_attempt(job).ranks)
        if not (rank.state in UP or rank.failed or rank.released)
    ]
    if waiting:
        _refuse(event, f"ranks {waiting} have not started")
    running_at = at if job.running_at is None else job.running_at
    attempt = attempts.moved(job.attempt, event, at)
    return replace(job, phase=_to(job, event), attempt=attempt, running_at=running_at)


def _ranks_started(job: Job, event: e.RanksStarted, at: float, position: int) -> Job:
    attempt = attempts.with_ranks(_attempt(job), event, at)
    if job.degraded_since is not None and attempt.up == len(attempt.ranks):
        return replace(job, attempt=attempt, degraded_since=None)
    return replace(job, attempt=attempt)


def _ranks_changed(job: Job, event: e.JobEvent, at: float, position: int) -> Job:
    return _perhaps_degraded(job, attempts.with_ranks(_attempt(job), event, at), at)


def _perhaps_degraded(job: Job, attempt: Attempt, at: float) -> Job:
    """The job with this attempt, and with `degraded_since` if missing ranks will be replaced."""
    spec = job.spec
    if job.degraded_since is None and attempt.state in LIVE and attempts.replaces_missing(spec):
        waits = spec.scheduling.repair is Repair.REPLACE and attempts.missing(attempt, spec.size)
        if waits or attempts.goes_on(spec, attempt):
            return replace(job, attempt=attempt, degraded_since=at)
    return replace(job, attempt=attempt)


def _ranks_added(job: Job, event: e.RanksAdded, at: float, position: int) -> Job:
    attempt = _attempt(job)
    size = len(attempt.ranks)
    if event.first > size:
        _refuse(event, f"it begins at rank {event.first} of {size}")
    occupied = [i for i in range(event.first, size) if attempt.ranks[i].state in WITH_DEVICES]
    if occupied:
        _refuse(event, f"ranks {occupied} still have their devices")
    return replace(job, attempt=attempts.added(attempt, event, at))


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, f"{job} was never placed"
    return job.attempt


def _attempt_ended(job: Job, event: e.AttemptEnded, at: float, position: int) -> Job:
    with_devices = _attempt(job).with_devices
    if with_devices:
        _refuse(event, f"{with_devices} of its ranks still have their devices")
    return replace(job, attempt=attempts.moved(job.attempt, event, at))


def _succeeded(job: Job, event: e.JobSucceeded, at: float, position: int) -> Job:
    return _finished(job, event, at, None)


def _failed(job: Job, event: e.JobFailed, at: float, position: int) -> Job:
    failed = _finished(job, event, at, event.failure)
    return failed if event.rank is None else replace(failed, failed_rank=event.rank)


def _cancelled(job: Job, event: e.JobCancelled, at: float, position: int) -> Job:
    return _finished(job, event, at, Failure(FailureReason.CANCELLED))


def _finished(job: Job, event: e.JobEvent, at: float, failure: Failure | None) -> Job:
    if job.obstacle is not None:
        job = replace(job, obstacle=None, set_aside_at=None)
    return replace(
        job,
        phase=_to(job, event),
        attempt=attempts.moved(job.attempt, event, at),
        finished_at=at,
        awaits=(),
        retry_at=None,
        degraded_since=None,
        failure=failure,
    )


def _gang_restarting(job: Job, event: e.JobRestarting, at: float, position: int) -> Job:
    return replace(
        _one_more_restart(job, event.restart, event.streak),
        phase=_to(job, event),
        attempt=attempts.moved(job.attempt, event, at),
        retry_at=event.retry_at,
        degraded_since=None,
    )


def _rank_restarting(job: Job, event: e.RankRestarting, at: float, position: int) -> Job:
    restarted = _one_more_restart(job, event.restart, event.streak)
    return replace(restarted, attempt=attempts.with_ranks(_attempt(job), event, at))


def _restarted_in_place(job: Job, event: e.RanksRestartedInPlace, at: float, position: int) -> Job:
    for restart in event.restarts:
        job = _one_more_restart(job, restart, job.streak)
    return replace(job, attempt=attempts.with_ranks(_attempt(job), event, at))


def _one_more_restart(job: Job, restart: Restart, streak: int) -> Job:
    """The job with one more entry in `restarts`."""
    return replace(
        job,
        restarts=(*job.restarts, restart),
        failures=job.failures + restart.spends_budget,
        streak=streak,
        failure=None,
    )


def _requeued(job: Job, event: e.JobRequeued, at: float, position: int) -> Job:
    phase = _to(job, event)
    place = job.queue_position if event.keeps_place else position
    return replace(job, phase=phase, queue_position=place, queued_at=at, retry_at=None)


def _suspended(job: Job, event: e.JobSuspended, at: float, position: int) -> Job:
    attempt = attempts.moved(job.attempt, event, at)
    phase = _to(job, event)
    asleep = replace(
        job,
        phase=phase,
        attempt=attempt,
        retry_at=None,
        active_at=None,
        suspended_at=at,
        wait_reason=None,
    )
    if job.degraded_since is not None:
        asleep = replace(asleep, degraded_since=None)
    if job.obstacle is not None:
        asleep = replace(asleep, obstacle=None, set_aside_at=None)
    return asleep if event.failure is None else replace(asleep, failure=event.failure)


def _resumed(job: Job, event: e.JobResumed, at: float, position: int) -> Job:
    awake = replace(job, phase=_to(job, event), retry_at=at, resumed_at=at)
    resumed_by_owner = job.reason is FailureReason.OWNER_SUSPENDED
    return replace(awake, failure=None) if resumed_by_owner else awake


def _code_resolved(job: Job, event: e.CodeResolved, at: float, position: int) -> Job:
    return replace(job, commits=(*job.commits, event.commit))


def _scaled(job: Job, event: e.JobScaled, at: float, position: int) -> Job:
    if job.spec.role(event.role) is None:
        _refuse(event, f"it has no role {event.role}")
    return replace(job, spec=scaled(job.spec, event.role, event.replicas))


def _amended(job: Job, event: e.JobAmended, at: float, position: int) -> Job:
    return replace(job, spec=amended(job.spec, event))


def _delete_requested(job: Job, event: e.JobDeleteRequested, at: float, position: int) -> Job:
    if job.deleting:
        _refuse(event, "it is being deleted already")
    return replace(job, deleting=True)


def _errored(job: Job, event: e.JobErrored, at: float, position: int) -> Job:
    # The verdict is the next event; the error itself changes nothing.
    return job


def _stopped_engine(job: Job, event: e.EngineFailed, at: float, position: int) -> Job:
    return replace(job, stopped_engine=f"{event.where}: {event.error}")


def _quarantined(job: Job, event: e.JobQuarantined, at: float, position: int) -> Job:
    if job.quarantined:
        _refuse(event, "it is quarantined already")
    failure = Failure(FailureReason.QUARANTINED, facts=fault_of(event))
    return replace(job, quarantined=True, failure=failure, retry_at=None)


# One function for each event. The first event of a job is handled by `begin`, and JobRemoved leaves
# no job.
EVOLVE: dict[type[e.Event], Callable[[Job, Any, float, int], Job]] = {
    e.GangPlaced: _placed,
    e.RanksStarted: _ranks_started,
    e.GangStarted: _gang_started,
    e.RanksExited: _ranks_changed,
    e.RanksLost: _ranks_changed,
    e.RanksReleased: _ranks_changed,
    e.RanksStuck: _ranks_changed,
    e.RanksGone: _ranks_changed,
    e.RankRelaunched: _ranks_changed,
    e.RankRestarting: _rank_restarting,
    e.RanksRestartedInPlace: _restarted_in_place,
    e.RanksAdded: _ranks_added,
    e.RanksReplaced: _ranks_replaced,
    e.DependenciesMet: _dependencies_met,
    e.GangWaiting: _waiting,
    e.JobUnschedulable: _unschedulable,
    e.JobSchedulable: _schedulable,
    e.ServiceTierPassed: _tier_passed,
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


def fault_of(event: e.JobErrored | e.JobQuarantined) -> PlatformFault:
    """The facts of an error in the platform."""
    return PlatformFault(event.where, event.error, event.text)


def scaled(spec: JobSpec, role: str, replicas: int) -> JobSpec:
    """The spec with `replicas` replicas in one role."""
    roles = tuple(replace(r, replicas=replicas) if r.name == role else r for r in spec.roles)
    return replace(spec, roles=roles)


def amended(spec: JobSpec, limits: e.JobAmended) -> JobSpec:
    """The spec with other limits; limits that are unset stay unchanged."""
    return replace(
        spec,
        ttl_s=_or(limits.ttl_s, spec.ttl_s),
        active_deadline_s=_or(limits.active_deadline_s, spec.active_deadline_s),
        restart=replace(spec.restart, limit=_or(limits.restart_limit, spec.restart.limit)),
        clean=_or(limits.clean, spec.clean),
        priority=_or(limits.priority, spec.priority),
        queue=_or(limits.queue, spec.queue),
    )


def _or(limit: _T | UnsetType, known: _T) -> _T:
    return known if isinstance(limit, UnsetType) else limit


def scales_in_place(job: Job, role: str) -> bool:
    """Whether the role can gain and lose ranks while the rest of the gang runs.

    The gang must be able to grow, and the role must be the last one, since ranks are numbered
    through the roles.
    """
    last = job.spec.roles[-1]
    return job.phase is Phase.RUNNING and last.name == role and grows(job.spec)


def ranks_wanted(job: Job) -> range:
    """The ranks that a running gang should have and lacks after it was scaled up; empty if none."""
    attempt, size = job.attempt, job.spec.size
    if job.phase is not Phase.RUNNING or attempt is None or not grows(job.spec):
        return range(0)
    first = attempts.staying(attempt, size)
    if any(rank.state in WITH_DEVICES for rank in attempt.ranks[first:]):
        # Released ranks must be gone before new ranks get their numbers.
        return range(0)
    return range(first, size)


def attained_gpu_s(job: Job) -> float:
    """The GPU-seconds that a job used in its ended attempts."""
    attempt = job.attempt
    if attempt is None or attempt.ended_at is None:
        return job.gpu_s
    return job.gpu_s + attempt.gpus * (attempt.ended_at - attempt.placed_at)


def attained_by(job: Job, now: float) -> float:
    """The GPU-seconds that a job has used until now, those of its live attempt included."""
    attempt = job.live_attempt
    running = 0.0 if attempt is None else attempt.gpus * max(0.0, now - attempt.placed_at)
    return attained_gpu_s(job) + running
