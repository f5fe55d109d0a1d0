"""Synthetic workloads with the statistics of a recorded one.

The generator keeps from the recorded trace: the number of jobs in each hour of the week; how uneven
hours of the same kind are (a gamma factor for each hour, so that counts are negative binomial);
that jobs come in batches (jobs within a few seconds of each other); and the jobs themselves, drawn
from the recorded ones so that size, length, user and queue stay together and tails stay heavy.
Lengths are jittered by a few percent, so that no two runs have exactly the same jobs.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studies.workloads.trace import OPTIONAL, Trace, make_trace

HOUR_S, DAY_S, WEEK_HOURS = 3_600.0, 86_400.0, 168
# Jobs that follow each other within this time form one batch: a sweep or a script.
BATCH_GAP_S = 5.0
JITTER = 0.05


@dataclass(frozen=True, slots=True)
class Profile:
    """The parameters that are fitted to a trace."""

    trace: Trace
    # Expected batches in each hour of the week.
    hourly: tuple[float, ...]
    # The shape of the gamma factor of an hour: 1 / its variance. Infinite for Poisson.
    evenness: float
    # Row ranges of the recorded batches.
    batches: tuple[tuple[int, int], ...]


def fit_profile(trace: Trace) -> Profile:
    """Fit the parameters of the generator to a trace."""
    submit = trace.submit - trace.submit[0]
    starts = np.concatenate(([0], np.nonzero(np.diff(submit) > BATCH_GAP_S)[0] + 1, [len(trace)]))
    batches = tuple(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
    hour = (submit[starts[:-1]] // HOUR_S).astype(np.int64)
    counts = np.bincount(hour, minlength=int(hour[-1]) + 1).astype(np.float64)
    hourly = _by_hour_of_week(counts)
    expected = np.array([hourly[i % WEEK_HOURS] for i in range(len(counts))])
    return Profile(trace, tuple(hourly), _evenness(counts, expected), batches)


def _by_hour_of_week(counts: np.ndarray) -> list[float]:
    """Return means by hour of the week; by hour of the day with less than two weeks of data.

    With less than two days, the mean of all hours.
    """
    period = WEEK_HOURS if len(counts) >= 2 * WEEK_HOURS else 24
    if len(counts) < 2 * period:
        return [float(counts.mean())] * WEEK_HOURS
    means = [float(counts[i::period].mean()) for i in range(period)]
    return [means[i % period] for i in range(WEEK_HOURS)]


def _evenness(counts: np.ndarray, expected: np.ndarray) -> float:
    """Estimate the shape of the gamma factor from the variance of counts beyond Poisson."""
    excess = float(((counts - expected) ** 2 - expected).sum())
    weight = float((expected**2).sum())
    return float("inf") if excess <= 0 or weight == 0 else weight / excess


def synthetic(profile: Profile, seed: str, *, days: float, load: float = 1.0) -> Trace:
    """Return `days` days of work like the recorded; `load` scales the number of batches.

    `seed` seeds the generator. Raise ValueError if a number is not above 0, or no job would come.
    """
    if not days > 0 or not load > 0:
        raise ValueError(f"{days:g} days with a load of {load:g}: both must be above 0")
    draw = random.Random(seed)
    rows: list[int] = []
    submit: list[float] = []
    source = profile.trace.submit
    for hour in range(int(np.ceil(days * 24))):
        for at in _arrivals(profile, draw, hour, load):
            first, end = profile.batches[draw.randrange(len(profile.batches))]
            rows += range(first, end)
            submit += [at + float(source[i] - source[first]) for i in range(first, end)]
    limit = days * DAY_S
    kept = [i for i, at in enumerate(submit) if at < limit]
    if not kept:
        raise ValueError(f"in {days:g} days with a load of {load:g} not a single job would come")
    return _made(profile.trace, draw, [rows[i] for i in kept], [submit[i] for i in kept])


def _arrivals(profile: Profile, draw: random.Random, hour: int, load: float) -> list[float]:
    mean = profile.hourly[hour % WEEK_HOURS] * load
    if np.isfinite(profile.evenness):
        mean *= draw.gammavariate(profile.evenness, 1.0 / profile.evenness)
    return sorted(round((hour + draw.random()) * HOUR_S) for _ in range(_poisson(draw, mean)))


def _poisson(draw: random.Random, mean: float) -> int:
    """Draw a Poisson number by counting exponential gaps: exact, and fast enough for hourly means."""
    if mean <= 0:
        return 0
    count, at = 0, draw.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + draw.expovariate(1.0)
    return count


def _made(
    source: Trace, draw: random.Random, rows: Sequence[int], submit: Sequence[float]
) -> Trace:
    durations = source.duration[list(rows)].tolist()
    lengths = [round(s * (1.0 + draw.uniform(-JITTER, JITTER))) for s in durations]
    picked = np.array(rows, dtype=np.int64)
    labels = {name: [column[i] for i in rows] for name, column in source.labels.items()}
    optional = {
        name: None if getattr(source, name) is None else getattr(source, name)[picked]
        for name in OPTIONAL
    }
    return make_trace(
        f"like {source.name}",
        [str(i) for i in range(len(rows))],
        submit,
        source.gpus[picked],
        lengths,
        labels=labels,
        notes=(f"synthetic, after {len(source)} recorded jobs",),
        **optional,
    )
