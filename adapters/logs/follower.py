"""Follows a log as it grows, from any position, in any process.

Looking is what counts; `clock.wake` is only a hint to look sooner. Positions have no gaps and a log shows
nothing that could still vanish, so the last position read is all there is to remember.
"""

from collections.abc import AsyncIterator, Sequence

from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import Row
from controlplane.ports import Clock, EventLog

LOOK_EVERY_S = 0.25
ROWS_MAX = 1000


async def follow(
    log: EventLog,
    after: int,
    *,
    clock: Clock,
    look_every_s: float = LOOK_EVERY_S,
    rows_max: int = ROWS_MAX,
) -> AsyncIterator[Sequence[Row]]:
    """Every row after a position, once and in order, some at a time, without end.

    The clock is the follower's own: two that wait on the same one would take each other's hints.
    If the log cannot be read the iteration ends with that error; follow again after the last row.
    """
    while True:
        rows = await log.read(after, rows_max)
        if rows:
            _check_order(rows, after)
            after = rows[-1].position
            yield rows
        else:
            await clock.wait(clock.now() + look_every_s)


def _check_order(rows: Sequence[Row], after: int) -> None:
    for expected, row in enumerate(rows, after + 1):
        if row.position != expected:
            raise LogCorrupt(expected, f"expected here, but the log continues at {row.position}")
