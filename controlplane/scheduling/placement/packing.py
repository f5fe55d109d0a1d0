"""Packing by GPUs alone: a node for every rank of a gang, or none.

A gang that fits on one node goes to the node that it fills best (best fit). A larger gang takes the emptiest nodes first,
so that it spans few, and its last ranks go to the node that they fill best.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from controlplane.model.cluster import Placement, Slot
from controlplane.model.reasons import (
    GangTooLarge,
    NeverFits,
    RanksTooMany,
    RankTooLarge,
    SharesTooMany,
)
from controlplane.model.spec import JobSpec
from controlplane.scheduling.gang import Needs
from controlplane.state.devices import WHOLE, FreeDevicesView, lowest, mask_of


class Listed(Protocol):
    """Nodes by number of free devices: all nodes, or those of a pool."""

    @property
    def masks(self) -> Sequence[int]: ...
    @property
    def by_count(self) -> Mapping[int, Sequence[int]]: ...
    @property
    def counts(self) -> Sequence[int]: ...


class Pool:
    """A subset of the nodes."""

    __slots__ = ("by_count", "counts", "masks")

    def __init__(self, free: FreeDevicesView, ordinals: Iterable[int]) -> None:
        self.masks = free.masks
        self.by_count: dict[int, list[int]] = {}
        is_open = free.open
        for ordinal in ordinals:
            if is_open[ordinal]:
                self.by_count.setdefault(free.free_counts[ordinal], []).append(ordinal)
        self.counts = sorted(self.by_count)


# Pairs of a node's ordinal and the ranks that it gets.
Chosen = list[tuple[int, Needs]]


def slots(
    free: FreeDevicesView, chosen: Chosen, size: int, name_of: Callable[[int], str]
) -> Placement:
    """The lowest free devices of the chosen nodes, rank by rank."""
    slots_by_rank: list[Slot | None] = [None] * size
    for ordinal, ranks in chosen:
        name, mask = name_of(ordinal), free.masks[ordinal]
        for gpus, rank in ranks:
            devices = lowest(mask, gpus)
            slots_by_rank[rank] = Slot(name, devices)
            if len(ranks) > 1:
                mask ^= mask_of(devices)
    # Ranks without GPUs go to the first of these nodes.
    company = Slot(name_of(chosen[0][0]))
    return tuple(company if slot is None else slot for slot in slots_by_rank)


def choose(free: Listed, needs: Needs) -> Chosen | None:
    if not needs:
        anywhere = _tightest(free, 0)
        return None if anywhere is None else [(anywhere, [])]
    left = needs
    total = sum(gpus for gpus, _ in needs)
    chosen: Chosen = []
    taken: set[int] = set()
    for ordinal in _emptiest_first(free):
        last = _tightest(free, total, taken)
        if last is not None:
            chosen.append((last, left))
            return chosen
        here, left = _fill(free.masks[ordinal].bit_count(), left)
        if here:
            chosen.append((ordinal, here))
            taken.add(ordinal)
            total -= sum(gpus for gpus, _ in here)
            if not left:
                return chosen
    return None


def choose_emptiest(free: Listed, needs: Needs) -> Chosen | None:
    """As `choose`, but the last ranks of a gang of several nodes go to the emptiest node, too.

    The simulators of Helios place gangs this way and call it consolidated.
    """
    alone = _tightest(free, sum(gpus for gpus, _ in needs))
    if alone is not None:
        return [(alone, needs)]
    left, chosen = needs, list[tuple[int, Needs]]()
    for ordinal in _emptiest_first(free) if needs else ():
        here, left = _fill(free.masks[ordinal].bit_count(), left)
        if here:
            chosen.append((ordinal, here))
        if not left:
            return chosen
    return None


def choose_apart(free: Listed, needs: Needs) -> Chosen | None:
    """Spread: each rank goes to the node that has most free devices by then."""
    room = {o: n for n, ordinals in free.by_count.items() for o in ordinals}
    if not needs:
        return [(min(room), [])] if room else None
    chosen: dict[int, Needs] = {}
    for need in needs:
        best = max(room, key=lambda o: (room[o], -o), default=None)
        if best is None or room[best] < need[0]:
            return None
        room[best] -= need[0]
        chosen.setdefault(best, []).append(need)
    return sorted(chosen.items())


def spread_needs(needs: Needs, spread: Sequence[tuple[int, int]]) -> Chosen:
    """Equal ranks, in order, over nodes with the given number of ranks each."""
    chosen: Chosen = []
    first = 0
    for ordinal, ranks in spread:
        chosen.append((ordinal, needs[first : first + ranks]))
        first += ranks
    return chosen


def _tightest(free: Listed, gpus: int, taken: Collection[int] = ()) -> int | None:
    """The node with the fewest free GPUs that has `gpus` free, or None."""
    counts = free.counts
    if not counts or counts[-1] < gpus:
        return None
    for count in counts[bisect_left(counts, gpus) :]:
        for ordinal in free.by_count[count]:
            if ordinal not in taken:
                return ordinal
    return None


def _emptiest_first(free: Listed) -> Iterable[int]:
    for count in reversed(free.counts):
        if count:
            yield from free.by_count[count]


def _fill(room: int, needs: Needs) -> tuple[Needs, Needs]:
    """The ranks that fit in this room, largest first, and the others."""
    if needs[0][0] == needs[-1][0]:
        fitting = room // needs[0][0]
        return needs[:fitting], needs[fitting:]
    here: Needs = []
    left: Needs = []
    for need in needs:
        if need[0] <= room:
            here.append(need)
            room -= need[0]
        else:
            left.append(need)
    return here, left


def why_never_fits(
    spec: JobSpec, nodes_by_size: Mapping[int, int], memory_mib: int = 0
) -> NeverFits | None:
    """None if the gang may fit on an empty cluster, else why it never can.

    `nodes_by_size` maps a number of GPUs to the number of nodes that have it. Only what is certain
    counts: all ranks that need at least N GPUs must find room at once. `memory_mib` is that of the
    largest device; without it, ranks that ask for a part of a device by its memory are not counted.
    """
    if (never := _why_parts_never_fit(spec, nodes_by_size, memory_mib)) is not None:
        return never
    sizes = {role.gpus for role in spec.roles if role.gpus}
    for gpus in sorted(sizes, reverse=True) if len(sizes) > 1 else sizes:
        ranks = sum(role.replicas for role in spec.roles if role.gpus >= gpus)
        room = sum(count * (size // gpus) for size, count in nodes_by_size.items())
        if room == 0:
            return RankTooLarge(gpus, max(nodes_by_size, default=0))
        if ranks > room:
            return RanksTooMany(ranks, room, gpus)
    if len(sizes) <= 1:
        return None
    total = sum(size * count for size, count in nodes_by_size.items())
    return None if spec.gpus <= total else GangTooLarge(spec.gpus * WHOLE, total)


def _why_parts_never_fit(
    spec: JobSpec, nodes_by_size: Mapping[int, int], memory_mib: int
) -> NeverFits | None:
    """The same for ranks that share devices: a device holds a limited number of them."""
    ranks: dict[int, int] = {}
    for role in spec.roles:
        share = role.gpu_share
        if role.gpu_memory_mib and memory_mib >= role.gpu_memory_mib:
            share = -(-role.gpu_memory_mib * WHOLE // memory_mib)
        if share:
            ranks[share] = ranks.get(share, 0) + role.replicas
    if not ranks:
        return None
    total = sum(size * count for size, count in nodes_by_size.items())
    sharing = 0
    for share in sorted(ranks, reverse=True):
        sharing += ranks[share]
        devices = -(-sharing // (WHOLE // share))
        if devices + spec.gpus > total:
            return SharesTooMany(sharing, share, devices, spec.gpus, total)
    milli = sum(share * count for share, count in ranks.items()) + spec.gpus * WHOLE
    return GangTooLarge(milli, total) if milli > total * WHOLE else None
