"""Read-only answers about a world, in the words that people use.

The views here are what the HTTP API returns, field by field: times are UTC seconds, and a field that
does not apply is null.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from controlplane.attempt import Attempt, AttemptState, RankState
from controlplane.job import Job, Phase
from controlplane.model import JobSpec, Restart
from controlplane.scheduling.placement import place
from controlplane.state import Node
from controlplane.world import World, place_in_line

AHEAD_MAX = 10


class JobView(Struct, frozen=True, kw_only=True):
    """A job in one line."""

    namespace: str
    name: str
    id: str
    kind: str
    queue: str
    priority: int
    phase: Phase
    reason: str
    message: str
    gpus: int
    ranks: int
    ranks_running: int
    attempt: int
    restarts: int
    failures: int
    failures_max: int | None
    submitted_at: float
    queued_at: float
    placed_at: float | None
    running_at: float | None
    finished_at: float | None
    retry_at: float | None
    # GPUs that the job holds now; a finished job holds some until its ranks are gone.
    gpus_held: int
    deleting: bool


class RankView(Struct, frozen=True, kw_only=True):
    rank: int
    name: str
    role: str
    state: RankState
    node: str
    devices: tuple[int, ...]
    incarnation: int
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    cause: str | None
    message: str


class AttemptView(Struct, frozen=True, kw_only=True):
    number: int
    state: AttemptState
    placed_at: float
    running_at: float | None
    ended_at: float | None
    ranks: list[RankView]


class Failure(Struct, frozen=True, kw_only=True):
    """The rank whose end made the job fail, and the last lines that it wrote."""

    rank: int
    name: str
    node: str
    exit_code: int | None
    cause: str | None
    message: str
    lines: tuple[str, ...]


class JobDetail(Struct, frozen=True, kw_only=True):
    """A job with its spec, its latest attempt and its restart ledger."""

    job: JobView
    failure: Failure | None
    spec: JobSpec
    attempt: AttemptView | None
    restarts: tuple[Restart, ...]


class NodeView(Struct, frozen=True, kw_only=True):
    name: str
    rack: str
    gpu_type: str
    gpu_memory_mib: int
    gpus: int
    gpus_free: int
    ready: bool
    cordoned: bool
    message: str
    jobs: list[str]


class QueueView(Struct, frozen=True, kw_only=True):
    name: str
    gpus_max: int | None
    gpus_used: int
    jobs_waiting: int


class Reason(Struct, frozen=True, kw_only=True):
    """One reason why a job is not running, with the numbers behind it."""

    code: str
    message: str
    needed: int | None = None
    available: int | None = None


class Why(Struct, frozen=True, kw_only=True):
    """Why a job is in the phase it is in."""

    namespace: str
    name: str
    phase: Phase
    summary: str
    reasons: list[Reason]
    place_in_queue: int | None = None
    ahead: list[str] = []


def job_view(job: Job) -> JobView:
    attempt, spec = job.attempt, job.spec
    return JobView(
        namespace=job.namespace,
        name=job.name,
        id=job.id,
        kind=spec.kind,
        queue=spec.queue,
        priority=spec.priority,
        phase=job.phase,
        reason=job.reason,
        message=job.message,
        gpus=spec.gpus,
        ranks=spec.size,
        ranks_running=_running(attempt),
        attempt=0 if attempt is None else attempt.number,
        restarts=len(job.restarts),
        failures=job.failures,
        failures_max=spec.restart.limit,
        submitted_at=job.submitted_at,
        queued_at=job.queued_at,
        placed_at=None if attempt is None else attempt.placed_at,
        running_at=job.running_at,
        finished_at=job.finished_at,
        retry_at=job.retry_at,
        gpus_held=_held(attempt),
        deleting=job.deleting,
    )


def _running(attempt: Attempt | None) -> int:
    if attempt is None or attempt.state is AttemptState.OVER:
        return 0
    return sum(rank.state is RankState.RUNNING for rank in attempt.ranks)


def _held(attempt: Attempt | None) -> int:
    if attempt is None or not attempt.holding:
        return 0
    pairs = zip(attempt.placement, attempt.ranks, strict=True)
    return sum(
        len(slot.devices)
        for slot, rank in pairs
        if rank.state not in (RankState.EXITED, RankState.GONE)
    )


def job_detail(job: Job) -> JobDetail:
    return JobDetail(
        job=job_view(job),
        failure=_failure(job),
        spec=job.spec,
        attempt=None if job.attempt is None else _attempt_view(job.spec, job.attempt),
        restarts=job.restarts,
    )


def _failure(job: Job) -> Failure | None:
    index, attempt = job.failed_rank, job.attempt
    if index is None or attempt is None or index >= len(attempt.ranks):
        return None
    rank = attempt.ranks[index]
    return Failure(
        rank=index,
        name=job.spec.rank_name(index),
        node=attempt.placement[index].node,
        exit_code=rank.exit_code,
        cause=rank.cause,
        message=rank.message,
        lines=rank.lines,
    )


def _attempt_view(spec: JobSpec, attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        state=attempt.state,
        placed_at=attempt.placed_at,
        running_at=attempt.running_at,
        ended_at=attempt.ended_at,
        ranks=[
            RankView(
                rank=index,
                # A job that was scaled since may have fewer ranks by now.
                name=spec.rank_name(index) if index < spec.size else f"rank-{index}",
                role=spec.role_of(index)[0].name if index < spec.size else "",
                state=rank.state,
                node=attempt.placement[index].node,
                devices=attempt.placement[index].devices,
                incarnation=rank.incarnation,
                started_at=rank.started_at,
                ended_at=rank.ended_at,
                exit_code=rank.exit_code,
                cause=rank.cause,
                message=rank.message,
            )
            for index, rank in enumerate(attempt.ranks)
        ],
    )


def node_view(world: World, node: Node) -> NodeView:
    held = sorted(world.tenants.get(node.name, ()))
    return NodeView(
        name=node.name,
        rack=node.info.rack,
        gpu_type=node.info.gpu_type,
        gpu_memory_mib=node.info.gpu_memory_mib,
        gpus=node.info.gpus,
        gpus_free=world.free.masks[node.ordinal].bit_count(),
        ready=node.ready,
        cordoned=node.cordoned,
        message=node.message,
        jobs=[full_name(world.jobs[job]) for job in held],
    )


def nodes(world: World) -> Iterator[Node]:
    """The nodes that are part of the cluster, in the order in which they were first seen."""
    return (node for node in world.nodes.values() if not node.removed)


def queue_view(world: World, name: str) -> QueueView | None:
    queue = world.queues.get(name)
    if queue is None:
        return None
    return QueueView(
        name=name,
        gpus_max=queue.gpus_max,
        gpus_used=world.used.get(name, 0),
        jobs_waiting=len(world.waiting.get(name, ())),
    )


def why(world: World, job: Job) -> Why:
    """Why the job waits, restarts, or ended as it did."""
    if job.phase is Phase.QUEUED:
        return _why_queued(world, job)
    reasons = [Reason(code=job.reason, message=job.message)] if job.reason else []
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=_summary(job),
        reasons=reasons,
    )


def _summary(job: Job) -> str:
    attempt = job.attempt
    match job.phase:
        case Phase.STARTING if attempt is not None:
            return f"{attempt.up} of {len(attempt.ranks)} ranks have started"
        case Phase.RUNNING if attempt is not None:
            return f"all ranks have started; this is attempt {attempt.number}"
        case Phase.RESTARTING if job.live_attempt is not None:
            return "the last attempt is stopping; its devices are held until every rank is gone"
        case Phase.RESTARTING:
            return f"it waits for its back-off to end, after {len(job.restarts)} restarts"
        case Phase.SUSPENDED:
            return "it was suspended; resume it to let it queue again"
        case Phase.SUCCEEDED:
            return "it has done its work"
        case Phase.CANCELLED:
            return "it was cancelled"
        case _:
            return job.message


def _why_queued(world: World, job: Job) -> Why:
    queue = job.spec.queue
    if job.spec.is_external:
        told = f"it is left to {job.spec.managed_by}, which runs it"
        reasons = [Reason(code="managed_elsewhere", message=told)]
        return Why(
            namespace=job.namespace, name=job.name, phase=job.phase, summary=told, reasons=reasons
        )
    line = world.waiting[queue]
    place = line.index(place_in_line(job)) + 1
    ahead = [world.jobs[job_id] for _, _, job_id in line[: place - 1]]
    reasons = reasons_to_wait(world, job, ahead)
    first = reasons[0].message if reasons else "it can start at the next scheduling pass"
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=f"number {place} in queue {queue}: {first}",
        reasons=reasons,
        place_in_queue=place,
        ahead=[full_name(other) for other in ahead[:AHEAD_MAX]],
    )


def full_name(job: Job) -> str:
    return f"{job.namespace}/{job.name}"


def reasons_to_wait(world: World, job: Job, ahead: Sequence[Job]) -> list[Reason]:
    """Why a job that stands behind these in its line does not start, the nearest reason first."""
    reasons = list(_room_reasons(world, job))
    if not ahead:
        return reasons
    message = (
        f"{len(ahead)} ahead of it in its queue; the first, {full_name(ahead[0])}, "
        f"needs {ahead[0].spec.gpus} GPUs"
    )
    return [Reason(code="ahead_in_queue", message=message, needed=ahead[0].spec.gpus), *reasons]


def _room_reasons(world: World, job: Job) -> Iterator[Reason]:
    spec, queue = job.spec, world.queues[job.spec.queue]
    used = world.used.get(queue.name, 0)
    if queue.gpus_max is not None and used + spec.gpus > queue.gpus_max:
        left = max(0, queue.gpus_max - used)
        yield Reason(
            code="queue_ceiling",
            message=f"it needs {spec.gpus} GPUs; queue {queue.name} has {left} left of its "
            f"{queue.gpus_max}",
            needed=spec.gpus,
            available=left,
        )
    free = world.free.total
    if spec.gpus > free:
        message = f"it needs {spec.gpus} GPUs; {free} are free"
        yield Reason(code="no_room", message=message, needed=spec.gpus, available=free)
    elif place(world.free, spec, world.node_names.__getitem__) is None:
        largest = max((n for n, nodes in enumerate(world.free.by_count) if nodes), default=0)
        message = (
            f"{free} GPUs are free, but not so that every rank finds its "
            f"{max(role.gpus for role in spec.roles)} on one node; the most on one is {largest}"
        )
        yield Reason(code="fragmented", message=message, needed=spec.gpus, available=free)
