"""One job's life.

Laws that hold here:

1. What a job is, is a fold of its events: `evolve` is the only way to another state.
2. `TRANSITIONS` says everything about order. An event it does not allow is a bug, and evolve says
   so loudly.
3. A job has one terminal phase ever: no row of the table leaves one.
4. The verdict and the devices are two things. A job is finished at the instant of its verdict; its
   last attempt (see `attempt.py`, which has a table of its own) is over only when the cluster says
   that every rank is gone, and holds its devices until then.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from controlplane import attempt as a
from controlplane import events as e
from controlplane.attempt import Attempt, AttemptState, RankState, launched_at
from controlplane.model import JobSpec, Restart, RestartScope, Value


class Phase(StrEnum):
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


ACTIVE = (Phase.STARTING, Phase.RUNNING)
AWAKE = (Phase.QUEUED, *ACTIVE, Phase.RESTARTING)
UNFINISHED = (*AWAKE, Phase.SUSPENDED)
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})

# Where each event takes a job from each phase in which it may happen. Restarting is the wait for
# the back-off to pass and for the last attempt to be gone; a resumed job goes through it too.
TRANSITIONS: dict[tuple[Phase, type[e.Event]], Phase] = {
    (Phase.QUEUED, e.GangPlaced): Phase.STARTING,
    (Phase.STARTING, e.GangStarted): Phase.RUNNING,
    **{(phase, e.JobRestarting): Phase.RESTARTING for phase in ACTIVE},
    (Phase.RESTARTING, e.JobRequeued): Phase.QUEUED,
    **{(phase, e.JobSuspended): Phase.SUSPENDED for phase in AWAKE},
    (Phase.SUSPENDED, e.JobResumed): Phase.RESTARTING,
    **{(phase, e.JobSucceeded): Phase.SUCCEEDED for phase in ACTIVE},
    **{(phase, e.JobFailed): Phase.FAILED for phase in AWAKE},
    **{(phase, e.JobCancelled): Phase.CANCELLED for phase in UNFINISHED},
}

# These happen without a change of phase.
PHASE_KEEPERS: frozenset[type[e.Event]] = frozenset(
    {
        e.RanksStarted,
        e.RanksExited,
        e.RanksLost,
        e.RanksGone,
        e.RankRestarting,
        e.RankRelaunched,
        e.AttemptEnded,
        e.JobScaled,
        e.JobDeleteRequested,
    }
)


class Job(Value, frozen=True, kw_only=True):
    id: str
    namespace: str
    name: str
    spec: JobSpec
    phase: Phase
    submitted_at: float
    # The position of the event that put the job in the queue tells who came first.
    queued_as: int
    queued_at: float
    attempt: Attempt | None = None
    # Every restart, oldest first; `failures` of them spent the budget, and `streak` is how many
    # came one upon the other without a healthy run in between.
    restarts: tuple[Restart, ...] = ()
    failures: int = 0
    streak: int = 0
    retry_at: float | None = None
    # When the job was first placed since it was last suspended: the active deadline counts from it.
    active_at: float | None = None
    running_at: float | None = None
    finished_at: float | None = None
    reason: str = ""
    message: str = ""
    deleting: bool = False

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def live_attempt(self) -> Attempt | None:
        """The attempt of which something is left in the cluster, or None."""
        attempt = self.attempt
        return None if attempt is None or attempt.state is AttemptState.OVER else attempt


def begin(recorded: e.Recorded, event: e.JobSubmitted) -> Job:
    """The first state of a job's life."""
    return Job(
        id=event.job,
        namespace=event.namespace,
        name=event.name,
        spec=event.spec,
        phase=Phase.QUEUED,
        submitted_at=recorded.at,
        queued_as=recorded.position,
        queued_at=recorded.at,
    )


