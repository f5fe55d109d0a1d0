"""How long the jobs of a future run, drawn by chance from what the scheduler has learned.

In this order: an estimate of the job's owner, with the usual error of such estimates; jobs like it that
have succeeded (`controlplane.run_lengths`, which the scheduler plans by, too), given that this one has
run so long already; its limit, with the same error; else an hour.
"""

from collections.abc import Iterable
from math import exp
from random import Random

from controlplane.image import Image
from controlplane.job import Job
from controlplane.run_lengths import LEVELS, RunLengths, Sample, longer_than

# How far off estimates are, as the standard deviation of a logarithm: a factor of about 1.6.
ESTIMATE_SIGMA = 0.5
USUAL_S = 3_600.0


class Lengths:
    def __init__(self, learned: RunLengths) -> None:
        self.learned = learned
        self.start_s = learned.start_s

    def draw(self, job: Job, dice: Random, *, ran_s: float) -> float:
        """A length of the job's run, longer than it has run already."""
        samples = self.learned.samples(job.namespace, job.spec)
        estimate, limit = job.spec.scheduling.estimate_s, job.spec.active_deadline_s
        said = limit if estimate is None else estimate
        if samples and estimate is None:
            length = _longer(samples, dice, ran_s)
            return length if limit is None else max(min(length, limit), ran_s)
        if said is not None:
            # A limit is not passed; an estimate may be.
            length = said * exp(dice.gauss(0.0, ESTIMATE_SIGMA))
            length = length if limit is None else min(length, limit)
            return max(length, ran_s * 1.1)
        return max(USUAL_S * dice.expovariate(1.0), ran_s * 1.1)

    def told(self, job: Job) -> str:
        """In words, what a job's length is drawn from."""
        if job.spec.scheduling.estimate_s is not None:
            return "the job's own estimate"
        learned = self.learned.learned(job.namespace, job.spec)
        if learned is not None:
            return f"{learned.jobs} jobs that succeeded ({LEVELS[learned.level]})"
        if job.spec.active_deadline_s is not None:
            return "the job's own limit"
        return "a guess of an hour, as nothing is known yet"


def lengths_of(image: Image) -> Lengths:
    """What the jobs that have succeeded tell, removed ones too."""
    groups = {key: [Sample(*sample) for sample in group] for key, group in image.lengths}
    learned = RunLengths(groups)
    for job in image.jobs:
        learned.add_job(job)
    return Lengths(learned)


def _longer(samples: Iterable[Sample], dice: Random, ran_s: float) -> float:
    """One of the lengths above what has passed; beyond all of them, a tenth more than that."""
    left = longer_than(sorted(sample.ran_s for sample in samples), ran_s)
    return left[dice.randrange(len(left))] if left else ran_s * 1.1
