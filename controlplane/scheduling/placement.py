"""Where one gang fits: every rank or none.

A gang that fits on one node goes to the node that it fills best. A larger one takes the emptiest
nodes first, so that it spans few, and its last ranks go to the node that they fill best.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from controlplane.devices import WHOLE, FreeDevices, lowest, mask_of
from controlplane.model import JobSpec, Placement, Slot
from controlplane.scheduling.gangs import Needs


class Listed(Protocol):
    """Nodes by how many devices they have free; all of them, or those of a pool."""

    @property
    def masks(self) -> list[int]: ...
    @property
    def by_count(self) -> dict[int, list[int]]: ...
    @property
    def counts(self) -> list[int]: ...


class Pool:
    """Some of the nodes, as if there were no others."""

    __slots__ = ("by_count", "counts", "masks")

    def __init__(self, free: FreeDevices, ordinals: Iterable[int]) -> None:
        self.masks = free.masks
        self.by_count: dict[int, list[int]] = {}
        is_open = free.open
        for ordinal in ordinals:
            if is_open[ordinal]:
                self.by_count.setdefault(free.frees[ordinal], []).append(ordinal)
        self.counts = sorted(self.by_count)


# Nodes and the ranks each of them gets.
Chosen = list[tuple[int, Needs]]


def place(free: FreeDevices, spec: JobSpec, name_of: Callable[[int], str]) -> Placement | None:
    """A slot for every rank, or None when the whole gang does not fit. `free` is left alone."""
    needs = needs_of(spec)
    chosen = choose(free, needs)
    return None if chosen is None else slots(free, chosen, spec.size, name_of)


def slots(free: FreeDevices, chosen: Chosen, size: int, name_of: Callable[[int], str]) -> Placement:
    """The lowest free devices of the chosen nodes, rank by rank."""
    found: list[Slot | None] = [None] * size
    for ordinal, ranks in chosen:
        name, mask = name_of(ordinal), free.masks[ordinal]
        for gpus, rank in ranks:
            devices = lowest(mask, gpus)
            found[rank] = Slot(name, devices)
            if len(ranks) > 1:
                mask ^= mask_of(devices)
    # Ranks without GPUs keep the others company.
    company = Slot(name_of(chosen[0][0]))
    return tuple([company if slot is None else slot for slot in found])


def needs_of(spec: JobSpec) -> Needs:
    needs: Needs = []
    rank = 0
    for role in spec.roles:
        if role.gpus:
            needs += [(role.gpus, r) for r in range(rank, rank + role.replicas)]
        rank += role.replicas
    needs.sort(key=lambda need: -need[0])
    return needs


def choose(free: Listed, needs: Needs) -> Chosen | None:
    if not needs:
        anywhere = _tightest(free, 0)
        return None if anywhere is None else [(anywhere, [])]
    left = needs
    total = sum([gpus for gpus, _ in needs])
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
            total -= sum([gpus for gpus, _ in here])
            if not left:
                return chosen
    return None


def choose_emptiest(free: Listed, needs: Needs) -> Chosen | None:
    """As `choose`, but of a gang of several nodes the last ranks, too, go to the emptiest node.

    So do Helios' simulators, whose word for it is consolidated.
    """
    alone = _tightest(free, sum([gpus for gpus, _ in needs]))
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
    """Spreading: each rank to the node that has most free by then."""
    room = {o: n for n, ordinals in free.by_count.items() for o in ordinals}
    if not needs:
        return [(min(room), [])] if room else None
    found: dict[int, Needs] = {}
    for need in needs:
        best = max(room, key=lambda o: (room[o], -o), default=None)
        if best is None or room[best] < need[0]:
            return None
        room[best] -= need[0]
        found.setdefault(best, []).append(need)
    return sorted(found.items())


def spread_needs(needs: Needs, spread: Sequence[tuple[int, int]]) -> Chosen:
    """Equal ranks in order over nodes that were given so many each."""
    chosen: Chosen = []
    first = 0
    for ordinal, ranks in spread:
        chosen.append((ordinal, needs[first : first + ranks]))
        first += ranks
    return chosen


def _tightest(free: Listed, gpus: int, taken: Collection[int] = ()) -> int | None:
    """The node that these GPUs would fill best, or None when no node has so many."""
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
    """The ranks that fit in this room, largest first, and those that are left."""
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


def why_never_fits(spec: JobSpec, nodes_by_size: Mapping[int, int], memory_mib: int = 0) -> str:
    """Nothing if the gang may fit on an empty cluster, else why it never can.

    `nodes_by_size` says how many nodes have so many GPUs. Only what is certain counts: all ranks
    that need at least so many GPUs must find room at once. `memory_mib` is that of the largest
    device; without it, ranks that ask for a part of a device by its memory are not counted.
    """
    if never := _why_parts_never_fit(spec, nodes_by_size, memory_mib):
        return never
    sizes = {role.gpus for role in spec.roles if role.gpus}
    for gpus in sorted(sizes, reverse=True) if len(sizes) > 1 else sizes:
        ranks = sum([role.replicas for role in spec.roles if role.gpus >= gpus])
        room = sum([count * (size // gpus) for size, count in nodes_by_size.items()])
        if room == 0:
            largest = max(nodes_by_size, default=0)
            return f"a rank needs {gpus} GPUs on one node; the largest node has {largest}"
        if ranks > room:
            return f"{ranks} ranks need {gpus} GPUs each; the whole cluster has room for {room}"
    if len(sizes) <= 1:
        return ""
    total = sum(size * count for size, count in nodes_by_size.items())
    return "" if spec.gpus <= total else f"the gang needs {spec.gpus} GPUs; the cluster has {total}"


def _why_parts_never_fit(spec: JobSpec, nodes_by_size: Mapping[int, int], memory_mib: int) -> str:
    """The same of ranks that share devices, of which each holds only so many."""
    ranks: dict[int, int] = {}
    for role in spec.roles:
        share = role.gpu_share
        if role.gpu_memory_mib and memory_mib >= role.gpu_memory_mib:
            share = -(-role.gpu_memory_mib * WHOLE // memory_mib)
        if share:
            ranks[share] = ranks.get(share, 0) + role.replicas
    if not ranks:
        return ""
    total = sum(size * count for size, count in nodes_by_size.items())
    sharing = 0
    for share in sorted(ranks, reverse=True):
        sharing += ranks[share]
        devices = -(-sharing // (WHOLE // share))
        if devices + spec.gpus > total:
            beside = f", beside {spec.gpus} whole ones" if spec.gpus else ""
            return (
                f"{sharing} ranks need {share / WHOLE:g} of a GPU each, which takes "
                f"{devices} GPUs{beside}; the cluster has {total}"
            )
    milli = sum(share * count for share, count in ranks.items()) + spec.gpus * WHOLE
    if milli > total * WHOLE:
        return f"the gang needs {milli / WHOLE:g} GPUs; the cluster has {total}"
    return ""
