"""What would become of a job, told by the scheduler itself on a world that does not change."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from controlplane.admission import admit
from controlplane.attempt import asked_gpus
from controlplane.commands import SubmitJob
from controlplane.devices import WHOLE
from controlplane.events import JobSubmitted, Recorded
from controlplane.job import Job
from controlplane.job_life import begin
from controlplane.lines import Line
from controlplane.model import JobSpec, in_gpus
from controlplane.obstacles import reason_of
from controlplane.queries import AHEAD_MAX, look_at, name_for
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.gangs import Gang, memories_of
from controlplane.scheduling.reasons import Reason
from controlplane.scheduling.schedulability import obstacle_of_draft
from controlplane.scheduling.snapshot import Snapshot
from controlplane.views import Plan, PlannedRank
from controlplane.world import World


def plan(world: World, command: SubmitJob) -> Plan:
    """Raises Rejected as the submission itself would."""
    admit(world, command)
    submitted = JobSubmitted(command.job, command.namespace, command.name, command.spec)
    job = begin(Recorded(world.position + 1, world.at, submitted), submitted)
    if command.suspended:
        return _told(job, "it would be suspended until somebody resumes it")
    obstacle = obstacle_of_draft(world, job)
    if obstacle is not None:
        told = reason_of(obstacle)
        return _told(job, f"it would be set aside as unschedulable: {told.message}", reasons=[told])
    snapshot = _OneMore(world, job)
    outcome = look_at(snapshot, job)
    if outcome.starts is not None:
        return _told(job, "it would start now", ranks=_ranks(job.spec, outcome.starts))
    line = [snapshot.job(place.job) for place in snapshot.line(job.spec.queue).order]
    place = line.index(job) + 1
    first = outcome.reasons[0].message if outcome.reasons else outcome.summary
    return _told(
        job,
        f"it would wait as number {place} in queue {job.spec.queue}: {first}",
        reasons=outcome.reasons,
        place=place,
        ahead=[name_for(job, other) for other in line[: min(place - 1, AHEAD_MAX)]],
    )


class _OneMore(Snapshot):
    """The world as a scheduling pass would see it, had one more job come in."""

    def __init__(self, world: World, job: Job) -> None:
        super().__init__(world)
        self._job = job
        self._gang = Gang(job, memories_of(world), by_request=world.by_request)
        known = super().line(job.spec.queue)
        self._line = Line(
            world.discipline(job.spec.queue), world.policy, by_request=world.by_request
        )
        for place in known.order:
            other = world.jobs[place.job]
            self._line.join(place, other.spec, "", world.estimate(other).planned_s)
        planned_s = world.estimate(job).planned_s
        self._line.join(world.place_in_line(job), job.spec, "", planned_s)

    def line(self, queue: str) -> Line:
        return self._line if queue == self._job.spec.queue else super().line(queue)

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


def _told(
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
    """The value with what its type leaves out when written: fields that equal their defaults."""
    if isinstance(value, Struct):
        return {name: _spelt_out(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_spelt_out(each) for each in value]
    return value
