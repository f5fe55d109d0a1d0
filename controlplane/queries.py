"""Read-only answers about a world, in the words that people use."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from controlplane.attempt import Attempt, AttemptState, RankState, asked_gpus
from controlplane.attempt_life import missing
from controlplane.devices import WHOLE
from controlplane.image import Node
from controlplane.job import Job, Phase
from controlplane.job_life import PLATFORM_ERROR
from controlplane.model import JobSpec, in_gpus
from controlplane.obstacles import in_words, reason_of
from controlplane.requests import written
from controlplane.run_lengths import BY_LENGTH, LEVELS
from controlplane.scheduling.cycle import Pass
from controlplane.scheduling.decisions import Claim, Hold, Start
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.reasons import Reason, reason
from controlplane.scheduling.schedulability import present_obstacle, waits_for_nodes
from controlplane.scheduling.snapshot import Snapshot
from controlplane.views import (
    AttemptView,
    EstimateView,
    Failure,
    JobDetail,
    JobView,
    NodeView,
    QueueView,
    RankView,
    SharedGpu,
    Why,
)
from controlplane.world import World

AHEAD_MAX = 10


def job_view(job: Job) -> JobView:
    attempt, spec, obstacle = job.attempt, job.spec, job.obstacle
    return JobView(
        namespace=job.namespace,
        name=job.name,
        id=job.id,
        kind=spec.kind,
        queue=spec.queue,
        priority=spec.priority,
        phase=job.phase,
        reason=job.reason if obstacle is None else obstacle.code,
        message=job.message if obstacle is None else in_words(obstacle),
        gpus=asked_gpus(spec, attempt),
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
        gpu_memory_mib=sum(role.replicas * role.gpu_memory_mib for role in spec.roles),
        set_aside_at=job.set_aside_at,
    )


def _running(attempt: Attempt | None) -> int:
    if attempt is None or attempt.state is AttemptState.OVER:
        return 0
    return sum(rank.state is RankState.RUNNING for rank in attempt.ranks)


def _held(attempt: Attempt | None) -> float:
    if attempt is None or not attempt.holding:
        return 0
    return in_gpus(
        sum(
            attempt.milli(index)
            for index, rank in enumerate(attempt.ranks)
            if rank.state not in (RankState.EXITED, RankState.GONE)
        )
    )


def job_detail(job: Job) -> JobDetail:
    return JobDetail(
        job=job_view(job),
        failure=_failure(job),
        spec=job.spec,
        attempt=None if job.attempt is None else _attempt_view(job.spec, job.attempt),
        restarts=job.restarts,
        commits=job.commits,
        obstacle=job.obstacle,
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
                share=attempt.share(index),
            )
            for index, rank in enumerate(attempt.ranks)
        ],
    )


def node_view(world: World, node: Node) -> NodeView:
    held = sorted(world.tenants.get(node.name, ()))
    free, shared = (
        world.free.masks[node.ordinal].bit_count(),
        world.free.shared.get(node.ordinal, {}),
    )
    untaken = sum(WHOLE - taken for taken in shared.values())
    return NodeView(
        name=node.name,
        rack=node.info.rack,
        gpu_type=node.info.gpu_type,
        gpu_memory_mib=node.info.gpu_memory_mib,
        gpus=node.info.gpus,
        gpus_free=free,
        ready=node.ready,
        cordoned=node.cordoned,
        message=node.message or node.cordon_reason,
        jobs=[full_name(world.jobs[job]) for job in held],
        resources={name: written(name, most) for name, most in node.info.resources.items()},
        resources_free={
            name: written(name, max(0, world.free.left(node.ordinal, name) or 0))
            for name in node.info.resources
        },
        gpus_used=in_gpus((node.info.gpus - free) * WHOLE - untaken),
        shared=[SharedGpu(device=device, taken=shared[device]) for device in sorted(shared)],
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
        gpus_used=in_gpus(world.used_milli(name)),
        jobs_waiting=len(world.waiting.get(name, ())),
        jobs_unschedulable=sum(
            world.jobs[i].spec.queue == name for i in world.by_phase[Phase.UNSCHEDULABLE]
        ),
        parent=queue.parent,
        nominal=queue.nominal,
        borrow_max=queue.borrow_max,
        lend_max=queue.lend_max,
        weight=queue.weight,
        rank=queue.rank,
        flavors=queue.flavors,
        resources=queue.resources,
        discipline=world.discipline(name),
        preempt=Snapshot(world).preempt(name),
        gpus_borrowed=_borrowed(world, name),
    )


def _borrowed(world: World, name: str) -> float:
    snapshot = Snapshot(world)
    if not snapshot.has_quotas:
        return 0.0
    branch = snapshot.tree().branches[name]
    return 0.0 if branch.free_for_all else max(0, branch.used - branch.subtree) / WHOLE


def first_quarantined(world: World, most: int) -> list[str]:
    """The names of quarantined jobs, at most so many."""
    return [full_name(world.jobs[job]) for job in islice(world.quarantined, most)]


def why(world: World, job: Job) -> Why:
    """Why the job waits, restarts, or ended as it did."""
    if job.phase is Phase.QUEUED:
        return _why_queued(world, job)
    if job.phase is Phase.UNSCHEDULABLE:
        return _why_set_aside(world, job)
    reasons = [Reason(code=job.reason, message=job.message)] if job.reason else []
    if job.phase is Phase.STARTING and job.attempt is not None:
        reasons += _stuck(job, job.attempt)
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=_summary(job),
        reasons=reasons,
    )


def _stuck(job: Job, attempt: Attempt) -> list[Reason]:
    """What the cluster says of ranks that do not come up, the same once for all."""
    by_message: dict[str, list[int]] = {}
    for i, rank in enumerate(attempt.ranks):
        if rank.state is RankState.PENDING and rank.message:
            by_message.setdefault(rank.message, []).append(i)
    found = []
    for message, ranks in list(by_message.items())[:AHEAD_MAX]:
        name = job.spec.rank_name(ranks[0]) if ranks[0] < job.spec.size else f"rank {ranks[0]}"
        others = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
        found.append(Reason(code="rank_stuck", message=f"{name}{others}: {message}"))
    return found


def _summary(job: Job) -> str:
    attempt = job.attempt
    match job.phase:
        case Phase.STARTING if attempt is not None:
            return f"{attempt.up} of {len(attempt.ranks)} ranks have started"
        case Phase.RUNNING if attempt is not None and (lost := missing(attempt, job.spec.size)):
            runs = len(attempt.ranks) - len(lost)
            return f"{runs} of {len(attempt.ranks)} ranks run; it waits for room for the lost ones"
        case Phase.RUNNING if attempt is not None:
            return f"all ranks have started; this is attempt {attempt.number}"
        case Phase.RESTARTING if job.live_attempt is not None:
            return "the last attempt is stopping; its devices are held until every rank is gone"
        case Phase.RESTARTING:
            return f"it waits for its back-off to end, after {len(job.restarts)} restarts"
        case Phase.SUSPENDED:
            return "it was suspended; resume it to let it queue again"
        case _ if job.quarantined:
            return (
                "it stopped the control plane and is quarantined: nothing is decided for it any more, "
                f"and it can only be deleted. {job.message}"
            )
        case Phase.FAILED if job.reason == PLATFORM_ERROR:
            return (
                "the platform failed on it; neither the job nor its ranks are to blame. "
                f"{job.message}"
            )
        case Phase.SUCCEEDED:
            return "it has done its work"
        case Phase.CANCELLED:
            return "it was cancelled"
        case _:
            return job.message


def _why_set_aside(world: World, job: Job) -> Why:
    """With the numbers of now: those that were recorded are of when it was set aside."""
    obstacle = present_obstacle(world, job) or job.obstacle
    assert obstacle is not None, job
    told = reason_of(obstacle)
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=f"it could not start even if nothing ran, so it is set aside: {told.message}",
        reasons=[told],
    )


def gpus_wanted(world: World) -> int:
    """GPUs that waiting jobs ask for and could use, if the cluster had them: pools grow by it."""
    ids = (*world.by_phase[Phase.QUEUED], *world.by_phase[Phase.UNSCHEDULABLE])
    jobs = [world.jobs[i] for i in ids]
    return -(-sum(job.spec.gpu_milli for job in jobs if waits_for_nodes(job)) // WHOLE)


def _why_queued(world: World, job: Job) -> Why:
    queue = job.spec.queue
    if job.spec.is_external:
        told = f"it is left to {job.spec.managed_by}, which runs it"
        reasons = [Reason(code="managed_elsewhere", message=told)]
        return Why(
            namespace=job.namespace, name=job.name, phase=job.phase, summary=told, reasons=reasons
        )
    line = world.waiting[queue]
    place = line.index(world.place_in_line(job)) + 1
    ahead = [world.jobs[other.job] for other in line[: place - 1]]
    outcome = look_at(Snapshot(world), job)
    first = outcome.reasons[0].message if outcome.reasons else outcome.summary
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=f"number {place} in queue {queue}: {first}",
        reasons=outcome.reasons,
        place_in_queue=place,
        ahead=[name_for(job, other) for other in ahead[:AHEAD_MAX]],
        planned_at=outcome.planned_at,
        estimate=estimate_view(world, job) if _looks_at_lengths(world, job) else None,
    )


def _looks_at_lengths(world: World, job: Job) -> bool:
    return world.discipline(job.spec.queue) in BY_LENGTH


def estimate_view(world: World, job: Job) -> EstimateView:
    found = world.estimate(job)
    learned = found.learned
    if learned is None:
        return EstimateView(planned_s=found.planned_s, source=found.source)
    return EstimateView(
        planned_s=found.planned_s,
        source=found.source,
        jobs=learned.jobs,
        alike=LEVELS[learned.level],
        median_s=learned.median_s,
        p90_s=learned.p90_s,
    )


def full_name(job: Job) -> str:
    return f"{job.namespace}/{job.name}"


def name_for(reader: Job, other: Job) -> str:
    """What the people of one job may know of another: nothing, in another namespace."""
    return full_name(other) if other.namespace == reader.namespace else "(another namespace)"


class Outcome(NamedTuple):
    """What a scheduling pass makes of one waiting job."""

    starts: Fit | None
    summary: str
    reasons: list[Reason]
    planned_at: float | None = None


def look_at(snapshot: Snapshot, job: Job) -> Outcome:
    """Lets the scheduler itself say what it does with a job now, and why."""
    scheduling = Pass(snapshot, lambda other, _: other.id == job.id)
    starts, reasons, summary = None, list[Reason](), "it waits"
    for decision in scheduling.run():
        if decision.job != job.id:
            continue
        if isinstance(decision, Start):
            starts, summary = decision.fit, "it can start at the next scheduling pass"
        elif isinstance(decision, Claim):
            summary = "it starts as soon as those have left who make room for it"
            reasons = [reason("waiting_for_victims", summary)]
        elif isinstance(decision, Hold):
            reasons = list(decision.reasons)
    planned = [p.starts_at for p in scheduling.planner.planned if p.job == job.id]
    return Outcome(starts, summary, reasons, planned[0] if planned else None)
