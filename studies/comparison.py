"""Several runs of the same scenario as one statement: a mean and how sure it is; and comparisons.

Replications with the same number share their random numbers, so scenarios are compared pair by
pair: what both have in common (a quiet week, an unlucky node) cancels out.
"""

import math
from collections.abc import Sequence
from typing import Any

LEVEL = 0.95

# What scenarios are compared by: where it stands in a summary, and how it is called.
MEASURES = {
    "wait_mean_s": (("wait_s", "mean"), "mean wait"),
    "wait_p50_s": (("wait_s", "p50"), "median wait"),
    "wait_p90_s": (("wait_s", "p90"), "p90 wait"),
    "wait_p99_s": (("wait_s", "p99"), "p99 wait"),
    "jct_mean_s": (("jct_s", "mean"), "mean completion time"),
    "jct_p50_s": (("jct_s", "p50"), "median completion time"),
    "jct_p90_s": (("jct_s", "p90"), "p90 completion time"),
    "slowdown_mean": (("slowdown", "mean"), "mean slowdown"),
    "makespan_s": (("makespan_s",), "makespan"),
    "occupancy": (("goodput", "occupancy"), "occupancy"),
    "productive": (("goodput", "share", "productive"), "productive share"),
    "lost": (("goodput", "share", "lost"), "share lost to restarts"),
    "fragmented": (("goodput", "share", "fragmented"), "share blocked by fragmentation"),
    "restarts": (("restarts",), "restarts"),
    "preemptions": (("preemptions",), "preemptions"),
    "cost": (("cost",), "cost"),
    "cost_per_finished_job": (("cost_per_finished_job",), "cost per finished job"),
}


def measure(summary: dict[str, Any], name: str) -> float | None:
    value: Any = summary
    for step in MEASURES[name][0]:
        value = value[step]
    return None if value is None else float(value)


def t_quantile(freedom: int) -> float:
    """How many standard errors a 95 % interval reaches to either side, for so few values."""
    if freedom < 1:
        return math.nan
    exact = {1: 12.7062047, 2: 4.3026527, 3: 3.1824463, 4: 2.7764451}
    if freedom in exact:
        return exact[freedom]
    # Abramowitz and Stegun, 26.7.5.
    z, n = 1.959963985, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + sum(term / n ** (i + 1) for i, term in enumerate(terms))


def interval(values: Sequence[float | None]) -> dict[str, Any]:
    """The mean of independent values, with a 95 % interval from two values on."""
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "low": None, "high": None, "n": 0}
    n, mean = len(known), math.fsum(known) / len(known)
    told: dict[str, Any] = {"mean": _plain(mean), "low": None, "high": None, "n": n}
    if n > 1:
        variance = math.fsum((value - mean) ** 2 for value in known) / (n - 1)
        half = t_quantile(n - 1) * math.sqrt(variance / n)
        told |= {"low": _plain(mean - half), "high": _plain(mean + half)}
    return told


def paired(ours: Sequence[float | None], base: Sequence[float | None]) -> dict[str, Any]:
    """How much a scenario differs from the base in the same circumstances.

    It is clear when the whole interval lies on one side of 0; a single pair is never clear.
    """
    differences = [
        None if a is None or b is None else a - b for a, b in zip(ours, base, strict=True)
    ]
    told = interval(differences)
    low, high = told["low"], told["high"]
    told["clear"] = low is not None and (low > 0 or high < 0)
    before = interval(base)["mean"]
    told["relative"] = None if not before or told["mean"] is None else _plain(told["mean"] / before)
    return told


def _plain(value: float) -> float:
    return round(value, 6)
