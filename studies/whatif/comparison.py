"""Statistics over replications: means with confidence intervals, and paired comparisons.

Replications with the same number share their random numbers (common random numbers), so two
scenarios are compared pair by pair: what both have in common, such as a quiet week or an unlucky
node, cancels out. Intervals are those of Student's t distribution.
"""

import math
from collections.abc import Sequence
from typing import Any

# The measures by which scenarios are compared: the path of each in a summary, and its label.
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
    """Return a measure of a summary, or None if it is not defined there."""
    value: Any = summary
    for step in MEASURES[name][0]:
        value = value[step]
    return None if value is None else float(value)


def t_quantile(freedom: int) -> float:
    """Return the half-width of a 95 % interval in standard errors.

    `freedom` is the number of degrees of freedom; below 1 the result is NaN.
    """
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
    """Return the mean of independent values, with a 95 % interval if there are at least two.

    Values that are None are left out; without any value the mean is None.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "low": None, "high": None, "n": 0}
    n, mean = len(known), math.fsum(known) / len(known)
    summary: dict[str, Any] = {"mean": _plain(mean), "low": None, "high": None, "n": n}
    if n > 1:
        variance = math.fsum((value - mean) ** 2 for value in known) / (n - 1)
        half = t_quantile(n - 1) * math.sqrt(variance / n)
        summary |= {"low": _plain(mean - half), "high": _plain(mean + half)}
    return summary


def paired(ours: Sequence[float | None], base: Sequence[float | None]) -> dict[str, Any]:
    """Return by how much a scenario differs from the base, replication by replication.

    `clear` is true when the whole 95 % interval lies on one side of 0; a single pair is never
    clear. `relative` is the difference divided by the mean of the base, or None if that is 0 or
    unknown.
    """
    differences = [
        None if a is None or b is None else a - b for a, b in zip(ours, base, strict=True)
    ]
    difference = interval(differences)
    low, high = difference["low"], difference["high"]
    difference["clear"] = low is not None and (low > 0 or high < 0)
    before = interval(base)["mean"]
    difference["relative"] = (
        None if not before or difference["mean"] is None else _plain(difference["mean"] / before)
    )
    return difference


def _plain(value: float) -> float:
    return round(value, 6)
