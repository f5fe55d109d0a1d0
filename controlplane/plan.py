"""What would become of a job, told by the scheduler itself on a world that does not change."""

from bisect import insort
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from controlplane.admission import admit
from controlplane.commands import SubmitJob
from controlplane.events import JobSubmitted, Recorded
from controlplane.job import Job, begin
from controlplane.model import JobSpec, Placement
from controlplane.queries import AHEAD_MAX, Reason, full_name, reasons_to_wait
from controlplane.scheduling.cycle import schedule
from controlplane.scheduling.snapshot import Snapshot
from controlplane.world import Waiting, World, place_in_line


class PlannedRank(Struct, frozen=True, kw_only=True):
    """Where a rank would run."""

    rank: int
    name: str
    node: str
    devices: tuple[int, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """What would happen if the job were submitted now. Nothing was stored.

    `spec` is the job as it was understood, with every default spelt out. A job that would start
    has `ranks`; one that would wait has `reasons`, its place in the queue and who is ahead.
    """

    namespace: str
    name: str
    kind: str
    spec: dict[str, Any]
    gpus: int
    starts_now: bool
    summary: str
    reasons: list[Reason]
    ranks: list[PlannedRank]
    place_in_queue: int | None
    ahead: list[str]


def plan(world: World, command: SubmitJob) -> Plan:
    """Raises Rejected as the submission itself would."""
    admit(world, command)
    submitted = JobSubmitted(command.job, command.namespace, command.name, command.spec)
    job = begin(Recorded(world.position + 1, world.at, submitted), submitted)
    if command.suspended:
        return _told(job, "it would be suspended until somebody resumes it")
    snapshot = _OneMore(world, job)
    for placed in schedule(snapshot):
        if placed.job == job.id:
            return _told(job, "it would start now", ranks=_ranks(job.spec, placed.placement))
    line = [snapshot.job(job_id) for _, _, job_id in snapshot.line(job.spec.queue)]
    place = line.index(job) + 1
    reasons = reasons_to_wait(world, job, line[: place - 1])
    return _told(
        job,
        f"it would wait as number {place} in queue {job.spec.queue}: {reasons[0].message}",
        reasons=reasons,
        place=place,
        ahead=[full_name(other) for other in line[: min(place - 1, AHEAD_MAX)]],
    )


class _OneMore(Snapshot):
    """The world as a scheduling pass would see it, had one more job come in."""

    def __init__(self, world: World, job: Job) -> None:
        super().__init__(world)
        self._job = job
        self._line = list(super().line(job.spec.queue))
        insort(self._line, place_in_line(job))

    def line(self, queue: str) -> Sequence[Waiting]:
        return self._line if queue == self._job.spec.queue else super().line(queue)

    def job(self, job_id: str) -> Job:
        return self._job if job_id == self._job.id else super().job(job_id)


def _ranks(spec: JobSpec, placement: Placement) -> list[PlannedRank]:
    return [
        PlannedRank(rank=rank, name=spec.rank_name(rank), node=slot.node, devices=slot.devices)
        for rank, slot in enumerate(placement)
    ]


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
        gpus=job.spec.gpus,
        starts_now=bool(ranks),
        summary=summary,
        reasons=list(reasons),
        ranks=list(ranks),
        place_in_queue=place,
        ahead=list(ahead),
    )


def _spelt_out(value: Any) -> Any:
    """The value with what its type leaves out when written: fields that equal their defaults."""
    if isinstance(value, Struct):
        return {name: _spelt_out(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_spelt_out(each) for each in value]
    return value
