"""Ranks of different sizes: a place for all of them if there is one.

The quick way of `placement.choose` takes the emptiest nodes first and may fail on gangs of different
sizes that would fit. Then this looks through all ways that differ: nodes with equally many free devices
are one and the same, and so are ranks of one size. What is known not to work is not tried again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from controlplane.scheduling.gangs import Needs
from controlplane.scheduling.placement import Chosen, Listed

# So many different situations are looked at; gangs of a few sizes on nodes of up to 16 GPUs need
# far fewer, whatever the number of nodes.
SITUATIONS_MAX = 5_000
RANKS_MAX = 400


def could_pack(free: Listed, needs: Needs) -> bool:
    """Whether counting leaves a chance: all ranks of at least some size must find room at once."""
    for count, size in _at_least(needs):
        if sum([len(nodes) * (n // size) for n, nodes in free.by_count.items()]) < count:
            return False
    total = sum([gpus for gpus, _ in needs])
    return sum([n * len(nodes) for n, nodes in free.by_count.items()]) >= total


def _at_least(needs: Needs) -> Iterator[tuple[int, int]]:
    """For each size how many ranks need as much or more; `needs` has the largest first."""
    for index, (gpus, _) in enumerate(needs):
        if index + 1 == len(needs) or needs[index + 1][0] < gpus:
            yield index + 1, gpus


def choose_any(free: Listed, needs: Needs) -> Chosen | None:
    """Some way to give every rank a node, or None if there is none (or too much to look through)."""
    if not 0 < len(needs) <= RANKS_MAX or not could_pack(free, needs):
        return None
    counts = sorted(n for n in free.by_count if n)
    rooms = tuple((n, min(len(free.by_count[n]), len(needs))) for n in counts)
    found = Search([gpus for gpus, _ in needs], _ways).run(rooms)
    return None if found is None else _on_nodes(free, needs, found)


# What nodes have free, and how many of them have just that; those that have least first.
Room = TypeVar("Room")
Rooms = tuple[tuple[Room, int], ...]
# The rooms that a rank of some size may go to, the one that it fills best first, and what is left then.
Ways = Callable[[Room, Rooms[Room]], Iterator[tuple[Room, Rooms[Room]]]]


class Search(Generic[Room]):
    def __init__(self, sizes: Sequence[Room], ways: Ways[Room]) -> None:
        self._sizes = sizes
        self._ways = ways
        self._hopeless: set[tuple[int, Rooms[Room]]] = set()

    def run(self, rooms: Rooms[Room]) -> list[Room] | None:
        """For each rank how much was free on the node it goes to just before; None if it fails."""
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
            if key in self._hopeless or len(self._hopeless) >= SITUATIONS_MAX:
                chosen.pop()
                continue
            # Looked at from here on; whoever comes this way again need not.
            self._hopeless.add(key)
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
    """The same on real nodes: of those with so much free the one that is known longest."""
    nodes: dict[int, list[int]] = {
        n: list(found[: len(needs)]) for n, found in free.by_count.items()
    }
    chosen: dict[int, Needs] = {}
    for need, room in zip(needs, rooms, strict=True):
        ordinal = min(nodes[room])
        nodes[room].remove(ordinal)
        nodes.setdefault(room - need[0], []).append(ordinal)
        chosen.setdefault(ordinal, []).append(need)
    return list(chosen.items())
