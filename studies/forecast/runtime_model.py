"""Run times of jobs for forecasts, drawn at random from what the scheduler has learned.

The source of a run time, in this order: an estimate of the job's owner, with the usual error of
such estimates; similar jobs that succeeded (`controlplane.state.run_lengths`, which the scheduler
plans by, too), given how long this one has run already; its limit, with the same error; else one
hour.
"""

from collections.abc import Iterable
from math import exp
from random import Random

from controlplane.lifecycle.job import Job
from controlplane.state.image import StateImage
from controlplane.state.run_lengths import LEVELS, RunLengths, Sample, longer_than

# The error of estimates as the standard deviation of the logarithm: a factor of about 1.6.
ESTIMATE_SIGMA = 0.5
USUAL_S = 3_600.0


class Lengths:
    """The run times of jobs, drawn from learned samples."""

    def __init__(self, learned: RunLengths) -> None:
        self.learned = learned
        self.start_s = learned.start_s

    def draw(self, job: Job, rng: Random, *, ran_s: float) -> float:
        """Draw the length of the job's run in seconds; it is at least `ran_s`."""
        samples = self.learned.samples(job.namespace, job.spec)
        estimate, limit = job.spec.scheduling.estimate_s, job.spec.active_deadline_s
        requested_s = limit if estimate is None else estimate
        if samples and estimate is None:
            length = _longer(samples, rng, ran_s)
            return length if limit is None else max(min(length, limit), ran_s)
        if requested_s is not None:
            # A job cannot run past its limit, but may run past its estimate.
            length = requested_s * exp(rng.gauss(0.0, ESTIMATE_SIGMA))
            length = length if limit is None else min(length, limit)
            return max(length, ran_s * 1.1)
        return max(USUAL_S * rng.expovariate(1.0), ran_s * 1.1)

    def basis(self, job: Job) -> str:
        """Return a text that names the source of the job's length."""
        if job.spec.scheduling.estimate_s is not None:
            return "the job's own estimate"
        learned = self.learned.learned(job.namespace, job.spec)
        if learned is not None:
            return f"{learned.jobs} jobs that succeeded ({LEVELS[learned.level]})"
        if job.spec.active_deadline_s is not None:
            return "the job's own limit"
        return "a default of one hour, since no similar job has finished yet"


def lengths_of(image: StateImage) -> Lengths:
    """Return the run times of the jobs that succeeded, including removed ones."""
    groups = {key: [Sample(*sample) for sample in group] for key, group in image.lengths}
    learned = RunLengths(groups)
    for job in image.jobs:
        learned.add_job(job)
    return Lengths(learned)


def _longer(samples: Iterable[Sample], rng: Random, ran_s: float) -> float:
    """Draw one of the lengths above `ran_s`; if there is none, `ran_s` and a tenth."""
    left = longer_than(sorted(sample.ran_s for sample in samples), ran_s)
    return left[rng.randrange(len(left))] if left else ran_s * 1.1
