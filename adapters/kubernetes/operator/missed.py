"""What was recorded while nobody told Kubernetes, read from the log once more."""

from collections.abc import AsyncIterator, Mapping

from controlplane import codec
from controlplane import events as e
from controlplane.ports import EventLog

ROWS_MAX = 1_000


async def missed(
    log: EventLog, told: Mapping[str, int], *, since: float, before: int
) -> AsyncIterator[e.Recorded]:
    """Events of these jobs that came after what has been told of them, up to a position.

    `told` has the position of each. Older ones than `since` would be thrown away anyway.
    """
    after = await position_at(log, since, before)
    while after < before - 1:
        rows = await log.read(after, min(ROWS_MAX, before - 1 - after))
        if not rows:
            return
        for row in rows:
            if row[2] in told and row[0] > told[row[2]]:
                yield codec.from_row(row)
        after = rows[-1][0]


async def position_at(log: EventLog, at: float, before: int) -> int:
    """The last position of before an instant; times in a log never run back."""
    least, most = 0, max(before - 1, 0)
    while least < most:
        middle = (least + most + 1) // 2
        rows = await log.read(middle - 1, 1)
        if rows and rows[0][1] < at:
            least = middle
        else:
            most = middle - 1
    return least
