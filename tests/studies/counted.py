"""The queue disciplines on a pool, by counting, from one event to the next; for traces of any length.

At each instant jobs end, then jobs come, then all jobs that may start are started in queue order.
Written for itself: it shares nothing with the scheduler, and its only data are lists.
"""

from bisect import insort
from collections.abc import Sequence

Row = tuple[float, int, float]  # submit, gpus, duration


def starts(rows: Sequence[Row], gpus: int, policy: str) -> list[float]:
    """When each row starts; rows are in the order of submission."""
    start_times, running, line = (
        [0.0] * len(rows),
        list[tuple[float, int]](),
        list[tuple[float, int]](),
    )
    free, come = gpus, 0
    while come < len(rows) or running:
        now = min([at for at, _ in running[:1]] + [at for at, _, _ in rows[come : come + 1]])
        while come < len(rows) and rows[come][0] <= now:
            insort(line, (rows[come][2] if policy.startswith("sjf") else 0.0, come))
            come += 1
        ended = True
        while ended:
            while running and running[0][0] <= now:
                free += rows[running.pop(0)[1]][1]
            started = _pass(rows, line, running, free, now, policy)
            for entry in started:
                start_times[entry[1]] = now
                free -= rows[entry[1]][1]
                line.remove(entry)
                insort(running, (now + rows[entry[1]][2], entry[1]))
            # Jobs of no length end at once and make room for others.
            ended = any(rows[row][2] == 0 for _, row in started)
    return start_times


def _pass(rows, line, running, free, now, policy) -> list[tuple[float, int]]:
    started, shadow, spare = list[tuple[float, int]](), None, 0
    for entry in line:
        _, need, length = rows[entry[1]]
        if free == 0:
            break
        harmless = shadow is None or now + length <= shadow or need <= spare
        if need <= free and harmless:
            started.append(entry)
            free -= need
            if shadow is not None and now + length > shadow:
                spare -= need
        elif policy in ("fifo", "sjf"):
            break
        elif policy == "easy" and shadow is None:
            ends = [*running, *((now + rows[row][2], row) for _, row in started)]
            shadow, spare = _reservation(rows, sorted(ends), free, need)
    return started


def _reservation(rows, ends, free, need) -> tuple[float, int]:
    """When the head can start, and what is left besides it then."""
    at = None
    for end, row in ends:
        if at is not None and end > at:
            break
        free += rows[row][1]
        if free >= need and at is None:
            at = end
    assert at is not None
    return at, free - need
