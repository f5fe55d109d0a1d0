"""Where one gang fits: every rank or none.

A gang that fits on one node goes to the node that it fills best. A larger one takes the emptiest
nodes first, so that it spans few, and its last ranks go to the node that they fill best.
"""

from collections.abc import Callable, Iterable, Mapping

from controlplane.devices import FreeDevices, lowest
from controlplane.model import JobSpec, Placement, Slot

# How many GPUs each rank needs, largest first, with the rank's number.
Needs = list[tuple[int, int]]


def place(free: FreeDevices, spec: JobSpec, name_of: Callable[[int], str]) -> Placement | None:
    """A slot for every rank, or None when the whole gang does not fit. `free` is left alone."""
    needs = _needs(spec)
    chosen = _choose(free, needs)
    if chosen is None:
        return None
    slots: list[Slot | None] = [None] * spec.size
    for ordinal, ranks in chosen:
        name, mask = name_of(ordinal), free.masks[ordinal]
        for gpus, rank in ranks:
            devices = lowest(mask, gpus)
            for device in devices:
                mask ^= 1 << device
            slots[rank] = Slot(name, devices)
    # Ranks without GPUs keep the others company.
    company = Slot(name_of(chosen[0][0]))
    return tuple(company if slot is None else slot for slot in slots)


def _needs(spec: JobSpec) -> Needs:
    needs: Needs = []
    rank = 0
    for role in spec.roles:
        if role.gpus:
            needs += [(role.gpus, r) for r in range(rank, rank + role.replicas)]
        rank += role.replicas
    needs.sort(key=lambda need: -need[0])
    return needs


def _choose(free: FreeDevices, needs: Needs) -> list[tuple[int, Needs]] | None:
    """Nodes and the ranks each of them gets."""
    if not needs:
        anywhere = _tightest(free, 0)
        return None if anywhere is None else [(anywhere, [])]
    left = needs
    total = sum(gpus for gpus, _ in needs)
    chosen: list[tuple[int, Needs]] = []
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


def _tightest(free: FreeDevices, gpus: int, taken: Iterable[int] = ()) -> int | None:
    """The node that these GPUs would fill best, or None when no node has so many."""
    for ordinals in free.by_count[gpus:]:
        for ordinal in ordinals:
            if ordinal not in taken:
                return ordinal
    return None


def _emptiest_first(free: FreeDevices) -> Iterable[int]:
    for ordinals in reversed(free.by_count[1:]):
        yield from ordinals


def _fill(room: int, needs: Needs) -> tuple[Needs, Needs]:
    """The ranks that fit in this room, largest first, and those that are left."""
    here: Needs = []
    left: Needs = []
    for need in needs:
        if need[0] <= room:
            here.append(need)
            room -= need[0]
        else:
            left.append(need)
    return here, left


def why_never_fits(spec: JobSpec, nodes_by_size: Mapping[int, int]) -> str:
    """Nothing if the gang may fit on an empty cluster, else why it never can.

    `nodes_by_size` says how many nodes have so many GPUs. Only what is certain counts: all ranks
    that need at least so many GPUs must find room at once.
    """
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
