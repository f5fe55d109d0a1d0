"""Losses by what they have in common, jobs that flap, and samples in a few numbers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import log
from statistics import fmean, median, pstdev, quantiles

from studies.analysis.values import Flapping, Group, Spread
from studies.ledger import JobFacts, Loss

HOUR_S = 3_600.0
OFFENDERS_MAX = 10
# A job that restarts this often within an hour flaps.
FLAPS_MIN = 3
FLAPS_WITHIN_S = 3_600.0


def grouped(
    lost: Iterable[tuple[JobFacts, Loss]], name_of: Callable[[JobFacts, Loss], str]
) -> list[Group]:
    """The same losses by something they have in common; what has no name is left out."""
    found = defaultdict[str, list[tuple[JobFacts, Loss]]](list)
    for facts, loss in lost:
        name = name_of(facts, loss)
        if name:
            found[name].append((facts, loss))
    groups = [
        Group(
            name,
            len(pairs),
            sum(loss.gpu_s for _, loss in pairs) / HOUR_S,
            len({facts.id for facts, _ in pairs}),
        )
        for name, pairs in found.items()
    ]
    return sorted(groups, key=lambda g: (-g.attempts, -g.gpu_hours_lost, g.name))[:OFFENDERS_MAX]


def image_of(facts: JobFacts) -> str:
    return next((role.image for role in facts.spec.roles if role.image), "")


def exit_code(loss: Loss) -> str:
    return "" if loss.exit_code is None else str(loss.exit_code)


def flapping_jobs(facts: Iterable[JobFacts], first: float, last: float) -> list[Flapping]:
    found = []
    for job in facts:
        restarts = [r for r in job.restarts if first <= r.at <= last]
        most = _most_within(sorted(r.at for r in restarts))
        if most < FLAPS_MIN:
            continue
        nodes = Counter(r.node for r in restarts if r.node)
        causes = Counter(r.cause.value for r in restarts)
        node, on_node = nodes.most_common(1)[0] if nodes else ("", 0)
        found.append(
            Flapping(
                job=job.name,
                restarts=len(restarts),
                within_s=restarts[-1].at - restarts[0].at,
                node=node,
                on_node=on_node,
                cause=causes.most_common(1)[0][0],
            )
        )
    return sorted(found, key=lambda f: (-f.restarts, f.job))[:OFFENDERS_MAX]


def _most_within(times: Sequence[float]) -> int:
    """The most of these times that lie in any one window."""
    most = begin = 0
    for end, at in enumerate(times):
        while at - times[begin] > FLAPS_WITHIN_S:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def spread_of(values: Sequence[float]) -> Spread | None:
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
