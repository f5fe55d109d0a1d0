"""Jobs in any state for tests of clusters, folded from events as the control plane does it."""

from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.lifecycle.effects import LaunchGang, StopGang
from controlplane.lifecycle.job import Job, begin, evolve
from controlplane.model import events as e
from controlplane.model.cluster import Placement, Slot
from controlplane.model.failures import Cause, Exit, Restart
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, RestartScope, Role


def spec(
    workers: int = 2,
    *,
    servers: int = 0,
    gpus: int = 1,
    work: Workload | None = None,
    scope: RestartScope = RestartScope.GANG,
) -> JobSpec:
    """Workers whose success is the job's, and, if asked for, a role behind them that serves."""
    roles = [Role(name="Worker", replicas=workers, gpus=gpus)]
    if servers:
        roles.append(Role(name="PS", replicas=servers, is_server=True))
    return JobSpec(
        roles=tuple(roles),
        done_when=DoneWhen(role="Worker"),
        restart=RestartPolicy(scope=scope),
        hints=hints_of(work or Workload(duration_s=60.0)),
    )


def is_elastic(role: Role) -> bool:
    """Whether ranks of the role may join and leave while the other ranks run."""
    return role.optional or role.min_replicas is not None or role.max_replicas is not None


def on(*slots: str) -> Placement:
    """Slots from strings such as `node-1:0,1`: a node, and its devices if any."""
    pairs = [slot.partition(":")[::2] for slot in slots]
    return tuple(
        Slot(node, tuple(int(d) for d in devices.split(",") if d)) for node, devices in pairs
    )


def queued(spec: JobSpec, *, id: str = "job-1", at: float = 0.0) -> Job:
    submitted = e.JobSubmitted(id, "default", id, spec)
    return begin(e.Recorded(1, at, submitted))


def placed(
    placement: Placement, spec: JobSpec, *, id: str = "job-1", attempt: int = 1, at: float = 0.0
) -> Job:
    """A job that was given its devices at `at`, for the first time or after earlier attempts."""
    job = queued(spec, id=id, at=at)
    for number in range(1, attempt):
        job = then(
            job,
            at,
            e.GangPlaced(id, number, placement),
            e.JobRestarting(id, Restart(at, number, Cause.EXIT, True), 1, at),
            e.RanksGone(id, number, tuple(range(len(placement)))),
            e.AttemptEnded(id, number),
            e.JobRequeued(id),
        )
    return then(job, at, e.GangPlaced(id, attempt, placement))


def then(job: Job, at: float, *events: e.Event) -> Job:
    """The job after more events."""
    for event in events:
        job = evolve(job, e.Recorded(2, at, event))
    return job


def running(job: Job, at: float) -> Job:
    """The job after all its ranks have started."""
    assert job.attempt is not None
    number, ranks = job.attempt.number, tuple(range(len(job.attempt.ranks)))
    return then(job, at, e.RanksStarted(job.id, number, ranks), e.GangStarted(job.id, number))


def once_more(job: Job, *, rank: int, at: float = 0.0) -> Job:
    """The running job after a rank failed and its back-off passed."""
    assert job.attempt is not None
    number = job.attempt.number
    why = Restart(at=at, attempt=number, cause=Cause.EXIT, spends_budget=True, rank=rank)
    return then(
        job,
        at,
        e.RanksExited(job.id, number, (Exit(rank, 1),)),
        e.RankRestarting(job.id, number, rank, why, 1, at),
        e.RankRelaunched(job.id, number, rank),
    )


def launch(job: Job) -> LaunchGang:
    assert job.attempt is not None
    again = tuple(rank.incarnation for rank in job.attempt.ranks)
    return LaunchGang(job.id, job.attempt.number, again, job)


def stop(job: Job) -> StopGang:
    assert job.attempt is not None
    return StopGang(job.id, job.attempt.number, job)
