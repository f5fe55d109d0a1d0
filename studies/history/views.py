"""Answers about a span of time, made from the indexes: marks, failures, usage and bars.

The API sends them, and the result of a fork has them for each of its futures.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec import Struct, field

from controlplane.messages import words
from studies.history.index import HistoryIndex
from studies.history.levels import Levels, Numbers
from studies.history.marks import Mark, MarkKind
from studies.history.spans import Table, take
from studies.history.timeline import TimelineJob, TimelineNode
from studies.history.usage import DEMAND, PARTS


class Marks(Struct, frozen=True, kw_only=True):
    """The marks of a span: all of them counted by kind and bin, and some of them in words.

    `items` are all marks if `thinned` is false; else rare kinds are complete, and the others thinned
    out evenly. `position` is the last event that was looked at.
    """

    from_: float = field(name="from")
    to: float
    position: int
    bin_s: float
    total: int
    counts: dict[MarkKind, list[int]]
    thinned: bool
    items: list[Mark]


class CauseCount(Struct, frozen=True, kw_only=True):
    """How often something happened for one cause; `message` names the cause in words."""

    kind: MarkKind
    cause: str
    message: str
    count: int


class Failures(Struct, frozen=True, kw_only=True):
    """Failures, restarts, preemptions and losses of nodes in a span by cause, most frequent first."""

    from_: float = field(name="from")
    to: float
    position: int
    items: list[CauseCount]


class QueueUsage(Struct, frozen=True, kw_only=True):
    """The GPUs that a queue's jobs held and waited for; means over each bin."""

    used_gpus: list[float]
    waiting_gpus: list[float]


class Usage(Struct, frozen=True, kw_only=True):
    """Where the GPUs were: the mean number of GPUs in each state over each bin.

    `productive` to `free` add up to `total`. `held_idle` is held by gangs that stop, or of which a
    rank is lost or in back-off; `fragmented` is free while a job waits because what is free is in
    the wrong places. `waiting_gpus` and `waiting_jobs` are what queued jobs ask for. `starts` is the
    number of gangs that started for the first time, and `wait_mean_s` and `wait_max_s` how long
    those had waited; null where none started.
    """

    from_: float = field(name="from")
    to: float
    position: int
    bin_s: float
    total: list[float]
    productive: list[float]
    starting: list[float]
    held_idle: list[float]
    down: list[float]
    cordoned: list[float]
    fragmented: list[float]
    free: list[float]
    waiting_gpus: list[float]
    waiting_jobs: list[float]
    unschedulable_gpus: list[float]
    starts: list[int]
    wait_mean_s: list[float | None]
    wait_max_s: list[float | None]
    queues: dict[str, QueueUsage] = {}


class Lanes(StrEnum):
    NODES = "nodes"
    JOBS = "jobs"


class Bars(Struct, frozen=True, kw_only=True):
    """Devices that attempts held, as columns.

    `node` is -1 where a bar stands for a whole attempt. `devices` has bit N set for device N.
    `running` is when the gang ran, null if it did not; `to` is null while it holds devices. `how` is
    how it ended, an index into `ends`.
    """

    job: list[int]
    attempt: list[int]
    node: list[int]
    devices: list[int]
    gpus: list[float]
    from_: list[float] = field(name="from")
    running: list[float | None]
    to: list[float | None]
    how: list[int]


class Waits(Struct, frozen=True, kw_only=True):
    """Spans in which jobs waited, as columns; `to` is null for those that still wait.

    `unschedulable` is 1 where the job waited outside its queue, since it could not have started on
    the empty cluster.
    """

    job: list[int]
    from_: list[float] = field(name="from")
    to: list[float | None]
    unschedulable: list[int]


class Outages(Struct, frozen=True, kw_only=True):
    """Spans in which nodes took no work, as columns; `cordoned` is 0 where the node was down."""

    node: list[int]
    from_: list[float] = field(name="from")
    to: list[float | None]
    cordoned: list[int]


class Timeline(Struct, frozen=True, kw_only=True):
    """The bars of a span. Times are seconds after `origin`.

    `bars_total` and `waits_total` are the numbers before the limit; of more bars than that, those
    with the most GPU-seconds are shown. Bars that ended before `complete_after` may be missing.
    """

    origin: float
    to: float
    now: float
    position: int
    lanes: Lanes
    jobs: list[TimelineJob]
    nodes: list[TimelineNode]
    ends: list[str]
    bars: Bars
    bars_total: int
    waits: Waits
    waits_total: int
    outages: Outages
    complete_after: float | None = None


def marks_view(index: HistoryIndex, cuts: Numbers, kinds: Sequence[MarkKind], limit: int) -> Marks:
    """Return the marks between the first and the last of `cuts`, at most `limit` of them in words."""
    counts = index.marks.counts(cuts, kinds)
    total = sum(map(sum, counts.values()))
    begin, end = float(cuts[0]), float(cuts[-1])
    items = index.marks.some(begin, end, kinds, limit)
    return Marks(
        from_=begin,
        to=end,
        position=index.position,
        bin_s=(end - begin) / (len(cuts) - 1),
        total=total,
        counts=counts,
        thinned=len(items) < total,
        items=items,
    )


def failures_view(index: HistoryIndex, begin: float, end: float) -> Failures:
    """Return how often what happened from `begin` to `end`, by cause."""
    items = [
        CauseCount(kind=kind, cause=cause, message=words(cause), count=count)
        for kind, cause, count in index.marks.causes(begin, end)
    ]
    return Failures(from_=begin, to=end, position=index.position, items=items)


