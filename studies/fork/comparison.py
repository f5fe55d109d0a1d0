"""The comparison of two branches: the outcome of each job, the cost, and the first difference."""

from collections.abc import Sequence
from itertools import takewhile, zip_longest

from msgspec import Struct

from controlplane.audit.recorded_commands import is_input
from controlplane.audit.redecide import EventShown
from controlplane.model import events as e
from studies.analysis.job_history import JobFacts, JobHistories

# Times closer than this count as equal. A recorded time is rounded to a quarter of a microsecond,
# and times computed from rounded times drift by as much with every step.
SAME_S = 1e-3


class Parting(Struct, frozen=True):
    """The first instant at which two histories differ, and an event of each at that instant.

    The events are the first that the other history does not have then; null where there is none.
    """

    at: float
    one: EventShown | None
    other: EventShown | None


class JobApart(Struct, frozen=True, kw_only=True):
    """A job with different outcomes. Times are UTC seconds, or null for what did not happen."""

    job: str
    started_at: tuple[float | None, float | None]
    finished_at: tuple[float | None, float | None]
    outcome: tuple[str, str]
    waited_s: tuple[float | None, float | None]
    restarts: tuple[int, int]
    preemptions: tuple[int, int]
    gpu_hours: tuple[float, float]


class Totals(Struct, frozen=True, kw_only=True):
    """The totals of one branch."""

    jobs: int
    started: int
    succeeded: int
    failed: int
    restarts: int
    preemptions: int
    wait_s_mean: float | None
    gpu_hours: float
    gpu_hours_lost: float
    cost: float


class Comparison(Struct, frozen=True, kw_only=True):
    """Two branches: their totals, the first difference, and the jobs that differ."""

    one: Totals
    other: Totals
    parting: Parting | None
    jobs: list[JobApart]


def compare(
    one: tuple[Sequence[e.Recorded], JobHistories],
    other: tuple[Sequence[e.Recorded], JobHistories],
    *,
    gpu_hour_price: float,
) -> Comparison:
    """Compare two branches, each given by its events and its job histories."""
    return Comparison(
        one=totals(one[1], gpu_hour_price),
        other=totals(other[1], gpu_hour_price),
        parting=part(one[0], other[0]),
        jobs=_apart(one[1], other[1]),
    )


def part(one: Sequence[e.Recorded], other: Sequence[e.Recorded]) -> Parting | None:
    """Return where two histories first differ, or None if they are equal to their ends.

    `one` and `other` of the result are the first events that only one history has at that instant;
    either may be None.
    """
    for index, (mine, theirs) in enumerate(zip_longest(one, other)):
        if mine is None or theirs is None or not is_same(mine, theirs):
            at = min(x.at for x in (mine, theirs) if x is not None)
            ours, others = _then(one[index:], at), _then(other[index:], at)
            mine, theirs = _only(ours, others), _only(others, ours)
            if mine is None and theirs is None:
                # The same events in another order.
                mine, theirs = ours[0], others[0]
            return Parting(at, _shown(mine), _shown(theirs))
    return None


def _then(events: Sequence[e.Recorded], at: float) -> list[e.Recorded]:
    """Return the leading events that are not later than `at` (within `SAME_S`)."""
    return list(takewhile(lambda x: x.at <= at + SAME_S, events))


def _only(mine: Sequence[e.Recorded], theirs: Sequence[e.Recorded]) -> e.Recorded | None:
    """Return the first event of `mine` that `theirs` does not have, or None."""
    return next((x for x in mine if not any(is_same(x, other) for other in theirs)), None)


def part_in_decisions(one: Sequence[e.Recorded], other: Sequence[e.Recorded]) -> Parting | None:
    """Return where the decisions first differ, or None.

    Inputs are left out, because the change of a fork itself makes them differ.
    """
    mine = [x for x in one if not is_input(x)]
    theirs = [x for x in other if not is_input(x)]
    return part(mine, theirs)


