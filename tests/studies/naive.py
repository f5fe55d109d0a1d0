"""The queue disciplines as plainly as they can be written: one second after the other.

At each second jobs end, then jobs come, then one pass starts every job that may start.
"""

from collections.abc import Sequence

Row = tuple[int, int, int]  # submit, gpus, duration
Times = dict[int, tuple[int, int]]


def schedule(rows: Sequence[Row], gpus: int, policy: str) -> Times:
    free, now, times, waiting = gpus, 0, {}, []
    running: list[tuple[int, int, int]] = []  # end, row, gpus
    to_come = sorted(range(len(rows)), key=lambda i: (rows[i][0], i))
    while to_come or waiting or running:
        for end, row, held in [r for r in running if r[0] <= now]:
            running.remove((end, row, held))
            free += held
        while to_come and rows[to_come[0]][0] <= now:
            waiting.append(to_come.pop(0))
        while True:
            chosen = _next(rows, waiting, running, free, now, policy)
            if chosen is None:
                break
            waiting.remove(chosen)
            _, need, length = rows[chosen]
            free -= need
            times[chosen] = (now, now + length)
            if length:
                running.append((now + length, chosen, need))
            else:
                free += need
        now += 1
    return times


def _next(rows, waiting, running, free, now, policy) -> int | None:
    shortest = policy.startswith("sjf")
    line = sorted(waiting, key=lambda i: (rows[i][2] if shortest else 0, rows[i][0], i))
    for place, row in enumerate(line):
        if rows[row][1] <= free:
            if place == 0 or policy in ("fit", "sjffit"):
                return row
            if policy == "easy" and _harmless(rows, line[0], row, running, free, now):
                return row
        elif policy in ("fifo", "sjf"):
            return None
    return None


def _harmless(rows, head, row, running, free, now) -> bool:
    """Whether the head could start as early as it can now, were this row to start."""
    room, shadow = free, now
    for end, _, held in sorted(running):
        if room >= rows[head][1]:
            break
        room, shadow = room + held, end
    # What ends together with the one that makes room counts too.
    room = free + sum(held for end, _, held in running if end <= shadow)
    spare = room - rows[head][1]
    return now + rows[row][2] <= shadow or rows[row][1] <= spare
