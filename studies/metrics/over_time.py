"""The cluster over time: its use, the fragmentation of free GPUs, and the places of jobs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.simulation.run import Run
from studies.workloads.trace import gpu_number

BINS = 240
HEAT_ROWS_MAX = 64
GANTT_MAX = 400
Grid = NDArray[np.float64]


def edges(run: Run, bins: int = BINS) -> NDArray[np.float64]:
    """Return the edges of `bins` equal bins from the first submission to the end of the run."""
    begin = float(run.trace.submit[0])
    return np.linspace(begin, max(run.ended_at, begin + 1.0), bins + 1)


def mean_level(
    starts: NDArray[np.float64], ends: NDArray[np.float64], heights: Any, cuts: Any
) -> Grid:
    """Return the exact mean over each bin of the sum of all intervals with their heights."""
    if not len(starts):
        return np.zeros(len(cuts) - 1)
    times = np.concatenate((starts, ends))
    change = np.concatenate((heights, -heights)).astype(np.float64)
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(change[order])
    # The area grows linearly between changes, so linear interpolation of it is exact.
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(times))))
    at_cuts = np.interp(cuts, times, area, left=0.0, right=area[-1])
    grid: Grid = np.diff(at_cuts) / np.diff(cuts)
    return grid


def over_time(run: Run) -> dict[str, Any]:
    """Return the series of a run in `BINS` equal bins of time."""
    cuts = edges(run)
    a, end = run.attempts, run.ended_at
    ended = np.where(np.isnan(a.ended_at), end, a.ended_at)
    gpus = run.trace.gpus[a.job]
    used = mean_level(a.placed_at, ended, gpus, cuts)
    rows = np.array([r for r in range(len(run.trace)) if r not in run.refused], dtype=np.int64)
    started = np.where(np.isnan(run.started), end, run.started)[rows]
    waiting_jobs = mean_level(run.trace.submit[rows], started, np.ones(len(rows)), cuts)
    waiting_gpus = mean_level(run.trace.submit[rows], started, run.trace.gpus[rows], cuts)
    times = np.array([at for at, _ in run.capacity])
    offered = mean_level(
        times, np.append(times[1:], end), np.array([g for _, g in run.capacity]), cuts
    )
    series = {
        "t_s": [round(float(x), 1) for x in cuts[:-1] - cuts[0]],
        "bin_s": round(float(cuts[1] - cuts[0]), 3),
        "used_gpus": _rounded(used),
        "offered_gpus": _rounded(offered),
        "waiting_jobs": _rounded(waiting_jobs),
        "waiting_gpus": _rounded(waiting_gpus),
    }
    if len(a.place_node):
        series |= _places(run, ended, cuts)
    return series


def _places(run: Run, ended: NDArray[np.float64], cuts: NDArray[np.float64]) -> dict[str, Any]:
    """Return a heat map of the GPUs held by node, and the share of free GPUs on partly used nodes."""
    a, nodes = run.attempts, run.cluster.model.nodes
    middles = (cuts[:-1] + cuts[1:]) / 2
    first = np.searchsorted(middles, a.placed_at[a.place_attempt])
    last = np.searchsorted(middles, ended[a.place_attempt])
    grid = np.zeros((len(nodes), len(middles) + 1))
    np.add.at(grid, (a.place_node, first), a.place_gpus)
    np.add.at(grid, (a.place_node, last), -a.place_gpus)
    held = np.cumsum(grid, axis=1)[:, :-1]
    size = np.array([node.gpus for node in nodes], dtype=np.float64)[:, None]
    free = size - held
    scattered = np.where((free > 0) & (held > 0), free, 0.0).sum(axis=0)
    all_free = free.sum(axis=0)
    share = np.divide(scattered, all_free, out=np.zeros_like(all_free), where=all_free > 0)
    groups = np.array_split(np.arange(len(nodes)), min(HEAT_ROWS_MAX, len(nodes)))
    heat = [held[rows].sum(axis=0) / size[rows].sum() for rows in groups]
    return {
        "scattered_share": _rounded(share),
        "heat": [_rounded(row, 3) for row in heat],
        "heat_rows": [
            nodes[rows[0]].name if len(rows) == 1 else f"{nodes[rows[0]].name} to {nodes[rows[-1]].name}"
            for rows in groups
        ],
    }  # fmt: skip


def gantt(run: Run, begin_s: float | None = None, length_s: float | None = None) -> dict[str, Any]:
    """Return the attempts in a window, at most the `GANTT_MAX` largest, in the order of placement.

    Without a window, it is the one in which jobs waited for the most GPUs. Times are seconds from
    the first submission.
    """
    a, end = run.attempts, run.ended_at
    origin = float(run.trace.submit[0])
    span = end - origin
    length = min(span, length_s if length_s is not None else max(3600.0, span / 20))
    begin = origin + begin_s if begin_s is not None else _busiest(run, length)
    ended = np.where(np.isnan(a.ended_at), end, a.ended_at)
    inside = np.nonzero((a.placed_at < begin + length) & (ended > begin))[0]
    gpus = run.trace.gpus[a.job]
    chosen = inside[np.argsort(-gpus[inside] * 1.0, kind="stable")][:GANTT_MAX]
    chosen = chosen[np.argsort(a.placed_at[chosen], kind="stable")]
    return {
        "begin_s": round(begin - origin, 3),
        "length_s": round(length, 3),
        "shown": len(chosen),
        "of": len(inside),
        "bars": [
            [
                run.trace.ids[a.job[i]],
                gpu_number(gpus[i]),
                round(float(run.trace.submit[a.job[i]] - origin), 1),
                round(float(a.placed_at[i] - origin), 1),
                round(float(ended[i] - origin), 1),
                int(a.outcome[i]),
            ]
            for i in chosen
        ],
    }


def _busiest(run: Run, length: float) -> float:
    """Return the begin of the window around the bin in which jobs waited for the most GPUs."""
    cuts = edges(run)
    end = run.ended_at
    started = np.where(np.isnan(run.started), end, run.started)
    waiting = mean_level(run.trace.submit, started, run.trace.gpus, cuts)
    middle = float(cuts[int(np.argmax(waiting))])
    return float(max(cuts[0], min(middle - length / 2, end - length)))


def _rounded(values: Any, digits: int = 3) -> list[float]:
    return [round(float(x), digits) for x in values]
