"""One pass over the waiting gangs: who starts now and where, and why each other head waits."""

from typing import NamedTuple

from controlplane.events import GangPlaced
from controlplane.job import Job
from controlplane.scheduling.order import Heads
from controlplane.scheduling.placement import place
from controlplane.scheduling.snapshot import Snapshot


class Blocked(NamedTuple):
    """Why the head of a line waits: a stable code, and the numbers behind it."""

    job: str
    code: str
    needed: int
    available: int


class Cycle(NamedTuple):
    placed: list[GangPlaced]
    blocked: list[Blocked]


def schedule(snapshot: Snapshot) -> Cycle:
    """Places as many gangs as the order allows. The snapshot is used up by it."""
    cycle = Cycle([], [])
    line = Heads(snapshot)
    for job in line:
        outcome = _try(snapshot, job)
        if isinstance(outcome, Blocked):
            cycle.blocked.append(outcome)
        else:
            cycle.placed.append(outcome)
            line.advance()
    return cycle


def _try(snapshot: Snapshot, job: Job) -> GangPlaced | Blocked:
    spec = job.spec
    ceiling = snapshot.queues[spec.queue].gpus_max
    used = snapshot.used(spec.queue)
    if ceiling is not None and used + spec.gpus > ceiling:
        return Blocked(job.id, "queue_ceiling", spec.gpus, max(0, ceiling - used))
    placement = place(snapshot.free, spec, snapshot.node_name)
    if placement is None:
        return Blocked(job.id, "no_room", spec.gpus, snapshot.free.total)
    snapshot.take(job, placement)
    number = 1 if job.attempt is None else job.attempt.number + 1
    return GangPlaced(job.id, number, placement)
