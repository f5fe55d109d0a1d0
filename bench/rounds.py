"""Races on a machine that other people use too.

Contenders take turns, round by round, and a ratio is taken within a round, where both met the same
weather; what is reported is the median of the ratios.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from controlplane.model.events import JobRestarting, Recorded
from controlplane.model.failures import Cause, Restart

MESSAGE = "the container ran out of memory and was killed by the kernel"


def sample(first: int, count: int) -> list[Recorded]:
    """Events of ten jobs in turn, with payloads of 270 to 290 bytes of JSON."""
    return [
        Recorded(position, 1.7e9 + position / 8, _restarting(position), f"c{position:020}", "ann")
        for position in range(first, first + count)
    ]


def _restarting(position: int) -> JobRestarting:
    at, node = 1.7e9 + position / 8, f"gpu-rack-07-node-{position % 64:04}"
    restart = Restart(at, 2, Cause.EXIT, True, rank=3, exit_code=137, node=node, detail=MESSAGE)
    return JobRestarting(f"01JD8Z5Q7W3F{position % 10:014}", restart, 3, at + 10)


class Contender(NamedTuple):
    """Who appends batches: `prepare` is not timed, `append` is, until the batch is durable."""

    prepare: Callable[[list[Recorded]], Any]
    append: Callable[[Any], Awaitable[None]]


Seconds = dict[str, list[float]]


async def race(
    contenders: dict[str, Contender], *, batch: int, appends: int, rounds: int
) -> Seconds:
    """How long each contender took for the same appends, round by round."""
    seconds: Seconds = {name: [] for name in contenders}
    order, position = list(contenders), 1
    # The first round only fills caches and lets files grow to their size.
    for number in range(rounds + 1):
        batches = [sample(position + n * batch, batch) for n in range(appends)]
        position += appends * batch
        for name in order:
            took = await _time(contenders[name], batches)
            if number > 0:
                seconds[name].append(took)
        order.append(order.pop(0))
    return seconds


async def _time(contender: Contender, batches: Sequence[list[Recorded]]) -> float:
    prepared = [contender.prepare(batch) for batch in batches]
    began = perf_counter()
    for batch in prepared:
        await contender.append(batch)
    return perf_counter() - began


def result(
    name: str,
    seconds: Seconds,
    ours: str,
    baseline: str,
    *,
    events: int,
    target: float | None = None,
    note: str = "",
) -> dict[str, Any]:
    """One line of a report: events a second of ours and of the baseline, and their ratio."""
    ratios = [theirs / mine for theirs, mine in zip(seconds[baseline], seconds[ours], strict=True)]
    load = f"load {os.getloadavg()[0]:.1f}"
    return {
        "name": name,
        "value": round(events / median(seconds[ours])),
        "baseline": round(events / median(seconds[baseline])),
        "ratio": round(median(ratios), 2),
        "target": target,
        "unit": "events/s",
        "note": f"{note}; {load}" if note else load,
    }
