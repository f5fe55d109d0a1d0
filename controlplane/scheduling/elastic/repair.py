"""Repair of running gangs that lost ranks with their nodes: other devices for these ranks, or a restart of the gang.

An elastic gang with enough ranks left runs on, and gets replacements as room and quota allow. Any other gang keeps its
devices and waits until all lost ranks have room and quota, because a restart would need more; its recovery timeout ends
the wait. A gang that is bound to a topology domain without room does not wait: the whole gang may fit elsewhere.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from controlplane.lifecycle.attempt import goes_on, missing
from controlplane.lifecycle.job import Job
from controlplane.model.cluster import Placement, Slot
from controlplane.model.phases import WITH_DEVICES
from controlplane.model.reasons import NoRoomInDomain, Wait, WaitReason
from controlplane.model.resources import NO_AMOUNTS
from controlplane.scheduling.decisions import GiveUp, Replace
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.exclusive_domains import unfence
from controlplane.scheduling.placement.fit import allowed_nodes
from controlplane.scheduling.placement.fractional_devices import allocate_fraction, allocate_pinned
from controlplane.scheduling.placement.packing import Pool, choose, slots
from controlplane.scheduling.placement.vector_packing import is_constrained, pack, spaces_of
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices


def repair(snapshot: Snapshot, gate: QuotaGate, job: Job) -> Replace | GiveUp | None:
    """Other devices for the lost ranks, a restart of the gang, or None if it waits."""
    attempt = job.attempt
    assert attempt is not None
    gang = snapshot.gang(job.id)
    lost = missing(attempt, job.spec.size)
    gone = [i for i in lost if attempt.ranks[i].state not in WITH_DEVICES]
    smaller = goes_on(job.spec, attempt)
    # A gang that runs on takes what there is; a gang that waits needs all of them.
    for count in range(len(gone), 0 if smaller else max(0, len(gone) - 1), -1):
        if gate.code(part_of(snapshot, job, gone[:count]), attempt.flavor):
            # The quota that it released with them is in use by now.
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
        wait = Wait(code=WaitReason.TOPOLOGY_UNSATISFIED, needed=len(lost), available=0)
        return GiveUp(job.id, NoRoomInDomain(len(lost), level), wait)
    return None


def part_of(snapshot: Snapshot, job: Job, ranks: Sequence[int]) -> Gang:
    """Just these ranks of a running gang as a gang of their own, in rank order."""
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
    for allowed in allowed_nodes(snapshot.cluster, gang, job.attempt.flavor):
        ordinals = range(len(free.masks)) if domain is None else domain
        open_to_it = [o for o in ordinals if allowed is None or o in allowed]
        placement = _place_among(snapshot, free, gang, job, ranks, open_to_it)
        if placement is not None:
            return placement
    return None


def _open_to(snapshot: Snapshot, job: Job) -> FreeDevices:
    """What is free for a running gang: the domain that it has to itself is open to it."""
    cluster = snapshot.cluster
    if job.id not in cluster.exclusive:
        return snapshot.free
    view = snapshot.free.copy()
    unfence(cluster, view, job.id, cluster.exclusive)
    return view


def _place_among(
    snapshot: Snapshot, free: FreeDevices, gang: Gang, job: Job, ranks: list[int], nodes: list[int]
) -> Placement | None:
    """Slots for some ranks on these nodes; first for those with named devices or shares. None if they do not fit."""
    cluster, by_rank = snapshot.cluster, dict[int, Slot]()
    named = [(rank, role) for rank, role in (*gang.pins, *gang.parts) if rank in ranks]
    if named:
        free = free.copy()
    for rank, role in named:
        take = allocate_pinned if role.node else allocate_fraction
        amounts = gang.amounts[rank] if gang.amounts else NO_AMOUNTS
        taken = take(cluster, free, role, amounts, frozenset(nodes))
        assert job.attempt is not None
        if taken is None or taken[1] != job.attempt.share(rank):
            return None
        by_rank[rank] = taken[0]
    rest = [rank for rank in ranks if rank not in by_rank]
    needs = [(gpus, rank) for gpus, rank in gang.needs if rank in rest]
    kin = gang.classes_among(rest) if is_constrained(free, gang) else []
    if kin or needs or not by_rank:
        chosen = (
            pack(spaces_of(free, gang, nodes, kin), kin)
            if kin
            else choose(Pool(free, nodes), needs)
        )
        if chosen is None:
            return None
        placed = slots(free, chosen, gang.size, cluster.node_names.__getitem__)
        company = Slot(placed[0].node)
        by_rank.update({rank: placed[rank] if kin or needs else company for rank in rest})
    elif rest:
        company = Slot(next(iter(by_rank.values())).node)
        by_rank.update(dict.fromkeys(rest, company))
    return tuple(by_rank[rank] for rank in ranks)


def _domain(snapshot: Snapshot, gang: Gang, job: Job, lost: list[int]) -> list[int] | None:
    """The nodes of the domain in which the remaining ranks run; None if the gang is bound to none."""
    if not _is_bound(gang):
        return None
    assert gang.topology is not None
    assert job.attempt is not None
    tree = snapshot.cluster.node_facts.topology
    level = tree.level(gang.topology.required or gang.topology.slice_level)
    if level is None:
        return []
    nodes = snapshot.cluster.nodes
    left = {
        nodes[slot.node].ordinal
        for rank, slot in enumerate(job.attempt.placement)
        if rank not in lost
    }
    # No remaining rank says which domain is the gang's: it is placed again as a whole.
    for domain in tree.root.at(level):
        if left and left <= set(domain.nodes):
            return domain.nodes
    return []
