"""The world at any position or instant, from the log alone.

A snapshot only saves time. It holds the hash of the row at its position, so the rows after it are
verified as strictly as those of a whole log.
"""

from typing import NamedTuple

from controlplane.log.fold import fold
from controlplane.log.snapshots import SnapshotUnreadable, read_snapshot
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import GENESIS
from controlplane.ports import LogReader, StateSnapshot
from controlplane.state.state import State
from controlplane.state.world import World

PAGE_ROWS = 10_000


class Rebuilt(NamedTuple):
    """A world, the hash of its last row, and the position after which rows were read for it."""

    world: World
    hash: bytes
    since: int = 0


async def rebuild(
    log: LogReader,
    *,
    position: int | None = None,
    at: float | None = None,
    use_snapshot: bool = True,
    begin: Rebuilt | None = None,
) -> Rebuilt:
    """The world after `position`, or after the last event not later than `at`, or at the head.

    `begin` is a world at an earlier position; it is changed into the result, so the caller must not
    use it any more. Raises LogCorrupt with the first bad position.
    """
    if at is not None:
        then = await position_at(log, at)
        position = then if position is None else min(position, then)
    state, digest = await _start(log, position, use_snapshot, begin)
    since = state.position
    while position is None or state.position < position:
        left = PAGE_ROWS if position is None else position - state.position
        rows = await log.read(state.position, min(PAGE_ROWS, left))
        if not rows:
            break
        digest = fold(state, rows, digest)
    world = state if isinstance(state, World) else World(state=state)
    return Rebuilt(world, digest, since)


async def _start(
    log: LogReader, position: int | None, use_snapshot: bool, begin: Rebuilt | None
) -> tuple[State | World, bytes]:
    if begin is not None and (position is None or begin.world.position <= position):
        return begin.world, begin.hash
    snapshot = await log.latest_snapshot(position) if use_snapshot else None
    if snapshot is None:
        return State(), GENESIS
    try:
        image = read_snapshot(snapshot)
    except SnapshotUnreadable:
        # A snapshot is a cache: the first event leads to the same state.
        return State(), GENESIS
    return State(image), image.hash


async def beginning(log: LogReader) -> Rebuilt:
    """The world before the first event: an empty one, or the state that a bundle begins with."""
    rows = await log.read(0, 1)
    if not rows or rows[0].position == 1:
        return Rebuilt(World(), GENESIS)
    first = rows[0].position
    snapshot = await log.latest_snapshot(first - 1)
    if snapshot is None or snapshot.position != first - 1:
        raise LogCorrupt(1, f"expected here, but the log continues at {first}")
    try:
        return open_snapshot(snapshot)
    except SnapshotUnreadable as error:
        raise LogCorrupt(first - 1, str(error)) from None


async def position_at(log: LogReader, at: float, *, before: bool = False) -> int:
    """The position of the last event not later than `at`, or earlier than it if `before`; else 0.

    Times in a log never decrease, so this is a binary search.
    """
    low, high = 0, (await log.head()).position
    while low < high:
        middle = (low + high + 1) // 2
        rows = await log.read(middle - 1, 1)
        if rows and (rows[0].at < at if before else rows[0].at <= at):
            low = middle
        else:
            high = middle - 1
    return low


def open_snapshot(snapshot: StateSnapshot) -> Rebuilt:
    """The world in a snapshot. Raises SnapshotUnreadable."""
    image = read_snapshot(snapshot)
    return Rebuilt(World(image), image.hash, image.position)
