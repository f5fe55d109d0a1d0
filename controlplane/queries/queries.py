"""Read-only answers about a world, for the API and the command line."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from controlplane.lifecycle.attempt import Attempt, asked_gpus
from controlplane.lifecycle.dependencies import Verdict, one_verdict
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner, member_id
from controlplane.messages import (
    Reason,
    cordon_text,
    dependent_summary,
    job_summary,
    job_text,
    loss_text,
    obstacle_reason,
    queued_summary,
    rank_text,
    restart_text,
    set_aside_summary,
    wait_reason,
)
from controlplane.model.dependencies import Dependency
from controlplane.model.failures import Restart
from controlplane.model.phases import AttemptState, Phase, RankState
from controlplane.model.reasons import (
    DependencyOpen,
    ManagedElsewhere,
    RanksNotUp,
    Wait,
    WaitReason,
)
from controlplane.model.resources import written
from controlplane.model.spec import JobSpec
from controlplane.model.values import in_gpus
from controlplane.queries.views import (
    AttemptView,
    EstimateView,
    FailureView,
    JobDetail,
    JobView,
    NodeView,
    QueueView,
    RankView,
    RestartView,
    SharedGpu,
    Why,
)
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.decisions import Claim, KeepWaiting, Start
from controlplane.scheduling.explain.schedulability import present_obstacle, waits_for_nodes
from controlplane.scheduling.placement.fit import Fit
from controlplane.scheduling.preemption.make_room import claim_wait
from controlplane.scheduling.quota.tree import borrowed, lent
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE
from controlplane.state.image import Node
from controlplane.state.run_lengths import LEVELS
from controlplane.state.world import World

AHEAD_MAX = 10


def job_view(job: Job) -> JobView:
    """The job in one row."""
    attempt, spec, obstacle = job.attempt, job.spec, job.obstacle
    return JobView(
        namespace=job.namespace,
        name=job.name,
        id=job.id,
        kind=spec.kind,
        queue=spec.queue,
        priority=spec.priority,
        phase=job.phase,
        reason=(job.reason or "") if obstacle is None else obstacle.code,
        message=job_text(job),
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
        waits_for=tuple(dependency.name for dependency in job.awaits),
        owner="" if job.owner is None else job.owner.name,
        index=None if job.owner is None else job.owner.index,
        user=spec.labels.get("user", ""),
    )


def _running(attempt: Attempt | None) -> int:
    if attempt is None or attempt.state is AttemptState.OVER:
        return 0
    return sum(rank.state is RankState.RUNNING for rank in attempt.ranks)


def _held(attempt: Attempt | None) -> float:
    if attempt is None or not attempt.with_devices:
        return 0
    return in_gpus(
        sum(
            attempt.milli(index)
            for index, rank in enumerate(attempt.ranks)
            if rank.state not in (RankState.EXITED, RankState.GONE)
        )
    )


def job_detail(job: Job) -> JobDetail:
    """The job with its spec, its latest attempt and its restarts."""
    return JobDetail(
        job=job_view(job),
        failure=_failure(job),
        spec=job.spec,
        attempt=None if job.attempt is None else _attempt_view(job.spec, job.attempt),
        restarts=tuple(map(_restart_view, job.restarts)),
        commits=job.commits,
        obstacle=job.obstacle,
    )


def _restart_view(restart: Restart) -> RestartView:
    return RestartView(
        at=restart.at,
        attempt=restart.attempt,
        cause=restart.cause,
        spends_budget=restart.spends_budget,
        message=restart_text(restart),
        rank=restart.rank,
        exit_code=restart.exit_code,
        node=restart.node,
        lost_s=restart.lost_s,
    )


def _failure(job: Job) -> FailureView | None:
    index, attempt = job.failed_rank, job.attempt
    if index is None or attempt is None or index >= len(attempt.ranks):
        return None
    rank = attempt.ranks[index]
    return FailureView(
        rank=index,
        name=job.spec.rank_name(index),
        node=attempt.placement[index].node,
        exit_code=rank.exit_code,
        cause=rank.cause,
        message=rank_text(rank),
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
                # A job that was scaled down since then has fewer ranks now.
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
                message=rank_text(rank),
                reason=rank.reason if rank.loss is None else rank.loss.reason,
                share=attempt.share(index),
            )
            for index, rank in enumerate(attempt.ranks)
        ],
    )


def node_view(world: World, node: Node) -> NodeView:
    """The node with its devices and the jobs on it."""
    held = sorted(world.devices.jobs_by_node.get(node.name, ()))
    free, shared = (
        world.devices.free.masks[node.ordinal].bit_count(),
        world.devices.free.shared.get(node.ordinal, {}),
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
        message=_node_text(node),
        reason=(node.cordon_reason or "") if node.loss is None else node.loss.reason,
        jobs=[full_name(world.jobs[job]) for job in held],
        resources={name: written(name, most) for name, most in node.info.resources.items()},
        resources_free={
            name: written(name, max(0, world.devices.free.left(node.ordinal, name) or 0))
            for name in node.info.resources
        },
        gpus_used=in_gpus((node.info.gpus - free) * WHOLE - untaken),
        shared=[SharedGpu(device=device, taken=shared[device]) for device in sorted(shared)],
    )


def _node_text(node: Node) -> str:
    """Why the node does not respond, or was cordoned; empty if neither."""
    if node.loss is not None:
        return loss_text(node.loss)
    return cordon_text(node.cordon_reason, node.cordon_losses)


def nodes(world: World) -> Iterator[Node]:
    """The nodes that are part of the cluster, in the order of their first report."""
    return (node for node in world.nodes.values() if not node.removed)


def queue_view(world: World, name: str) -> QueueView | None:
    """The queue with its usage, or None if there is no such queue."""
    queue = world.queues.get(name)
    if queue is None:
        return None
    snapshot = Snapshot(world)
    branch = snapshot.tree().branches[name] if snapshot.has_quotas else None
    return QueueView(
        name=name,
        gpus_max=queue.gpus_max,
        gpus_used=in_gpus(world.devices.used_milli(name)),
        jobs_waiting=len(world.waiting.keys(name)),
        jobs_unschedulable=sum(
            world.jobs[i].spec.queue == name for i in world.phases.by_phase[Phase.UNSCHEDULABLE]
        ),
        parent=queue.parent,
        nominal=queue.nominal,
        borrow_max=queue.borrow_max,
        lend_max=queue.lend_max,
        weight=queue.weight,
        rank=queue.rank,
        flavors=queue.flavors,
        resources=queue.resources,
        discipline=world.discipline(name).name,
        preempt=snapshot.preempt(name),
        gpus_borrowed=0.0 if branch is None else borrowed(branch) / WHOLE,
        gpus_lent=0.0 if branch is None else lent(branch) / WHOLE,
    )


def first_quarantined(world: World, most: int) -> list[str]:
    """The names of at most `most` quarantined jobs."""
    return [full_name(world.jobs[job]) for job in islice(world.phases.quarantined, most)]


def why(world: World, job: Job) -> Why:
    """Why the job waits, restarts, or ended as it did."""
    if job.awaits and job.phase is Phase.QUEUED:
        return why_dependent(world, job)
    if job.phase is Phase.QUEUED:
        return _why_queued(world, job)
    if job.phase is Phase.UNSCHEDULABLE:
        return _why_set_aside(world, job)
    reasons = [Reason(code=job.reason, message=job_text(job))] if job.reason else []
    if job.phase is Phase.STARTING and job.attempt is not None:
        reasons += _stuck(job, job.attempt)
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=job_summary(job),
        reasons=reasons,
    )


def why_dependent(world: World, item: Job | Owner) -> Why:
    """Which dependencies of the job or array are still open."""
    reasons = [
        _dependency_reason(world, dependency)
        for dependency in item.awaits
        if one_verdict(dependency, world.jobs, world.owners) is Verdict.OPEN
    ]
    return Why(
        namespace=item.namespace,
        name=item.name,
        phase=Phase.QUEUED,
        summary=dependent_summary(reasons),
        reasons=reasons[:AHEAD_MAX],
    )


def _dependency_reason(world: World, dependency: Dependency) -> Reason:
    facts = DependencyOpen(dependency.name, dependency.condition, _standing(world, dependency))
    return wait_reason(Wait(code=WaitReason.WAITING_FOR_DEPENDENCY, facts=facts))


def _standing(world: World, dependency: Dependency) -> str:
    """Where the target of a dependency is, in one word."""
    owner = world.owners.get(dependency.target)
    job = world.jobs.get(dependency.target)
    if owner is not None and dependency.index is not None:
        job = world.jobs.get(member_id(owner, dependency.index))
    if job is not None:
        return job.phase.value.lower()
    return "not submitted yet" if owner is None or dependency.index else owner.phase.value.lower()


def _stuck(job: Job, attempt: Attempt) -> list[Reason]:
    """Why ranks do not start: each reason of the cluster once, for all ranks with it."""
    by_reason: dict[tuple[str, str], list[int]] = {}
    for i, rank in enumerate(attempt.ranks):
        if rank.state is RankState.PENDING and rank.reason:
            by_reason.setdefault((rank.reason, rank.detail), []).append(i)
    reasons = []
    for (reason, detail), ranks in list(by_reason.items())[:AHEAD_MAX]:
        name = job.spec.rank_name(ranks[0]) if ranks[0] < job.spec.size else f"rank {ranks[0]}"
        facts = RanksNotUp(name, len(ranks) - 1, reason, detail)
        reasons.append(wait_reason(Wait(code=WaitReason.RANK_STUCK, facts=facts)))
    return reasons


def _why_set_aside(world: World, job: Job) -> Why:
    """Why the job is unschedulable, with present numbers instead of the recorded ones."""
    obstacle = present_obstacle(ClusterView(world), job) or job.obstacle
    assert obstacle is not None, job
    reason = obstacle_reason(obstacle)
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=set_aside_summary(reason),
        reasons=[reason],
    )


def gpus_wanted(world: World) -> int:
    """The GPUs that waiting jobs request and could use if the cluster had them: pools grow by it."""
    ids = (*world.phases.by_phase[Phase.QUEUED], *world.phases.by_phase[Phase.UNSCHEDULABLE])
    jobs = [job for job in map(world.jobs.__getitem__, ids) if not job.awaits]
    return -(-sum(job.spec.gpu_milli for job in jobs if waits_for_nodes(job)) // WHOLE)


def _why_queued(world: World, job: Job) -> Why:
    queue = job.spec.queue
    if job.spec.is_external:
        facts = ManagedElsewhere(job.spec.managed_by)
        left = wait_reason(Wait(code=WaitReason.MANAGED_ELSEWHERE, facts=facts))
        return Why(
            namespace=job.namespace,
            name=job.name,
            phase=job.phase,
            summary=left.message,
            reasons=[left],
        )
    line = world.waiting.keys(queue)
    place = line.index(world.waiting.key_of(job)) + 1
    ahead = [world.jobs[other.job] for other in line[: place - 1]]
    outcome = look_at(Snapshot(world), job)
    first = outcome.reasons[0].message if outcome.reasons else outcome.summary
    return Why(
        namespace=job.namespace,
        name=job.name,
        phase=job.phase,
        summary=queued_summary(place, queue, first),
        reasons=outcome.reasons,
        place_in_queue=place,
        ahead=[name_for(job, other) for other in ahead[:AHEAD_MAX]],
        planned_at=outcome.planned_at,
        estimate=estimate_view(world, job) if _looks_at_lengths(world, job) else None,
    )


def _looks_at_lengths(world: World, job: Job) -> bool:
    return world.discipline(job.spec.queue).uses_estimates


def estimate_view(world: World, job: Job) -> EstimateView:
    """How long the job is planned to run, and the source of that estimate."""
    estimate = world.estimate(job)
    learned = estimate.learned
    if learned is None:
        return EstimateView(planned_s=estimate.planned_s, source=estimate.source)
    return EstimateView(
        planned_s=estimate.planned_s,
        source=estimate.source,
        jobs=learned.jobs,
        alike=LEVELS[learned.level],
        median_s=learned.median_s,
        p90_s=learned.p90_s,
    )


def full_name(job: Job) -> str:
    """NAMESPACE/NAME of a job."""
    return f"{job.namespace}/{job.name}"


def name_for(reader: Job, other: Job) -> str:
    """The name of `other` for users of `reader`; hidden if its namespace is another one."""
    return full_name(other) if other.namespace == reader.namespace else "(another namespace)"


class Outcome(NamedTuple):
    """The result of a scheduling pass for one waiting job."""

    starts: Fit | None
    summary: str
    reasons: list[Reason]
    planned_at: float | None = None


def look_at(snapshot: Snapshot, job: Job) -> Outcome:
    """Run a scheduling pass without recording it, and return its result for one job."""
    scheduling = Pass(snapshot, lambda other, _: other.id == job.id)
    starts, reasons, summary = None, list[Reason](), "it waits"
    for decision in scheduling.run():
        if decision.job != job.id:
            continue
        if isinstance(decision, Start):
            starts, summary = decision.fit, "it can start at the next scheduling pass"
        elif isinstance(decision, Claim):
            reasons = [wait_reason(claim_wait(snapshot.cluster, decision))]
        elif isinstance(decision, KeepWaiting):
            reasons = [wait_reason(wait) for wait in decision.reasons]
    planned = [p.starts_at for p in scheduling.planner.planned if p.job == job.id]
    return Outcome(starts, summary, reasons, planned[0] if planned else None)
