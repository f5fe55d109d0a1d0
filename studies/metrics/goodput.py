"""Goodput: where the GPU time went. Every GPU-second of the study is in exactly one of these parts.

| part          | state of the GPU                                                             |
| ------------- | ---------------------------------------------------------------------------- |
| productive    | did work of a finished or running attempt, or work that a checkpoint saved   |
| checkpointing | stood still while a checkpoint was written                                   |
| start-up      | held by a gang that was not up yet                                           |
| lost          | did work that was repeated after a restart                                   |
| held idle     | held by a gang after its verdict, until all its ranks were gone              |
| fragmented    | free, and enough GPUs for the next job were free, but in the wrong places    |
| reserved      | free, but too few GPUs for the next job, which waited for more               |
| idle          | free, and no job waited                                                      |
| down          | on a node that had failed or was not rented                                  |
"""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.disciplines.discipline import OnBlocked
from controlplane.disciplines.registry import DISCIPLINES
from studies.simulation.checkpointing import HAIR
from studies.simulation.recorder import DONE, GOING
from studies.simulation.run import Run

PARTS = (
    "productive", "checkpointing", "start_up", "lost", "held_idle",
    "fragmented", "reserved", "idle", "down",
)  # fmt: skip


def goodput(run: Run, *, detail: bool = True) -> dict[str, Any]:
    """Return the GPU-seconds of each part and their shares of the total.

    Without `detail`, fragmented and reserved time counts as idle.
    """
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
        # Times are sums of floats, so a quotient may miss a whole number by `HAIR`.
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
    """Return the GPU-seconds on nodes that accepted work."""
    times = np.array([max(begin, at) for at, _ in run.capacity] + [run.ended_at])
    gpus = np.array([gpus for _, gpus in run.capacity], dtype=np.float64)
    return float(gpus @ np.diff(np.minimum(times, run.ended_at)))


def free_while_waiting(run: Run) -> tuple[float, float, float]:
    """Return the GPU-seconds that were fragmented, reserved, and held beyond what nodes offered.

    Fragmented and reserved GPUs were free while a job waited. In a strict queue only its head
    counts; elsewhere any waiting job. A gang holds the GPUs of a failed node until all of its ranks
    are gone, so for a moment more may be held than offered.
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
    """Return all changes of waiting jobs and free GPUs, in the order of time."""
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
    """The waiting jobs and the number of free GPUs."""

    def __init__(self, run: Run) -> None:
        discipline = DISCIPLINES[run.policy.policy.discipline]
        self._gpus = run.trace.gpus.tolist()
        self._strict = discipline.on_blocked is OnBlocked.STOP
        lengths = run.trace.duration if run.trace.estimate is None else run.trace.estimate
        # A strict discipline with a key of another kind is taken for FIFO.
        self._key = lengths.tolist() if discipline.orders_by_estimate else None
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
        """Return the GPUs that the next job needs; None if no job waits.

        That is the head of a strict queue, elsewhere the waiting job that needs least.
        """
        heap = self._heap
        while heap and self._waiting.get(heap[0][1], 0) <= 0:
            heapq.heappop(heap)
        return float(self._gpus[heap[0][1]]) if heap else None