def is_same(mine: e.Recorded, theirs: e.Recorded) -> bool:
    """Whether two events are equal, with times compared to the millisecond."""
    if abs(mine.at - theirs.at) > SAME_S or type(mine.event) is not type(theirs.event):
        return False
    return mine.event == theirs.event or _alike(mine.event, theirs.event)


def _alike(mine: object, theirs: object) -> bool:
    """Whether two values are equal except for the rounding of times in them."""
    if isinstance(mine, float) and isinstance(theirs, float):
        return abs(mine - theirs) <= SAME_S
    if isinstance(mine, Struct) and type(mine) is type(theirs):
        names = mine.__struct_fields__
        return all(_alike(getattr(mine, name), getattr(theirs, name)) for name in names)
    if isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        return all(_alike(a, b) for a, b in zip(mine, theirs, strict=True))
    return mine == theirs


def _shown(recorded: e.Recorded | None) -> EventShown | None:
    return None if recorded is None else EventShown(type(recorded.event).__name__, recorded.event)


def totals(histories: JobHistories, gpu_hour_price: float) -> Totals:
    """Return the totals of a branch; `gpu_hour_price` is the cost of one GPU-hour."""
    facts = list(histories.jobs.values())
    waits = [x.wait_s for x in facts if x.wait_s is not None]
    hours = histories.gpu_s / 3600
    return Totals(
        jobs=len(facts),
        started=len(waits),
        succeeded=sum(x.outcome == "Succeeded" for x in facts),
        failed=sum(x.outcome == "Failed" for x in facts),
        restarts=sum(len(x.restarts) for x in facts),
        preemptions=sum(x.preemptions for x in facts),
        wait_s_mean=sum(waits) / len(waits) if waits else None,
        gpu_hours=hours,
        gpu_hours_lost=histories.lost_gpu_s / 3600,
        cost=hours * gpu_hour_price,
    )


def _apart(one: JobHistories, other: JobHistories) -> list[JobApart]:
    """Return the jobs that differ, those whose end moved most first."""
    ids = [*one.jobs, *(job for job in other.jobs if job not in one.jobs)]
    apart = [
        _job_apart(one.jobs.get(job), other.jobs.get(job))
        for job in ids
        if not _same_story(one.jobs.get(job), other.jobs.get(job))
    ]
    return sorted(apart, key=lambda x: -_moved_s(x))


def _same_story(one: JobFacts | None, other: JobFacts | None) -> bool:
    if one is None or other is None:
        return False
    times = [(one.started_at, other.started_at), (one.finished_at, other.finished_at)]
    same_times = all(_same_time(a, b) for a, b in times)
    return same_times and one.outcome == other.outcome and len(one.restarts) == len(other.restarts)


def _same_time(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= SAME_S


def _moved_s(apart: JobApart) -> float:
    one, other = apart.finished_at
    return float("inf") if one is None or other is None else abs(one - other)


def _job_apart(one: JobFacts | None, other: JobFacts | None) -> JobApart:
    known = one or other
    assert known is not None

    def both(name: str, missing: object = None) -> tuple[object, object]:
        return tuple(missing if x is None else getattr(x, name) for x in (one, other))  # type: ignore[return-value]

    return JobApart(
        job=known.name,
        started_at=both("started_at"),  # type: ignore[arg-type]
        finished_at=both("finished_at"),  # type: ignore[arg-type]
        outcome=both("outcome", ""),  # type: ignore[arg-type]
        waited_s=both("wait_s"),  # type: ignore[arg-type]
        restarts=tuple(0 if x is None else len(x.restarts) for x in (one, other)),  # type: ignore[arg-type]
        preemptions=both("preemptions", 0),  # type: ignore[arg-type]
        gpu_hours=tuple(0.0 if x is None else x.gpu_s / 3600 for x in (one, other)),  # type: ignore[arg-type]
    )
