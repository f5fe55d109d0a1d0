"""How long jobs run, as far as anyone can know beforehand.

In this order: jobs of the same owner and kind that have ended tell how long such jobs run, given
that this one has run so long already; without enough of them, what its owner said (an estimate or
a limit), with the usual error of such words; else all jobs that have ended; else an hour.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import exp
from random import Random
from statistics import median

from controlplane.job import Job

# Fewer than this tell nothing.
ENOUGH = 5
# How far off estimates are, as the standard deviation of a logarithm: a factor of about 1.6.
ESTIMATE_SIGMA = 0.5
USUAL_S = 3_600.0
Kind = tuple[str, str]


class Lengths:
    def __init__(self, by_kind: dict[Kind, list[float]], start_s: float) -> None:
        self._by_kind = by_kind
        self._all = sorted(s for lengths in by_kind.values() for s in lengths)
        self.start_s = start_s

    def draw(self, job: Job, dice: Random, *, ran_s: float) -> float:
        """A length of the job's run, longer than it has run already."""
        alike = self._by_kind.get(_kind(job), [])
        if len(alike) >= ENOUGH:
            return _longer(alike, dice, ran_s)
        said = _said(job)
        if said is not None:
            # A limit is not passed; an estimate may be.
            length = said * exp(dice.gauss(0.0, ESTIMATE_SIGMA))
            limit = job.spec.active_deadline_s
            length = length if limit is None else min(length, limit)
            return max(length, ran_s * 1.1)
        if len(self._all) >= ENOUGH:
            return _longer(self._all, dice, ran_s)
        return max(USUAL_S * dice.expovariate(1.0), ran_s * 1.1)

    def told(self, job: Job) -> str:
        """In words, what a job's length is drawn from."""
        alike = self._by_kind.get(_kind(job), [])
        if len(alike) >= ENOUGH:
            return f"{len(alike)} ended jobs of kind {job.spec.kind} in {job.namespace}"
        if _said(job) is not None:
            return "the job's own estimate or limit"
        if len(self._all) >= ENOUGH:
            return f"all {len(self._all)} jobs that have ended"
        return "a guess of an hour, as nothing is known yet"


def lengths_of(jobs: Iterable[Job], now: float) -> Lengths:
    """What the jobs that have ended tell."""
    by_kind: dict[Kind, list[float]] = {}
    delays: list[float] = []
    for job in jobs:
        attempt = job.attempt
        if attempt is None or attempt.running_at is None:
            continue
        delays.append(attempt.running_at - attempt.placed_at)
        if job.finished_at is not None and job.finished_at >= attempt.running_at:
            by_kind.setdefault(_kind(job), []).append(job.finished_at - attempt.running_at)
    for lengths in by_kind.values():
        lengths.sort()
    return Lengths(by_kind, median(delays) if delays else 0.0)


def _kind(job: Job) -> Kind:
    return job.namespace, job.spec.kind


def _said(job: Job) -> float | None:
    estimate = job.spec.scheduling.estimate_s
    return job.spec.active_deadline_s if estimate is None else estimate


def _longer(ordered: Sequence[float], dice: Random, ran_s: float) -> float:
    """One of the lengths above what has passed; beyond all of them, a tenth more than that."""
    first = bisect_right(ordered, ran_s)
    if first == len(ordered):
        return ran_s * 1.1
    return ordered[dice.randrange(first, len(ordered))]
