"""Where ranks go that request more of their nodes than GPUs: cores, memory, whatever is counted.

The same manners as in `placement`: a gang that fits on one node goes to the node that it fills best, and
a larger one takes the emptiest nodes first. One without GPUs goes where fewest of them are free. Ranks
that need different things may miss a place in this way; then all ways that differ are looked through.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import ge

from controlplane.devices import FreeDevices, lowest, mask_of
from controlplane.scheduling.gangs import Gang, Kin, Needs, Vector
from controlplane.scheduling.packing_search import RANKS_MAX, Rooms, Search
from controlplane.scheduling.placement import Chosen

# What each node has left for a gang, by ordinal: devices, then each resource that the gang requests,
# of which never more than the whole gang could use.
Spaces = dict[int, Vector]


def counts(free: FreeDevices, gang: Gang) -> bool:
    """Whether what the gang requests beside GPUs is counted anywhere."""
    return bool(gang.amounts) and bool(free.offers)


def spaces_of(
    free: FreeDevices, gang: Gang, ordinals: Iterable[int], kin: Sequence[Kin] | None = None
) -> Spaces:
    """The nodes among these that take work, and what they have left for these ranks or the gang."""
    total = total_of(gang.kin if kin is None else kin)
    found: Spaces = {}
    for ordinal in ordinals:
        if free.open[ordinal]:
            left = [free.left(ordinal, name) for name in gang.resources]
            most = zip(left, total[1:], strict=True)
            rest = [whole if n is None else max(0, min(n, whole)) for n, whole in most]
            found[ordinal] = (free.masks[ordinal].bit_count(), *rest)
    return found


def pack(spaces: Spaces, kin: Sequence[Kin], packing: str = "pack") -> Chosen | None:
    """A node for every rank, or None. `spaces` is left alone."""
    if not spaces:
        return None
    if not kin:
        return [(min(spaces, key=lambda o: (spaces[o], o)), [])]
    if packing == "spread":
        found = _apart(dict(spaces), kin)
    else:
        found = _together(spaces, kin, ends_tight=packing != "pack_emptiest")
    return _search(spaces, kin) if found is None and len(kin) > 1 else found


def beside(
    spaces: Spaces, chosen: Chosen, kin: Sequence[Kin], others: Sequence[Kin]
) -> Chosen | None:
    """A place that some ranks, `kin`, have found, with `others` on the same nodes or near them."""
    need_of = {rank: each.need for each in kin for rank in each.ranks}
    rest, found = dict(spaces), {ordinal: list(ranks) for ordinal, ranks in chosen}
    for ordinal, ranks in chosen:
        for _, rank in ranks:
            rest[ordinal] = _minus(rest[ordinal], need_of[rank])
    left = list(others)
    for ordinal in (*found, *sorted(spaces.keys() - found.keys(), key=lambda o: (spaces[o][0], o))):
        if not left:
            break
        here, left = _fill(rest[ordinal], left)
        if here:
            found.setdefault(ordinal, []).extend(_needs(here))
    return None if left else list(found.items())


def stand_in(free: FreeDevices, gang: Gang, kin: Kin) -> FreeDevices:
    """Nodes with just as many devices as ranks of this kind could use, for who can only count those.

    Ranks without GPUs get a device each that is not there.
    """
    view, gpus = free.copy(), kin.need[0]
    if not gpus:
        view.shared = {}
    for ordinal, space in spaces_of(free, gang, range(len(free.masks)), [kin]).items():
        mask, ranks = free.masks[ordinal], _times(space, kin)
        if not gpus:
            view.set_node(ordinal, (1 << ranks) - 1, is_open=True)
        elif ranks * gpus < mask.bit_count():
            view.hold(ordinal, mask & ~mask_of(lowest(mask, ranks * gpus)))
    return view


def total_of(kin: Sequence[Kin]) -> Vector:
    """What ranks need together."""
    columns = zip(*[[n * len(each.ranks) for n in each.need] for each in kin], strict=True)
    return tuple([sum(column) for column in columns])


# ---------------------------------------------------------------- few nodes, or many


def _together(spaces: Spaces, kin: Sequence[Kin], *, ends_tight: bool) -> Chosen | None:
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


def _apart(spaces: Spaces, kin: Sequence[Kin]) -> Chosen | None:
    """Each rank to the node that has most left by then."""
    found: dict[int, Needs] = {}
    for each in kin:
        for rank in each.ranks:
            able = [o for o, space in spaces.items() if _holds(space, each.need)]
            if not able:
                return None
            best = max(able, key=lambda o: (spaces[o], -o))
            spaces[best] = _minus(spaces[best], each.need)
            found.setdefault(best, []).append((each.need[0], rank))
    return sorted(found.items())


def _tightest(spaces: Spaces, need: Vector, taken: Collection[int]) -> int | None:
    """The node that all this would fill best."""
    able = [o for o, space in spaces.items() if o not in taken and _holds(space, need)]
    return min(able, key=lambda o: (spaces[o], o), default=None)


def _fill(space: Vector, kin: Sequence[Kin]) -> tuple[list[Kin], list[Kin]]:
    """The ranks that fit in this space, those that need most first, and those that are left."""
    here: list[Kin] = []
    left: list[Kin] = []
    for each in kin:
        count = _times(space, each)
        if count:
            here.append(Kin(each.need, each.ranks[:count]))
            space = _minus(space, [n * count for n in each.need])
        if count < len(each.ranks):
            left.append(Kin(each.need, each.ranks[count:]))
    return here, left


def _times(space: Vector, kin: Kin) -> int:
    """How many of these ranks fit there."""
    rooms = [s // n for s, n in zip(space, kin.need, strict=True) if n]
    return min([len(kin.ranks), *rooms])


def _needs(kin: Iterable[Kin]) -> Needs:
    return [(each.need[0], rank) for each in kin for rank in each.ranks]


def _holds(space: Vector, need: Vector) -> bool:
    return all(map(ge, space, need))


def _minus(space: Sequence[int], need: Sequence[int]) -> Vector:
    return tuple([s - n for s, n in zip(space, need, strict=True)])


# ---------------------------------------------------------------- all ways that differ


def _search(spaces: Spaces, kin: Sequence[Kin]) -> Chosen | None:
    total, needs = total_of(kin), [(each.need, rank) for each in kin for rank in each.ranks]
    if len(needs) > RANKS_MAX or not _could_hold(spaces, kin, total):
        return None
    nodes: dict[Vector, list[int]] = {}
    for ordinal in sorted(spaces):
        space = spaces[ordinal]
        clipped = (min(space[0], total[0]), *space[1:])
        nodes.setdefault(clipped, []).append(ordinal)
    rooms = tuple((space, min(len(nodes[space]), len(needs))) for space in sorted(nodes))
    found = Search([need for need, _ in needs], _ways).run(rooms)
    if found is None:
        return None
    chosen: dict[int, Needs] = {}
    for (need, rank), space in zip(needs, found, strict=True):
        ordinal = min(nodes[space])
        nodes[space].remove(ordinal)
        nodes.setdefault(_minus(space, need), []).append(ordinal)
        chosen.setdefault(ordinal, []).append((need[0], rank))
    return list(chosen.items())


def _could_hold(spaces: Spaces, kin: Sequence[Kin], total: Vector) -> bool:
    """Whether counting leaves a chance."""
    sums = tuple(map(sum, zip(*spaces.values(), strict=True)))
    return _holds(sums, total) and all(
        sum([_times(space, each) for space in spaces.values()]) >= len(each.ranks) for each in kin
    )


def _ways(need: Vector, rooms: Rooms[Vector]) -> Iterator[tuple[Vector, Rooms[Vector]]]:
    for space, _ in rooms:
        if _holds(space, need):
            left, rest = dict(rooms), _minus(space, need)
            left[space] -= 1
            left[rest] = left.get(rest, 0) + 1
            yield space, tuple((each, count) for each, count in sorted(left.items()) if count)
