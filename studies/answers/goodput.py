"""Where the GPU time went: every GPU-second of the study is in exactly one of these.

| part          | what a GPU did                                                               |
| ------------- | ---------------------------------------------------------------------------- |
| productive    | work that a finished or still running attempt did, or that a checkpoint kept |
| checkpointing | stood still while a checkpoint was written                                   |
| start-up      | held by a gang that was not up yet                                           |
| lost          | work that was done again after a restart                                     |
| held idle     | held by a gang that had its verdict, until all its ranks were gone           |
| fragmented    | free, and enough of them for whoever is next, but not in the right places    |
| reserved      | free, too few for whoever is next (who waits until more are free)            |
| idle          | free, and nobody waited                                                      |
| down          | on nodes that had failed, or that were not rented                            |
"""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.sharing import Discipline
from studies.checkpointing import HAIR
from studies.recorder import DONE, GOING
from studies.run import Run

PARTS = (
    "productive", "checkpointing", "start_up", "lost", "held_idle",
    "fragmented", "reserved", "idle", "down",
)  # fmt: skip

_STRICT = (Discipline.STRICT_FIFO, Discipline.STRICT_SHORTEST)
_SHORTEST = (Discipline.STRICT_SHORTEST, Discipline.SHORTEST_FIT)


def goodput(run: Run, *, detail: bool = True) -> dict[str, Any]:
    """GPU-seconds by part, and shares of all that there were."""
    begin = float(run.trace.submit[0])
    total = run.cluster.gpus * (run.ended_at - begin)
    parts = dict.fromkeys(PARTS, 0.0) | _held(run)
    offered = _offered(run, begin)
    held = sum(parts[name] for name in PARTS[:5])
    held_down = 0.0
    if detail:
        parts["fragmented"], parts["reserved"], held_down = free_while_waiting(run)
    parts["down"] = max(0.0, total - offered - held_down)
    free = max(0.0, offered - held + held_down)
    parts["idle"] = max(0.0, free - parts["fragmented"] - parts["reserved"])
    return {
        "gpu_seconds": {name: round(parts[name], 3) for name in PARTS},
        "share": {name: round(parts[name] / total, 6) if total else 0.0 for name in PARTS},
        "occupancy": round(held / total, 6) if total else 0.0,
        "gpu_seconds_offered": round(offered, 3),
    }


def _held(run: Run) -> dict[str, float]:
    a, end = run.attempts, run.ended_at
    gpus = run.trace.gpus[a.job].astype(np.float64)
    running = np.where(np.isnan(a.running_at), end, a.running_at)
    ended = np.where(np.isnan(a.ended_at), end, a.ended_at)
    stopped = np.where(np.isnan(a.stopped_at), end, a.stopped_at)
    running = np.minimum(running, stopped)
    ran = stopped - running
    kept = np.ones(len(ran), dtype=bool)
    kept[(a.outcome != DONE) & (a.outcome != GOING)] = False
    plan = run.checkpoints
    if plan.every_s:
        # Times are sums of other times, so a whole number of cycles may miss it by a hair.
        cycles = ran / (plan.every_s + plan.write_s)
        whole = np.floor(cycles + HAIR)
        begun = np.where(kept, np.ceil(cycles - HAIR), whole)
        writing = np.minimum(ran, begun * plan.write_s)
        saved = np.where(kept, ran - writing, whole * plan.every_s)
    else:
        writing = np.zeros(len(ran))
        saved = np.where(kept, ran, 0.0)
    return {
        "productive": float(gpus @ saved),
        "checkpointing": float(gpus @ writing),
        "lost": float(gpus @ (ran - saved - writing)),
        "start_up": float(gpus @ (running - a.placed_at)),
        "held_idle": float(gpus @ np.maximum(0.0, ended - stopped)),
    }