def evolve(job: Job, recorded: e.Recorded) -> Job:
    """The job after one more event; an event that may not happen now is an AssertionError."""
    event = recorded.event
    kind = type(event)
    phase = TRANSITIONS.get((job.phase, kind))
    if phase is None:
        assert kind in PHASE_KEEPERS, f"{kind.__name__} at {recorded.position} cannot meet {job}"
        phase = job.phase
    if isinstance(event, e.GangPlaced):
        attempt: Attempt | None = a.placed(event, recorded.at)
    else:
        attempt = a.evolve(job.attempt, event, recorded.at)
    return replace(job, phase=phase, attempt=attempt, **_changes(job, recorded))


def _changes(job: Job, recorded: e.Recorded) -> dict[str, Any]:
    """What an event changes beside the phase and the attempt."""
    at = recorded.at
    match recorded.event:
        case e.GangPlaced():
            return {"active_at": at} if job.active_at is None else {}
        case e.GangStarted():
            return {"running_at": at} if job.running_at is None else {}
        case e.JobSucceeded():
            return {"finished_at": at, "reason": "", "message": ""}
        case e.JobFailed(reason=reason, message=message):
            return {"finished_at": at, "retry_at": None, "reason": reason, "message": message}
        case e.JobCancelled():
            return {"finished_at": at, "retry_at": None, "reason": "cancelled", "message": ""}
        case e.JobRestarting(restart=restart, streak=streak, retry_at=retry_at):
            return {"retry_at": retry_at, **_one_more(job, restart, streak)}
        case e.RankRestarting(restart=restart, streak=streak):
            return _one_more(job, restart, streak)
        case e.JobRequeued():
            return {"queued_as": recorded.position, "queued_at": at, "retry_at": None}
        case e.JobSuspended():
            return {"retry_at": None, "active_at": None}
        case e.JobResumed():
            return {"retry_at": at}
        case e.JobScaled(role=role, replicas=replicas):
            return {"spec": scaled(job.spec, role, replicas)}
        case e.JobDeleteRequested():
            return {"deleting": True}
        case _:
            return {}


def _one_more(job: Job, restart: Restart, streak: int) -> dict[str, Any]:
    """One more entry in the ledger."""
    return {
        "restarts": (*job.restarts, restart),
        "failures": job.failures + restart.spends_budget,
        "streak": streak,
        "reason": restart.cause.value,
        "message": restart.message,
    }


def scaled(spec: JobSpec, role: str, replicas: int) -> JobSpec:
    """The spec with another number of replicas in one role."""
    roles = tuple(replace(r, replicas=replicas) if r.name == role else r for r in spec.roles)
    return replace(spec, roles=roles)


def deadline(job: Job) -> float | None:
    """When something falls due for this job by itself, or None. `decider.due` says what."""
    phase, spec, attempt = job.phase, job.spec, job.attempt
    if phase in FINISHED:
        if spec.ttl_s is None or job.finished_at is None or job.live_attempt is not None:
            return None
        return job.finished_at + spec.ttl_s
    times = []
    if phase is Phase.RESTARTING and job.retry_at is not None and job.live_attempt is None:
        times.append(job.retry_at)
    if spec.active_deadline_s is not None and job.active_at is not None:
        times.append(job.active_at + spec.active_deadline_s)
    if attempt is not None and phase in ACTIVE:
        if spec.restart.scope is RestartScope.RANK:
            times.extend(_rank_deadlines(attempt, spec.start_timeout_s))
        elif phase is Phase.STARTING:
            times.append(attempt.placed_at + spec.start_timeout_s)
    return min(times, default=None)


def _rank_deadlines(attempt: Attempt, start_timeout_s: float) -> Iterator[float]:
    """When the back-off of single ranks ends, and when one that has not started is too late."""
    for rank in attempt.ranks:
        if rank.state is RankState.BACKOFF and rank.retry_at is not None:
            yield rank.retry_at
        elif rank.state is RankState.PENDING:
            yield launched_at(attempt, rank) + start_timeout_s
