"""Waiting of jobs: completion times, waits and slowdowns, in total and by group."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.simulation.run import Run
from studies.workloads.statistics import SHARED, SIZE_NAMES, size_class

QUANTILES = (50, 90, 95, 99)
# The lower bound of a duration in a slowdown; very short jobs would make any wait look endless.
SLOWDOWN_FLOOR_S = 10.0
GROUPS_MAX = 50


def spread(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Return mean and quantiles; a quantile is a value that occurs (nearest rank).

    All are None without values.
    """
    quantiles: dict[str, float | None] = {"mean": None}
    if not len(values):
        return quantiles | {f"p{q}": None for q in QUANTILES} | {"max": None}
    ordered = np.sort(values)
    quantiles["mean"] = round(float(ordered.mean()), 4)
    for q in QUANTILES:
        quantiles[f"p{q}"] = float(ordered[min(len(ordered) - 1, int(q / 100 * len(ordered)))])
    quantiles["max"] = float(ordered[-1])
    return quantiles


def waits(run: Run) -> NDArray[np.float64]:
    """Return seconds from submission to the first placement; NaN for jobs that never started."""
    return run.started - run.trace.submit


def completion_times(run: Run) -> NDArray[np.float64]:
    """Return seconds from submission to the end; NaN for jobs that have not ended."""
    return run.finished - run.trace.submit


def waiting(run: Run) -> dict[str, Any]:
    """Return completion times, waits and slowdowns, in total and by size, user and queue."""
    wait, jct = waits(run), completion_times(run)
    done = ~np.isnan(jct)
    slowdown = jct / np.maximum(run.trace.duration, SLOWDOWN_FLOOR_S)
    return {
        "jct_s": spread(jct[done]),
        "wait_s": spread(wait[~np.isnan(wait)]),
        "slowdown": spread(slowdown[done]),
        "waited": int((wait > 0).sum()),
        "by_size": by_group(run, [size_class(g) for g in run.trace.gpus.tolist()], _SIZES),
        "by_user": by_group(run, run.trace.labels.get("user", ())),
        "by_queue": by_group(run, run.trace.labels.get("queue", ())),
    }


_SIZES = [SHARED, *SIZE_NAMES]


def by_group(run: Run, groups: Sequence[str], order: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return waits and completion times by group, sorted by GPU time or in the given `order`."""
    if not len(groups):
        return []
    names, codes = np.unique(np.array(groups, dtype=object).astype(str), return_inverse=True)
    wait, jct = waits(run), completion_times(run)
    work = run.trace.gpus * run.trace.duration
    entries = []
    for code, name in enumerate(names.tolist()):
        rows = codes == code
        entries.append(
            {
                "name": name,
                "jobs": int(rows.sum()),
                "gpu_hours": round(float(work[rows].sum()) / 3600, 1),
                "wait_s": spread(wait[rows & ~np.isnan(wait)]),
                "jct_s": spread(jct[rows & ~np.isnan(jct)]),
            }
        )
    if order:
        return sorted(entries, key=lambda group: order.index(str(group["name"])))
    entries.sort(key=lambda group: (-float(str(group["gpu_hours"])), str(group["name"])))
    return entries[:GROUPS_MAX]


def fairness(run: Run) -> dict[str, Any]:
    """Return Jain's index of the mean slowdowns of users (or queues).

    It is 1 if all are equal, and 1/n at worst; None with fewer than two groups.
    """
    for column in ("user", "queue"):
        groups = run.trace.labels.get(column, ())
        if len(set(groups)) > 1:
            break
    else:
        return {"over": None, "jain_slowdown": None, "worst": None}
    slowdown = completion_times(run) / np.maximum(run.trace.duration, SLOWDOWN_FLOOR_S)
    names, codes = np.unique(np.array(groups, dtype=object).astype(str), return_inverse=True)
    fine = ~np.isnan(slowdown)
    sums = np.bincount(codes[fine], weights=slowdown[fine], minlength=len(names))
    counts = np.bincount(codes[fine], minlength=len(names))
    means = sums[counts > 0] / counts[counts > 0]
    worst = int(np.argmax(means))
    return {
        "over": column,
        "groups": len(means),
        "jain_slowdown": round(float(means.sum() ** 2 / (len(means) * (means**2).sum())), 4),
        "worst": {
            "name": str(names[counts > 0][worst]),
            "mean_slowdown": round(float(means[worst]), 2),
        },
    }