def _offered(run: Run, begin: float) -> float:
    """GPU-seconds on nodes that took work."""
    times = np.array([max(begin, at) for at, _ in run.capacity] + [run.ended_at])
    gpus = np.array([gpus for _, gpus in run.capacity], dtype=np.float64)
    return float(gpus @ np.diff(np.minimum(times, run.ended_at)))


def free_while_waiting(run: Run) -> tuple[float, float, float]:
    """GPU-seconds that were free while a job waited: as (fragmented, reserved), and those that were
    held beyond what the nodes offered.

    In a strict line only the first job matters; elsewhere any job that waits. A gang holds the GPUs
    of a failed node until all of its ranks are gone, so for a moment more may be held than offered.
    """
    line = _Line(run)
    fragmented = reserved = held_down = 0.0
    before = float(run.trace.submit[0])
    for at, kind, value in _changes(run):
        if at > before and line.free < 0:
            held_down -= line.free * (at - before)
        elif at > before and line.free > HAIR and (need := line.need()) is not None:
            if need <= line.free + HAIR:
                fragmented += line.free * (at - before)
            else:
                reserved += line.free * (at - before)
        before = max(before, at)
        line.take(kind, value)
    return fragmented, reserved, held_down


_COME, _GO, _FREE = range(3)


def _changes(run: Run) -> list[tuple[float, int, float]]:
    """All that changes who waits and what is free, in the order of time."""
    a, gpus, end = run.attempts, run.trace.gpus[run.attempts.job], run.ended_at
    ended = np.where(np.isnan(a.ended_at), end, a.ended_at)
    rows = [row for row in range(len(run.trace)) if row not in run.refused]
    times: list[NDArray[np.float64]] = [run.trace.submit[rows], a.placed_at, a.placed_at, ended]
    kinds = [np.full(len(t), k) for t, k in zip(times, (_COME, _GO, _FREE, _FREE), strict=True)]
    values = [np.array(rows, dtype=np.int64), a.job, -gpus, gpus]
    again = np.nonzero(np.isin(a.outcome, (GOING, DONE), invert=True))[0]
    times.append(ended[again])
    kinds.append(np.full(len(again), _COME))
    values.append(a.job[again])
    capacity = np.array([0, *(gpus for _, gpus in run.capacity)])
    times.append(np.array([at for at, _ in run.capacity]))
    kinds.append(np.full(len(run.capacity), _FREE))
    values.append(np.diff(capacity))
    at, kind, value = (np.concatenate(x) for x in (times, kinds, values))
    order = np.lexsort((kind, at))
    return list(zip(at[order].tolist(), kind[order].tolist(), value[order].tolist(), strict=True))


class _Line:
    """Who waits, and how many GPUs are free."""

    def __init__(self, run: Run) -> None:
        discipline = run.policy.policy.discipline
        self._gpus = run.trace.gpus.tolist()
        self._strict = discipline in _STRICT
        said = run.trace.duration if run.trace.estimate is None else run.trace.estimate
        self._key = said.tolist() if discipline in _SHORTEST else None
        self._waiting: dict[int, int] = {}
        self._heap: list[tuple[float, int]] = []
        self.free = 0.0

    def take(self, kind: int, value: float) -> None:
        if kind == _FREE:
            self.free += value
            return
        row = int(value)
        if kind == _COME:
            self._waiting[row] = self._waiting.get(row, 0) + 1
            heapq.heappush(self._heap, (self._order(row), row))
        else:
            self._waiting[row] = self._waiting.get(row, 0) - 1

    def _order(self, row: int) -> float:
        if not self._strict:
            return float(self._gpus[row])
        return float(row) if self._key is None else float(self._key[row])

    def need(self) -> float | None:
        """What the first in a strict line needs, or elsewhere the least that anyone needs."""
        heap = self._heap
        while heap and self._waiting.get(heap[0][1], 0) <= 0:
            heapq.heappop(heap)
        return float(self._gpus[heap[0][1]]) if heap else None
