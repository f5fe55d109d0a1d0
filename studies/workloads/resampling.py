"""A recorded workload once more, a little different: its days drawn again, or its load scaled."""

import random
from dataclasses import replace

import numpy as np

from studies.workloads.trace import Trace

DAY_S = 86_400.0


def resampled(trace: Trace, dice: str) -> Trace:
    """As many days as the trace has, each drawn from it with replacement.

    Within a day everything stays as it was, so bursts, the hours of the day and what comes together
    are kept; what one day does to the next is lost. A trace shorter than two days is cut into
    twelfths of its length instead.
    """
    block_s = DAY_S if trace.span_s >= 2 * DAY_S else max(1.0, trace.span_s / 12)
    origin = float(trace.submit[0])
    block = ((trace.submit - origin) // block_s).astype(np.int64)
    count = int(block[-1]) + 1
    firsts = np.searchsorted(block, np.arange(count + 1))
    draw = random.Random(dice)
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
    """The same jobs in less time: `load` times as much work a day."""
    if not load > 0:
        raise ValueError(f"a load of {load:g} is none: it must be above 0")
    origin = trace.submit[0]
    return replace(trace, submit=origin + (trace.submit - origin) / load)
