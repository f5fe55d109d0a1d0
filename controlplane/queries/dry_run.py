"""What would happen to a job that is not submitted, by a scheduling pass that changes nothing."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from controlplane.decisions.admission import admit
from controlplane.decisions.owner_requests import array_submitted
from controlplane.lifecycle.attempt import asked_gpus
from controlplane.lifecycle.dependencies import Verdict, verdict
from controlplane.lifecycle.job import Job, begin
from controlplane.lifecycle.owner import begin_owner, member_id, member_name
from controlplane.messages import (
    WOULD_BE_SUSPENDED,
    WOULD_START,
    Reason,
    array_plan_summary,
    obstacle_reason,
    would_be_set_aside,
    would_depend,
    would_wait,
)
from controlplane.model.commands import SubmitJob
from controlplane.model.dependencies import Condition
from controlplane.model.events import JobSubmitted, OwnerSubmitted, Recorded
from controlplane.model.spec import JobSpec
from controlplane.model.values import in_gpus
from controlplane.queries.queries import AHEAD_MAX, look_at, name_for
from controlplane.queries.views import Plan, PlannedRank
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.explain.schedulability import obstacle_of_draft
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE
from controlplane.state.queue_order import QueueIndex, QueueIndexView
from controlplane.state.world import World
from controlplane.workflows.dependencies import resolve


def plan(world: World, command: SubmitJob) -> Plan:
    """What would happen if the job were submitted now. Raises Rejected as the submission would."""
    if command.spec.array:
        return _array_plan(world, command)
    admit(world, command)
    after = resolve(world, command.namespace, command.name, command.spec.after)
    submitted = JobSubmitted(
        command.job, command.namespace, command.name, command.spec, after=after
    )
    job = begin(Recorded(world.position + 1, world.at, submitted))
    if command.suspended:
        return _plan_of(job, WOULD_BE_SUSPENDED)
    if after and verdict(after, world.jobs, world.owners)[0] is not Verdict.MET:
        return _plan_of(job, would_depend(after))
    obstacle = obstacle_of_draft(ClusterView(world), job)
    if obstacle is not None:
        reason = obstacle_reason(obstacle)
        return _plan_of(job, would_be_set_aside(reason), reasons=[reason])
    snapshot = _OneMore(world, job)
    outcome = look_at(snapshot, job)
    if outcome.starts is not None:
        return _plan_of(job, WOULD_START, ranks=_ranks(job.spec, outcome.starts))
    line = [snapshot.job(place.job) for place in snapshot.queue_index(job.spec.queue).order]
    place = line.index(job) + 1
    first = outcome.reasons[0].message if outcome.reasons else outcome.summary
    return _plan_of(
        job,
        would_wait(place, job.spec.queue, first),
        reasons=outcome.reasons,
        place=place,
        ahead=[name_for(job, other) for other in line[: min(place - 1, AHEAD_MAX)]],
    )


def _array_plan(world: World, command: SubmitJob) -> Plan:
    """The plan of an array: that of its first index, since all are equal."""
    submitted = array_submitted(world, command)[0]
    assert isinstance(submitted, OwnerSubmitted)
    array = begin_owner(Recorded(world.position + 1, world.at, submitted))
    index = array.spec.indices[0]
    first = replace(
        command,
        job=member_id(array, index),
        name=member_name(array, index),
        spec=replace(array.spec.job, after=array.spec.after),
    )
    if any(after.condition is Condition.CORRESPONDING for after in array.spec.after):
        first = replace(first, spec=array.spec.job)
    first_plan = plan(world, first)
    return replace(
        first_plan,
        name=command.name,
        summary=array_plan_summary(array.spec, first_plan.summary),
    )


class _OneMore(Snapshot):
    """The world as a scheduling pass would see it with one more job in its queue."""

    def __init__(self, world: World, job: Job) -> None:
        super().__init__(world)
        self._job = job
        self._gang = Gang(job, world.devices.memories_mib, by_request=world.waiting.by_request)
        known = super().queue_index(job.spec.queue)
        self._line = QueueIndex(
            world.discipline(job.spec.queue), world.policy, by_request=world.waiting.by_request
        )
        for place in known.order:
            other = world.jobs[place.job]
            self._line.add(place, other.spec, None, world.estimate(other).planned_s)
        planned_s = world.estimate(job).planned_s
        self._line.add(world.waiting.key_of(job), job.spec, None, planned_s)

    def queue_index(self, queue: str) -> QueueIndexView:
        return self._line if queue == self._job.spec.queue else super().queue_index(queue)

    def job(self, job_id: str) -> Job:
        return self._job if job_id == self._job.id else super().job(job_id)

    def gang(self, job_id: str) -> Gang:
        return self._gang if job_id == self._job.id else super().gang(job_id)


def _ranks(spec: JobSpec, fit: Fit) -> list[PlannedRank]:
    return [
        PlannedRank(
            rank=rank,
            name=spec.rank_name(rank),
            node=slot.node,
            devices=slot.devices,
            share=fit.shares[rank] if fit.shares else 0,
        )
        for rank, slot in enumerate(fit.placement)
    ]


def _gpus(spec: JobSpec, ranks: Sequence[PlannedRank]) -> float:
    if not any(rank.share for rank in ranks):
        return asked_gpus(spec)
    return in_gpus(sum(rank.share or WHOLE * len(rank.devices) for rank in ranks))


def _plan_of(
    job: Job,
    summary: str,
    *,
    reasons: Sequence[Reason] = (),
    ranks: Sequence[PlannedRank] = (),
    place: int | None = None,
    ahead: Sequence[str] = (),
) -> Plan:
    return Plan(
        namespace=job.namespace,
        name=job.name,
        kind=job.spec.kind,
        spec=_spelt_out(job.spec),
        gpus=_gpus(job.spec, ranks),
        starts_now=bool(ranks),
        summary=summary,
        reasons=list(reasons),
        ranks=list(ranks),
        place_in_queue=place,
        ahead=list(ahead),
        gpu_memory_mib=sum(role.replicas * role.gpu_memory_mib for role in job.spec.roles),
    )


def _spelt_out(value: Any) -> Any:
    """The value as a document with every field, including those that equal their defaults."""
    if isinstance(value, Struct):
        return {name: _spelt_out(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_spelt_out(each) for each in value]
    return value
