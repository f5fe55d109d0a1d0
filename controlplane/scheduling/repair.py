"""A running gang that lost ranks with their nodes: other devices for them, or a new start.

While nothing is free for the lost ranks the gang keeps what it has and waits, since starting again as
a whole would need as much and more; but not for ever, its recovery time-out sees to that. A gang that
is bound to a domain (a rack, say) in which there is no room does not wait at all: elsewhere there may
be room for the whole of it.
"""

from controlplane.attempt import HOLDING
from controlplane.attempt_life import missing
from controlplane.devices import FreeDevices
from controlplane.job import Job
from controlplane.model import Placement, Slot
from controlplane.scheduling.asking import counts, pack, spaces_of
from controlplane.scheduling.decisions import GiveUp, Replace
from controlplane.scheduling.fitting import allowed_nodes
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.placement import Pool, choose, slots
from controlplane.scheduling.reasons import reason
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.topology import topology_of


def repair(snapshot: Snapshot, job: Job) -> Replace | GiveUp | None:
    """Other devices for the ranks that are gone, a new start, or None: it waits."""
    attempt = job.attempt
    assert attempt is not None
    gang = snapshot.gang(job.id)
    lost = missing(attempt, job.spec.size)
    gone = [i for i in lost if attempt.ranks[i].state not in HOLDING]
    placement = place_beside(snapshot, gang, job, gone) if gone else None
    if placement is not None:
        return Replace(job.id, tuple(gone), placement)
    if _is_bound(gang) and not _could_fit(snapshot, gang, job, lost):
        ask = gang.topology
        assert ask is not None
        level = ask.required or ask.slice_level
        message = f"{len(lost)} lost ranks find no room in the {level} of the others"
        told = reason("topology_unsatisfied", message, needed=len(lost), available=0)
        return GiveUp(job.id, message, told)
    return None


def _is_bound(gang: Gang) -> bool:
    return gang.topology is not None and bool(gang.topology.required or gang.topology.slice_level)


def _could_fit(snapshot: Snapshot, gang: Gang, job: Job, lost: list[int]) -> bool:
    return place_beside(snapshot, gang, job, lost) is not None


def place_beside(snapshot: Snapshot, gang: Gang, job: Job, ranks: list[int]) -> Placement | None:
    """Slots for some ranks, in the domain of the others if the gang is bound to one."""
    needs = [(gpus, rank) for gpus, rank in gang.needs if rank in ranks]
    domain = _domain(snapshot, gang, job, ranks)
    free: FreeDevices = snapshot.free
    kin = gang.kin_among(ranks) if counts(free, gang) else []
    asks = bool(kin)
    assert job.attempt is not None
    for allowed in allowed_nodes(snapshot.world, gang, job.attempt.flavor):
        ordinals = range(len(free.masks)) if domain is None else domain
        open_to_it = [o for o in ordinals if allowed is None or o in allowed]
        if asks:
            spaces = spaces_of(free, gang, open_to_it, kin)
            chosen = pack(spaces, kin)
        else:
            chosen = choose(Pool(free, open_to_it), needs)
        if chosen is not None:
            names = snapshot.world.node_names.__getitem__
            found = slots(free, chosen, gang.size, names)
            if asks or needs:
                return tuple(found[rank] for rank in ranks)
            return tuple(Slot(found[0].node) for _ in ranks)
    return None


def _domain(snapshot: Snapshot, gang: Gang, job: Job, lost: list[int]) -> list[int] | None:
    """The nodes of the domain in which the ranks that are left run; None if that is all the same."""
    if not _is_bound(gang):
        return None
    assert gang.topology is not None
    assert job.attempt is not None
    tree = topology_of(snapshot.world)
    level = tree.level(gang.topology.required or gang.topology.slice_level)
    if level is None:
        return []
    nodes = snapshot.world.nodes
    left = {
        nodes[slot.node].ordinal
        for rank, slot in enumerate(job.attempt.placement)
        if rank not in lost
    }
    for domain in tree.root.at(level):
        if left and left <= set(domain.nodes):
            return domain.nodes
    return None if not left else []
