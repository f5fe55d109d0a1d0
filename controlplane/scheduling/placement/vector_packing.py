"""Vector packing: ranks that request several resources of their nodes, such as GPUs, cores and memory.

The rules are those of `packing.py`: a gang that fits on one node goes to the node that it fills best, and a larger gang
takes the emptiest nodes first. A gang without GPUs goes where fewest are free. With ranks of different needs this may
miss a place that exists; then all distinct assignments are searched, up to a limit.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import ge

from controlplane.scheduling.gang import Gang, Needs, RankClass, Vector
from controlplane.scheduling.placement.exact_packing import RANKS_MAX, PackingSearch, Rooms
from controlplane.scheduling.placement.packing import Chosen
from controlplane.state.devices import FreeDevices, FreeDevicesView, lowest, mask_of

# What each node has left for a gang, by ordinal: devices, then each resource that the gang requests,
# capped at what the whole gang could use.
Spaces = dict[int, Vector]


def is_constrained(free: FreeDevicesView, gang: Gang) -> bool:
    """Whether some node limits a resource that the gang requests in addition to GPUs."""
    return bool(gang.amounts) and bool(free.offers)


def spaces_of(
    free: FreeDevicesView,
    gang: Gang,
    ordinals: Iterable[int],
    kin: Sequence[RankClass] | None = None,
) -> Spaces:
    """The nodes among these that take work, with what they have left for these ranks, or for the gang."""
    total = total_of(gang.rank_classes if kin is None else kin)
    spaces: Spaces = {}
    for ordinal in ordinals:
        if free.open[ordinal]:
            left = [free.left(ordinal, name) for name in gang.resources]
            most = zip(left, total[1:], strict=True)
            rest = [whole if n is None else max(0, min(n, whole)) for n, whole in most]
            spaces[ordinal] = (free.masks[ordinal].bit_count(), *rest)
    return spaces


def pack(spaces: Spaces, kin: Sequence[RankClass], packing: str = "pack") -> Chosen | None:
    """A node for every rank, or None. `spaces` is not changed."""
    if not spaces:
        return None
    if not kin:
        return [(min(spaces, key=lambda o: (spaces[o], o)), [])]
    if packing == "spread":
        chosen = _apart(dict(spaces), kin)
    else:
        chosen = _together(spaces, kin, ends_tight=packing != "pack_emptiest")
    return _search(spaces, kin) if chosen is None and len(kin) > 1 else chosen


def add_companions(
    spaces: Spaces, chosen: Chosen, kin: Sequence[RankClass], others: Sequence[RankClass]
) -> Chosen | None:
    """The place of some ranks, `kin`, with `others` on the same nodes or near them."""
    need_of = {rank: each.need for each in kin for rank in each.ranks}
    rest, by_node = dict(spaces), {ordinal: list(ranks) for ordinal, ranks in chosen}
    for ordinal, ranks in chosen:
        for _, rank in ranks:
            rest[ordinal] = _minus(rest[ordinal], need_of[rank])
    left = list(others)
    for ordinal in (
        *by_node,
        *sorted(spaces.keys() - by_node.keys(), key=lambda o: (spaces[o][0], o)),
    ):
        if not left:
            break
        here, left = _fill(rest[ordinal], left)
        if here:
            by_node.setdefault(ordinal, []).extend(_needs(here))
    return None if left else list(by_node.items())


def gpu_equivalent_view(free: FreeDevicesView, gang: Gang, kin: RankClass) -> FreeDevices:
    """The nodes with as many devices as ranks of this class could use, for callers that count only devices.

    For ranks without GPUs, a device stands for each rank that fits.
    """
    view, gpus = free.copy(), kin.need[0]
    if not gpus:
        view.shared = {}
    for ordinal, space in spaces_of(free, gang, range(len(free.masks)), [kin]).items():
        mask, ranks = free.masks[ordinal], _times(space, kin)
        if not gpus:
            view.set_node(ordinal, (1 << ranks) - 1, is_open=True)
        elif ranks * gpus < mask.bit_count():
            view.allocate(ordinal, mask & ~mask_of(lowest(mask, ranks * gpus)))
    return view


def total_of(kin: Sequence[RankClass]) -> Vector:
    """What these ranks need in total."""
    columns = zip(*[[n * len(each.ranks) for n in each.need] for each in kin], strict=True)
    return tuple(sum(column) for column in columns)


# ---------------------------------------------------------------- few nodes, or many


def _together(spaces: Spaces, kin: Sequence[RankClass], *, ends_tight: bool) -> Chosen | None:
    left, total = list(kin), total_of(kin)
    sign = -1 if total[0] else 1
    most = tuple(map(max, zip(*spaces.values(), strict=True)))
    chosen: Chosen = []
    taken: set[int] = set()
    for ordinal in sorted(spaces, key=lambda o: (sign * spaces[o][0], o)):
        if _holds(most, total) and (ends_tight or not chosen):
            last = _tightest(spaces, total, taken)
            if last is not None:
                return [*chosen, (last, _needs(left))]
        here, left = _fill(spaces[ordinal], left)
        if here:
            chosen.append((ordinal, _needs(here)))
            taken.add(ordinal)
            total = _minus(total, total_of(here))
            if not left:
                return chosen
    return None


def _apart(spaces: Spaces, kin: Sequence[RankClass]) -> Chosen | None:
    """Each rank goes to the node that has most left by then."""
    chosen: dict[int, Needs] = {}
    for each in kin:
        for rank in each.ranks:
            able = [o for o, space in spaces.items() if _holds(space, each.need)]
            if not able:
                return None
            best = max(able, key=lambda o: (spaces[o], -o))
            spaces[best] = _minus(spaces[best], each.need)
            chosen.setdefault(best, []).append((each.need[0], rank))
    return sorted(chosen.items())


def _tightest(spaces: Spaces, need: Vector, taken: Collection[int]) -> int | None:
    """The node that this total would fill best."""
    able = [o for o, space in spaces.items() if o not in taken and _holds(space, need)]
    return min(able, key=lambda o: (spaces[o], o), default=None)


def _fill(space: Vector, kin: Sequence[RankClass]) -> tuple[list[RankClass], list[RankClass]]:
    """The ranks that fit in this space, the largest need first, and the others."""
    here: list[RankClass] = []
    left: list[RankClass] = []
    for each in kin:
        count = _times(space, each)
        if count:
            here.append(RankClass(each.need, each.ranks[:count]))
            space = _minus(space, [n * count for n in each.need])
        if count < len(each.ranks):
            left.append(RankClass(each.need, each.ranks[count:]))
    return here, left


def _times(space: Vector, kin: RankClass) -> int:
    """How many of these ranks fit there."""
    rooms = [s // n for s, n in zip(space, kin.need, strict=True) if n]
    return min([len(kin.ranks), *rooms])


def _needs(kin: Iterable[RankClass]) -> Needs:
    return [(each.need[0], rank) for each in kin for rank in each.ranks]


def _holds(space: Vector, need: Vector) -> bool:
    return all(map(ge, space, need))


def _minus(space: Sequence[int], need: Sequence[int]) -> Vector:
    return tuple(s - n for s, n in zip(space, need, strict=True))


# ---------------------------------------------------------------- exhaustive search


def _search(spaces: Spaces, kin: Sequence[RankClass]) -> Chosen | None:
    total, needs = total_of(kin), [(each.need, rank) for each in kin for rank in each.ranks]
    if len(needs) > RANKS_MAX or not _could_hold(spaces, kin, total):
        return None
    nodes: dict[Vector, list[int]] = {}
    for ordinal in sorted(spaces):
        space = spaces[ordinal]
        clipped = (min(space[0], total[0]), *space[1:])
        nodes.setdefault(clipped, []).append(ordinal)
    rooms = tuple((space, min(len(nodes[space]), len(needs))) for space in sorted(nodes))
    rooms_used = PackingSearch([need for need, _ in needs], _ways).run(rooms)
    if rooms_used is None:
        return None
    chosen: dict[int, Needs] = {}
    for (need, rank), space in zip(needs, rooms_used, strict=True):
        ordinal = min(nodes[space])
        nodes[space].remove(ordinal)
        nodes.setdefault(_minus(space, need), []).append(ordinal)
        chosen.setdefault(ordinal, []).append((need[0], rank))
    return list(chosen.items())


def _could_hold(spaces: Spaces, kin: Sequence[RankClass], total: Vector) -> bool:
    """A necessary condition by counting."""
    sums = tuple(map(sum, zip(*spaces.values(), strict=True)))
    return _holds(sums, total) and all(
        sum(_times(space, each) for space in spaces.values()) >= len(each.ranks) for each in kin
    )


def _ways(need: Vector, rooms: Rooms[Vector]) -> Iterator[tuple[Vector, Rooms[Vector]]]:
    for space, _ in rooms:
        if _holds(space, need):
            left, rest = dict(rooms), _minus(space, need)
            left[space] -= 1
            left[rest] = left.get(rest, 0) + 1
            yield space, tuple((each, count) for each, count in sorted(left.items()) if count)
