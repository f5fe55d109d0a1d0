"""A running gang that lost ranks with their nodes: other devices for them, or a new start.

An elastic gang with enough ranks left runs on, and gets others as there is room and quota.

While nothing is free for the lost ranks of another one, or its queue has no quota for them, the gang
keeps what it has and waits, since starting again as
a whole would need as much and more; but not for ever, its recovery time-out sees to that. A gang that
is bound to a domain (a rack, say) in which there is no room does not wait at all: elsewhere there may
be room for the whole of it.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from controlplane.attempt import HOLDING
from controlplane.attempt_life import goes_on, missing
from controlplane.devices import FreeDevices
from controlplane.job import Job
from controlplane.model import Placement, Slot
from controlplane.requests import NO_AMOUNTS
from controlplane.scheduling.asking import counts, pack, spaces_of
from controlplane.scheduling.decisions import GiveUp, Replace
from controlplane.scheduling.exclusive import unfence
from controlplane.scheduling.fitting import allowed_nodes
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.parts import take_part, take_pinned
from controlplane.scheduling.placement import Pool, choose, slots
from controlplane.scheduling.quota_gate import QuotaGate
from controlplane.scheduling.reasons import reason
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.topology import topology_of


def repair(snapshot: Snapshot, gate: QuotaGate, job: Job) -> Replace | GiveUp | None:
    """Other devices for the ranks that are gone, a new start, or None: it waits."""
    attempt = job.attempt
    assert attempt is not None
    gang = snapshot.gang(job.id)
    lost = missing(attempt, job.spec.size)
    gone = [i for i in lost if attempt.ranks[i].state not in HOLDING]
    smaller = goes_on(job.spec, attempt)
    # A gang that goes on meanwhile takes what there is; one that waits needs all of them.
    for count in range(len(gone), 0 if smaller else max(0, len(gone) - 1), -1):
        if gate.code(part_of(snapshot, job, gone[:count]), attempt.flavor):
            # What it gave back when it lost them is in use by now: it waits until there is quota again.
            if smaller:
                continue
            return None
        placement = place_beside(snapshot, gang, job, gone[:count])
        if placement is not None:
            return Replace(job.id, tuple(gone[:count]), placement)
    if smaller:
        return None
    if _is_bound(gang) and not _could_fit(snapshot, gang, job, lost):
        ask = gang.topology
        assert ask is not None
        level = ask.required or ask.slice_level
        message = f"{len(lost)} lost ranks find no room in the {level} of the others"
        told = reason("topology_unsatisfied", message, needed=len(lost), available=0)
        return GiveUp(job.id, message, told)
    return None


def part_of(snapshot: Snapshot, job: Job, ranks: Sequence[int]) -> Gang:
    """Just these ranks of a running gang as a gang of their own, in the order of their numbers."""
    whole, counted = (
        snapshot.gang(job.id),
        Counter(job.spec.role_of(rank)[0].name for rank in ranks),
    )
    roles = tuple(
        replace(role, replicas=counted[role.name], min_replicas=None)
        for role in job.spec.roles
        if counted[role.name]
    )
    part = replace(job, spec=replace(job.spec, roles=roles, min_available=None))
    return Gang(part, whole.memories_mib, by_request=whole.by_request)


def _is_bound(gang: Gang) -> bool:
    return gang.topology is not None and bool(gang.topology.required or gang.topology.slice_level)


def _could_fit(snapshot: Snapshot, gang: Gang, job: Job, lost: list[int]) -> bool:
    return place_beside(snapshot, gang, job, lost) is not None


def place_beside(snapshot: Snapshot, gang: Gang, job: Job, ranks: list[int]) -> Placement | None:
    """Slots for some ranks, in the domain of the others if the gang is bound to one.

    A rank with a share of a device gets as large a share as it had.
    """
    domain = _domain(snapshot, gang, job, ranks)
    free = _open_to(snapshot, job)
    assert job.attempt is not None
    for allowed in allowed_nodes(snapshot.world, gang, job.attempt.flavor):
        ordinals = range(len(free.masks)) if domain is None else domain
        open_to_it = [o for o in ordinals if allowed is None or o in allowed]
        found = _place_among(snapshot, free, gang, job, ranks, open_to_it)
        if found is not None:
            return found
    return None


def _open_to(snapshot: Snapshot, job: Job) -> FreeDevices:
    """What is free for a gang that runs: what it has for itself alone is closed only to others."""
    world = snapshot.world
    if job.id not in world.exclusive:
        return snapshot.free
    view = snapshot.free.copy()
    unfence(world, view, job.id, world.exclusive)
    return view


def _place_among(
    snapshot: Snapshot, free: FreeDevices, gang: Gang, job: Job, ranks: list[int], nodes: list[int]
) -> Placement | None:
    """Slots for some ranks on these nodes; first for those that say which devices they need."""
    world, by_rank = snapshot.world, dict[int, Slot]()
    named = [(rank, role) for rank, role in (*gang.pins, *gang.parts) if rank in ranks]
    if named:
        free = free.copy()
    for rank, role in named:
        take = take_pinned if role.node else take_part
        amounts = gang.amounts[rank] if gang.amounts else NO_AMOUNTS
        taken = take(world, free, role, amounts, frozenset(nodes))
        assert job.attempt is not None
        if taken is None or taken[1] != job.attempt.share(rank):
            return None
        by_rank[rank] = taken[0]
    rest = [rank for rank in ranks if rank not in by_rank]
    needs = [(gpus, rank) for gpus, rank in gang.needs if rank in rest]
    kin = gang.kin_among(rest) if counts(free, gang) else []
    if kin or needs or not by_rank:
        chosen = (
            pack(spaces_of(free, gang, nodes, kin), kin)
            if kin
            else choose(Pool(free, nodes), needs)
        )
        if chosen is None:
            return None
        placed = slots(free, chosen, gang.size, world.node_names.__getitem__)
        company = Slot(placed[0].node)
        by_rank.update({rank: placed[rank] if kin or needs else company for rank in rest})
    elif rest:
        company = Slot(next(iter(by_rank.values())).node)
        by_rank.update(dict.fromkeys(rest, company))
    return tuple([by_rank[rank] for rank in ranks])


def _domain(snapshot: Snapshot, gang: Gang, job: Job, lost: list[int]) -> list[int] | None:
    """The nodes of the domain in which the ranks that are left run; None if any will do."""
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
    # Where nothing is left that says which domain is the gang's own, it is placed anew as a whole.
    for domain in tree.root.at(level):
        if left and left <= set(domain.nodes):
            return domain.nodes
    return []
