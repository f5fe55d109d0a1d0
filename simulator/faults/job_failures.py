"""Attempts that end by themselves: out of memory, mistakes in the code, errors of frameworks.

Whether a job fails is drawn once for the job, so a mistake comes again at every attempt; errors
that are nobody's mistake strike an attempt and may spare the next.
"""

import random
from typing import NamedTuple

from simulator.faults.chance import lognormal
from simulator.faults.presets import Preset, Reason


class JobFailure(NamedTuple):
    reason: Reason
    after_s: float

    @property
    def out_of_memory(self) -> bool:
        return "memory" in self.reason.name.lower()


def job_failure(preset: Preset, job: str, attempt: int, seed: int) -> JobFailure | None:
    """How this attempt would end by itself, if it runs that long; None if it does not."""
    if not preset.reasons:
        return None
    own = random.Random(f"{seed}/{job}/failure")
    if own.random() >= preset.failing_jobs:
        return None
    reason = own.choices(preset.reasons, [r.count for r in preset.reasons])[0]
    if not reason.repeats and attempt > 1:
        return None
    dice = random.Random(f"{seed}/{job}/{attempt}/failure")
    return JobFailure(reason, lognormal(dice, reason.median_s, reason.mean_s))
