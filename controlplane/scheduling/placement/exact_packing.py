"""Exact packing of ranks of different sizes: finds a place whenever there is one, up to a limit on the search.

`packing.choose` takes the emptiest nodes first and may fail on gangs of different sizes that would fit. This searches all
distinct assignments: nodes with equally many free devices are interchangeable, and so are ranks of one size. Situations
that are known to fail are not tried again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from controlplane.scheduling.gang import Needs
from controlplane.scheduling.placement.packing import Chosen, Listed

# Limit on the situations that are tried; gangs of a few sizes on nodes of up to 16 GPUs need far fewer,
# whatever the number of nodes.
SITUATIONS_MAX = 5_000
RANKS_MAX = 400


def could_pack(free: Listed, needs: Needs) -> bool:
    """A necessary condition by counting: for each size, all ranks of at least that size fit at once."""
    for count, size in _at_least(needs):
        if sum(len(nodes) * (n // size) for n, nodes in free.by_count.items()) < count:
            return False
    total = sum(gpus for gpus, _ in needs)
    return sum(n * len(nodes) for n, nodes in free.by_count.items()) >= total


def _at_least(needs: Needs) -> Iterator[tuple[int, int]]:
    """For each size, how many ranks need at least that; `needs` has the largest first."""
    for index, (gpus, _) in enumerate(needs):
        if index + 1 == len(needs) or needs[index + 1][0] < gpus:
            yield index + 1, gpus


def choose_any(free: Listed, needs: Needs) -> Chosen | None:
    """A node for every rank, or None if there is none or the search reached its limit."""
    if not 0 < len(needs) <= RANKS_MAX or not could_pack(free, needs):
        return None
    counts = sorted(n for n in free.by_count if n)
    rooms = tuple((n, min(len(free.by_count[n]), len(needs))) for n in counts)
    rooms_used = PackingSearch([gpus for gpus, _ in needs], _ways).run(rooms)
    return None if rooms_used is None else _on_nodes(free, needs, rooms_used)


# Numbers of free devices, and how many nodes have exactly that; the smallest first.
Room = TypeVar("Room")
Rooms = tuple[tuple[Room, int], ...]
# The rooms that a rank may go to, the one that it fills best first, and what is left then.
Ways = Callable[[Room, Rooms[Room]], Iterator[tuple[Room, Rooms[Room]]]]


class PackingSearch(Generic[Room]):
    def __init__(self, sizes: Sequence[Room], ways: Ways[Room]) -> None:
        self._sizes = sizes
        self._ways = ways
        self._dead_ends: set[tuple[int, Rooms[Room]]] = set()

    def run(self, rooms: Rooms[Room]) -> list[Room] | None:
        """For each rank, how much was free before on the node that it goes to; None if it fails."""
        sizes, chosen = self._sizes, list[Room]()
        ways = [self._ways(sizes[0], rooms)]
        while ways:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
                if chosen:
                    chosen.pop()
                continue
            room, left = step
            chosen.append(room)
            if len(chosen) == len(sizes):
                return chosen
            key = len(chosen), left
            if key in self._dead_ends or len(self._dead_ends) >= SITUATIONS_MAX:
                chosen.pop()
                continue
            # Marked before the search, so that the same situation is not tried again.
            self._dead_ends.add(key)
            ways.append(self._ways(sizes[len(chosen)], left))
        return None


def _ways(size: int, rooms: Rooms[int]) -> Iterator[tuple[int, Rooms[int]]]:
    for room, _ in rooms:
        if room >= size:
            left = dict(rooms)
            left[room] -= 1
            left[room - size] = left.get(room - size, 0) + 1
            kept = [(n, count) for n, count in sorted(left.items()) if n and count]
            yield room, tuple(kept)


def _on_nodes(free: Listed, needs: Needs, rooms: list[int]) -> Chosen:
    """The assignment on real nodes: of nodes with equal room, the one with the lowest ordinal."""
    nodes: dict[int, list[int]] = {
        n: list(ordinals[: len(needs)]) for n, ordinals in free.by_count.items()
    }
    chosen: dict[int, Needs] = {}
    for need, room in zip(needs, rooms, strict=True):
        ordinal = min(nodes[room])
        nodes[room].remove(ordinal)
        nodes.setdefault(room - need[0], []).append(ordinal)
        chosen.setdefault(ordinal, []).append(need)
    return list(chosen.items())