def usage_view(index: HistoryIndex, cuts: Numbers, *, with_queues: bool = False) -> Usage:
    """Return where the GPUs were between the first and the last of `cuts`."""
    levels = _means(index.usage.levels, cuts)
    waits = index.usage.waits(cuts)
    begin, end = float(cuts[0]), float(cuts[-1])
    return Usage(
        from_=begin,
        to=end,
        position=index.position,
        bin_s=(end - begin) / (len(cuts) - 1),
        **{name: levels[name] for name in (*PARTS, *DEMAND, "total")},
        starts=waits.starts,
        wait_mean_s=waits.mean_s,
        wait_max_s=waits.max_s,
        queues=_queues(index, cuts) if with_queues else {},
    )


def _queues(index: HistoryIndex, cuts: Numbers) -> dict[str, QueueUsage]:
    queues = index.usage.queues
    return {name: QueueUsage(**_means(queues[name], cuts)) for name in sorted(queues)}


def _means(levels: Levels, cuts: Numbers) -> dict[str, list[float]]:
    return {name: np.round(mean, 3).tolist() for name, mean in levels.means(cuts).items()}


def timeline_view(
    history: HistoryIndex,
    *,
    begin: float,
    end: float,
    now: float,
    lanes: Lanes,
    limit: int,
) -> Timeline:
    """Return the bars between `begin` and `end`."""
    index = history.timeline
    pieces, waits = index.pieces.between(begin, end), index.waits.between(begin, end)
    if lanes is Lanes.JOBS:
        pieces = _by_attempt(pieces)
    shown = _largest(pieces, pieces["milli"], limit, now)
    waiting = _largest(waits, np.ones(len(waits["job"])), limit, now)
    numbers = np.unique(np.concatenate((shown["job"], waiting["job"])))
    complete_after = max(index.pieces.complete_after, index.waits.complete_after)
    return Timeline(
        origin=begin,
        to=end,
        now=now,
        position=history.position,
        lanes=lanes,
        jobs=[index.jobs[number] for number in numbers.tolist()],
        nodes=index.nodes if lanes is Lanes.NODES else [],
        ends=index.ends,
        bars=_bars(shown, numbers, begin),
        bars_total=len(pieces["job"]),
        waits=_waits(waiting, numbers, begin),
        waits_total=len(waits["job"]),
        outages=_outages(index.outages.between(begin, end), begin),
        complete_after=complete_after if complete_after > begin else None,
    )


def _by_attempt(pieces: Table) -> Table:
    """Return one row for each attempt, with all that it held together."""
    if not len(pieces["job"]):
        return pieces
    ordered = take(pieces, np.lexsort((pieces["begin"], pieces["attempt"], pieces["job"])))
    keys = np.stack((ordered["job"], ordered["attempt"]))
    first = np.flatnonzero(np.append(True, np.any(keys[:, 1:] != keys[:, :-1], axis=0)))
    whole = take(ordered, first)
    whole["milli"] = np.add.reduceat(ordered["milli"], first)
    whole["end"] = np.maximum.reduceat(ordered["end"], first)
    whole["how"] = np.maximum.reduceat(ordered["how"], first)
    whole["node"] = np.full(len(first), -1)
    whole["devices"] = np.zeros(len(first), dtype=np.int64)
    return whole


def _largest(spans: Table, weights: Any, limit: int, now: float) -> Table:
    """Return at most `limit` spans, in order: those with the largest weight times length."""
    if len(spans["begin"]) <= limit:
        return spans
    length = np.minimum(spans["end"], now) - spans["begin"]
    chosen = np.argpartition(-(length * weights), limit - 1)[:limit]
    return take(spans, np.sort(chosen))


def _bars(spans: Table, numbers: Any, origin: float) -> Bars:
    return Bars(
        job=np.searchsorted(numbers, spans["job"]).tolist(),
        attempt=spans["attempt"].tolist(),
        node=spans["node"].tolist(),
        devices=spans["devices"].tolist(),
        gpus=[milli // 1_000 if milli % 1_000 == 0 else milli / 1_000
              for milli in spans["milli"].tolist()],
        from_=_times(spans["begin"], origin),
        running=_maybe(spans["running"], origin),
        to=_maybe(spans["end"], origin),
        how=spans["how"].tolist(),
    )  # fmt: skip


def _waits(spans: Table, numbers: Any, origin: float) -> Waits:
    return Waits(
        job=np.searchsorted(numbers, spans["job"]).tolist(),
        from_=_times(spans["begin"], origin),
        to=_maybe(spans["end"], origin),
        unschedulable=spans["kind"].tolist(),
    )


def _outages(spans: Table, origin: float) -> Outages:
    return Outages(
        node=spans["node"].tolist(),
        from_=_times(spans["begin"], origin),
        to=_maybe(spans["end"], origin),
        cordoned=spans["kind"].tolist(),
    )


def _times(at: Any, origin: float) -> list[float]:
    times: list[float] = np.round(at - origin, 3).tolist()
    return times


def _maybe(at: Any, origin: float) -> list[float | None]:
    """Return times, with None where there is none yet."""
    times: list[float | None] = _times(at, origin)  # type: ignore[assignment]
    for index in np.flatnonzero(~np.isfinite(at)).tolist():
        times[index] = None
    return times
