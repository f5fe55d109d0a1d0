"""Variants of a recorded workload: a block bootstrap over its days, or another load."""

import random
from dataclasses import replace

import numpy as np

from studies.workloads.trace import Trace

DAY_S = 86_400.0


def resampled(trace: Trace, seed: str) -> Trace:
    """Return as many days as the trace has, each drawn from it with replacement (block bootstrap).

    A day stays as it was, so bursts, the daily rhythm and correlations within a day are kept;
    dependence between days is lost. A trace shorter than two days is cut into twelfths of its
    length instead. `seed` seeds the draw.
    """
    block_s = DAY_S if trace.span_s >= 2 * DAY_S else max(1.0, trace.span_s / 12)
    origin = float(trace.submit[0])
    block = ((trace.submit - origin) // block_s).astype(np.int64)
    count = int(block[-1]) + 1
    firsts = np.searchsorted(block, np.arange(count + 1))
    draw = random.Random(seed)
    rows: list[np.ndarray] = []
    submit: list[np.ndarray] = []
    for place in range(count):
        drawn = draw.randrange(count)
        chosen = np.arange(firsts[drawn], firsts[drawn + 1])
        rows.append(chosen)
        submit.append(trace.submit[chosen] + (place - drawn) * block_s)
    picked = np.concatenate(rows)
    if not len(picked):
        return trace
    again = trace.rows(picked)
    ids = [str(i) for i in range(len(picked))]
    return replace(again, ids=ids, submit=np.concatenate(submit))


def scaled(trace: Trace, load: float) -> Trace:
    """Return the same jobs in less time: `load` times as much work per day.

    Raise ValueError if `load` is not above 0.
    """
    if not load > 0:
        raise ValueError(f"a load of {load:g} is none: it must be above 0")
    origin = trace.submit[0]
    return replace(trace, submit=origin + (trace.submit - origin) / load)
