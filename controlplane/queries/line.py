"""The first jobs of the lines, each with the reasons for which it waits.

One scheduling pass, of which nothing is recorded, gives the reasons of all of them.
"""

from controlplane.messages import Reason, wait_reason
from controlplane.queries.queries import full_name
from controlplane.queries.views import WaitingJob, WaitingLine
from controlplane.scheduling.decisions import Claim, KeepWaiting, Start
from controlplane.scheduling.preemption.make_room import claim_wait
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World


def first_in_line(world: World, most: int, queue: str | None = None) -> WaitingLine:
    """Return the first jobs of a queue or, without one, of every queue in turn; at most `most`."""
    names = sorted(world.queues) if queue is None else [queue]
    lines = {name: world.waiting.keys(name) for name in names}
    places = _in_turn({name: len(line) for name, line in lines.items()}, most)
    chosen = {lines[name][place].job: (name, place + 1) for name, place in places}
    reasons, planned = _reasons(world, set(chosen)) if chosen else ({}, {})
    return WaitingLine(
        total=sum(map(len, lines.values())),
        items=[
            _waiting_job(world, job_id, place, reasons.get(job_id, []), planned.get(job_id))
            for job_id, (_, place) in chosen.items()
        ],
    )


def _in_turn(lengths: dict[str, int], most: int) -> list[tuple[str, int]]:
    """Return at most `most` places: the first of every queue, then the second, and so on."""
    places: list[tuple[str, int]] = []
    for place in range(max(lengths.values(), default=0)):
        for name, length in lengths.items():
            if place < length:
                if len(places) == most:
                    return places
                places.append((name, place))
    return places


def _reasons(world: World, jobs: set[str]) -> tuple[dict[str, list[Reason]], dict[str, float]]:
    """Return why each job waits, and the planned starts of those that have one."""
    snapshot = Snapshot(world)
    scheduling = Pass(snapshot, lambda other, _: other.id in jobs)
    reasons: dict[str, list[Reason]] = {}
    for decision in scheduling.run():
        if decision.job not in jobs:
            continue
        if isinstance(decision, Claim):
            reasons[decision.job] = [wait_reason(claim_wait(snapshot.cluster, decision))]
        elif isinstance(decision, KeepWaiting):
            reasons[decision.job] = [wait_reason(wait) for wait in decision.reasons]
        elif isinstance(decision, Start):
            reasons[decision.job] = []
    return reasons, {p.job: p.starts_at for p in scheduling.planner.planned if p.job in jobs}


def _waiting_job(
    world: World, job_id: str, place: int, reasons: list[Reason], planned_at: float | None
) -> WaitingJob:
    job = world.jobs[job_id]
    first = reasons[0] if reasons else None
    return WaitingJob(
        job=full_name(job),
        queue=job.spec.queue,
        place=place,
        priority=job.spec.priority,
        gpus=job.spec.gpu_milli / 1_000,
        queued_at=job.queued_at,
        reason="" if first is None else first.code,
        message="it can start at the next scheduling pass" if first is None else first.message,
        helps="" if first is None else first.helps,
        planned_at=planned_at,
    )
