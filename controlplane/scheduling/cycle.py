"""One pass over the waiting gangs: who starts now, and where. Why the others wait is `queries.why`."""

from controlplane.events import GangPlaced
from controlplane.job import Job
from controlplane.scheduling.order import Heads
from controlplane.scheduling.placement import place
from controlplane.scheduling.snapshot import Snapshot


def schedule(snapshot: Snapshot) -> list[GangPlaced]:
    """Places as many gangs as the order allows. The snapshot is used up by it."""
    placed: list[GangPlaced] = []
    line = Heads(snapshot)
    for job in line:
        outcome = _try(snapshot, job)
        if outcome is not None:
            placed.append(outcome)
            line.advance()
    return placed


def _try(snapshot: Snapshot, job: Job) -> GangPlaced | None:
    """The whole gang's placement, or None when it must wait."""
    spec = job.spec
    ceiling = snapshot.queues[spec.queue].gpus_max
    if ceiling is not None and snapshot.used(spec.queue) + spec.gpus > ceiling:
        return None
    placement = place(snapshot.free, spec, snapshot.node_name)
    if placement is None:
        return None
    snapshot.take(job, placement)
    number = 1 if job.attempt is None else job.attempt.number + 1
    return GangPlaced(job.id, number, placement)
