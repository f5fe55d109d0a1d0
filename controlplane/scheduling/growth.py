"""Room for running gangs that were told to grow: what is left when nobody waits for it."""

from collections.abc import Sequence

from msgspec.structs import replace

from controlplane.devices import WHOLE
from controlplane.events import RanksAdded
from controlplane.job import Job, ranks_wanted
from controlplane.model import Placement
from controlplane.scheduling.decisions import Decision, Evict, GiveUp, Shrink, Start
from controlplane.scheduling.placement import place
from controlplane.scheduling.snapshot import Snapshot


def grow(snapshot: Snapshot, decided: Sequence[Decision]) -> list[RanksAdded]:
    """Adds ranks to gangs that want some, after the pass that started these whole ones.

    A gang of the same queue that still waits comes first: it may need the room more than one that
    runs already.
    """
    started = {decision.job for decision in decided if isinstance(decision, Start)}
    stopped = {
        decision.job for decision in decided if isinstance(decision, Evict | Shrink | GiveUp)
    }
    found: list[RanksAdded] = []
    for job in snapshot.growing():
        line = snapshot.line(job.spec.queue).order
        if job.id in stopped or any(place[3] not in started for place in line):
            continue
        slots = _slots(snapshot, job)
        if slots:
            assert job.attempt is not None
            snapshot.take_more(job, slots)
            found.append(RanksAdded(job.id, job.attempt.number, ranks_wanted(job).start, slots))
    return found


def _slots(snapshot: Snapshot, job: Job) -> Placement:
    """Slots for as many of the wanted ranks as find room, the first ones first."""
    spec, role = job.spec, job.spec.roles[-1]
    count = len(ranks_wanted(job))
    if role.gpus:
        count = min(count, snapshot.free.total // role.gpus)
        ceiling = snapshot.queues[spec.queue].gpus_max
        if ceiling is not None:
            count = min(count, (ceiling - snapshot.used(spec.queue)) // role.gpus)
        if snapshot.has_quotas:
            tree = snapshot.tree()
            left = min(tree.available(spec.queue), tree.below_ceiling(spec.queue))
            count = min(count, left // (role.gpus * WHOLE))
    while count > 0:
        more = replace(spec, roles=(replace(role, replicas=count),))
        slots = place(snapshot.free, more, snapshot.world.node_names.__getitem__)
        if slots is not None:
            return slots
        count -= 1
    return ()
