"""Groups of losses, flapping jobs, and statistics of samples."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import log
from statistics import fmean, median, pstdev, quantiles

from studies.analysis.job_history import JobFacts, Loss
from studies.analysis.values import Flapping, Group, Spread

HOUR_S = 3_600.0
OFFENDERS_MAX = 10
# A job that restarts this often within an hour is flapping.
FLAPS_MIN = 3
FLAPS_WITHIN_S = 3_600.0


def grouped(
    lost: Iterable[tuple[JobFacts, Loss]], name_of: Callable[[JobFacts, Loss], str]
) -> list[Group]:
    """Return the losses grouped by `name_of`, at most the `OFFENDERS_MAX` largest groups.

    Losses for which `name_of` returns "" are left out.
    """
    by_name = defaultdict[str, list[tuple[JobFacts, Loss]]](list)
    for facts, loss in lost:
        name = name_of(facts, loss)
        if name:
            by_name[name].append((facts, loss))
    groups = [
        Group(
            name,
            len(pairs),
            sum(loss.gpu_s for _, loss in pairs) / HOUR_S,
            len({facts.id for facts, _ in pairs}),
        )
        for name, pairs in by_name.items()
    ]
    return sorted(groups, key=lambda g: (-g.attempts, -g.gpu_hours_lost, g.name))[:OFFENDERS_MAX]


def image_of(facts: JobFacts) -> str:
    return next((role.image for role in facts.spec.roles if role.image), "")


def exit_code(loss: Loss) -> str:
    return "" if loss.exit_code is None else str(loss.exit_code)


def flapping_jobs(facts: Iterable[JobFacts], first: float, last: float) -> list[Flapping]:
    """Return the jobs with `FLAPS_MIN` restarts within an hour between `first` and `last`."""
    flapping = []
    for job in facts:
        restarts = [r for r in job.restarts if first <= r.at <= last]
        most = _most_within(sorted(r.at for r in restarts))
        if most < FLAPS_MIN:
            continue
        nodes = Counter(r.node for r in restarts if r.node)
        causes = Counter(r.cause.value for r in restarts)
        node, on_node = nodes.most_common(1)[0] if nodes else ("", 0)
        flapping.append(
            Flapping(
                job=job.name,
                restarts=len(restarts),
                within_s=restarts[-1].at - restarts[0].at,
                node=node,
                on_node=on_node,
                cause=causes.most_common(1)[0][0],
            )
        )
    return sorted(flapping, key=lambda f: (-f.restarts, f.job))[:OFFENDERS_MAX]


def _most_within(times: Sequence[float]) -> int:
    """Return the largest number of these times in any window of `FLAPS_WITHIN_S` seconds."""
    most = begin = 0
    for end, at in enumerate(times):
        while at - times[begin] > FLAPS_WITHIN_S:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return statistics of a sample; None if it is empty."""
    if not values:
        return None
    logs = [log(max(value, 1e-3)) for value in values]
    return Spread(
        count=len(values),
        mean=fmean(values),
        median=median(values),
        p90=quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0],
        max=max(values),
        lognormal_mu=fmean(logs),
        lognormal_sigma=pstdev(logs),
    )
