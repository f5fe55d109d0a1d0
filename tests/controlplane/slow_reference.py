"""Placement and starts by trying everything: slow, and plain enough to be believed."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from controlplane.model.cluster import Placement


@lru_cache(maxsize=100_000)
def _fits(free: tuple[int, ...], needs: tuple[int, ...]) -> bool:
    """Whether every need finds room on one node each, trying every way to give it out."""
    if not needs:
        return True
    need, rest = needs[0], needs[1:]
    for index in range(len(free)):
        if free[index] >= need:
            left = tuple(sorted((*free[:index], free[index] - need, *free[index + 1 :])))
            if _fits(left, rest):
                return True
    return False


def can_place(free: Sequence[int], needs: Sequence[int]) -> bool:
    return _fits(tuple(sorted(free)), tuple(sorted(needs, reverse=True)))


def slow_starts(
    nodes: Mapping[str, int],
    jobs: Sequence[tuple[str, int, int]],
    placements: Mapping[str, Placement],
    *,
    strict: bool,
) -> list[str]:
    """The jobs that must start, in order, given the placements before them: all that can be placed."""
    free, started = dict(nodes), list[str]()
    for name, ranks, gpus in jobs:
        if can_place(list(free.values()), [gpus] * ranks):
            started.append(name)
            for slot in placements.get(name, ()):
                free[slot.node] -= len(slot.devices)
        elif strict:
            break
    return started
