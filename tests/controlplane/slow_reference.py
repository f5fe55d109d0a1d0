"""Placement and starts by trying everything: slow, and plain enough to be believed."""

from collections.abc import Sequence
from functools import lru_cache


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
    nodes: Sequence[int], jobs: Sequence[tuple[str, int, int]], *, strict: bool
) -> list[str]:
    """Who starts, in order, if every job takes its room so as to leave the most to the next."""
    started: list[str] = []
    taken: list[tuple[int, int]] = []
    for name, ranks, gpus in jobs:
        needs = [g for r, g in (*taken, (ranks, gpus)) for _ in range(r)]
        if can_place(nodes, needs):
            started.append(name)
            taken.append((ranks, gpus))
        elif strict:
            break
    return started
