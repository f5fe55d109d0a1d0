"""Recorded events that were not written to Kubernetes, read from the log."""

from collections.abc import AsyncIterator, Mapping

from controlplane.log import codec
from controlplane.model import events as e
from controlplane.ports import EventLog

ROWS_MAX = 1_000


async def missed(
    log: EventLog, written: Mapping[str, int], *, since: float, before: int
) -> AsyncIterator[e.Recorded]:
    """Yield the events of jobs that are not written yet, in order, before the position `before`.

    `written` maps each job to the position up to which its events are written. Events from before the
    time `since` are left out: an API server would have discarded them by now.
    """
    after = await position_at(log, since, before)
    while after < before - 1:
        rows = await log.read(after, min(ROWS_MAX, before - 1 - after))
        if not rows:
            return
        for row in rows:
            if row.stream in written and row.position > written[row.stream]:
                yield codec.from_row(row)
        after = rows[-1].position


async def position_at(log: EventLog, at: float, before: int) -> int:
    """Return the last position with a time before `at`, and below `before`; 0 if there is none.

    A binary search: times in a log never decrease.
    """
    least, most = 0, max(before - 1, 0)
    while least < most:
        middle = (least + most + 1) // 2
        rows = await log.read(middle - 1, 1)
        if rows and rows[0].at < at:
            least = middle
        else:
            most = middle - 1
    return least
