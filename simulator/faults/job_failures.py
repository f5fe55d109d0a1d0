"""Failures of attempts that no fault causes: out of memory, bugs, errors of frameworks.

Whether a job fails is drawn once per job, so a user's bug recurs at every attempt; other errors are
drawn per attempt and may not recur.
"""

import random
from typing import NamedTuple

from simulator.faults.chance import lognormal
from simulator.faults.presets import Preset, Reason


class JobFailure(NamedTuple):
    reason: Reason
    after_s: float


def job_failure(preset: Preset, job: str, attempt: int, seed: int) -> JobFailure | None:
    """Return how and when this attempt would fail on its own; None if it would not."""
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
