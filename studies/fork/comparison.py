"""Two futures side by side: what became of each job, what it cost, and where they part."""

from collections.abc import Sequence
from itertools import takewhile, zip_longest

from msgspec import Struct

from controlplane import events as e
from controlplane.difference import Said
from controlplane.recalling import is_input
from studies.ledger import JobFacts, Ledger

# Times that are closer than this are the same. A recorded time is rounded to a quarter of a
# microsecond, and what follows from rounded times drifts by as much with every step.
SAME_S = 1e-3


class Parting(Struct, frozen=True):
    """The first instant that is not the same in both, and of each the first event that only it has
    then; null where it has none.
    """

    at: float
    one: Said | None
    other: Said | None


class JobApart(Struct, frozen=True, kw_only=True):
    """A job that went otherwise. Times are UTC seconds, or null for what did not happen."""

    job: str
    started_at: tuple[float | None, float | None]
    finished_at: tuple[float | None, float | None]
    outcome: tuple[str, str]
    waited_s: tuple[float | None, float | None]
    restarts: tuple[int, int]
    preemptions: tuple[int, int]
    gpu_hours: tuple[float, float]


class Totals(Struct, frozen=True, kw_only=True):
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
    one: Totals
    other: Totals
    parting: Parting | None
    jobs: list[JobApart]

    @property
    def is_same(self) -> bool:
        return self.parting is None


def compare(
    one: tuple[Sequence[e.Recorded], Ledger],
    other: tuple[Sequence[e.Recorded], Ledger],
    *,
    gpu_hour_price: float,
) -> Comparison:
    return Comparison(
        one=totals(one[1], gpu_hour_price),
        other=totals(other[1], gpu_hour_price),
        parting=part(one[0], other[0]),
        jobs=_apart(one[1], other[1]),
    )


def part(one: Sequence[e.Recorded], other: Sequence[e.Recorded]) -> Parting | None:
    """Where two histories first differ, or None where they are the same to their ends.

    Said of each is the first that only it has then; that may be nothing.
    """
    for index, (mine, theirs) in enumerate(zip_longest(one, other)):
        if mine is None or theirs is None or not is_same(mine, theirs):
            at = min(x.at for x in (mine, theirs) if x is not None)
            found, others = _then(one[index:], at), _then(other[index:], at)
            mine, theirs = _only(found, others), _only(others, found)
            if mine is None and theirs is None:
                # The same in another order.
                mine, theirs = found[0], others[0]
            return Parting(at, _said(mine), _said(theirs))
    return None


def _then(events: Sequence[e.Recorded], at: float) -> list[e.Recorded]:
    """What comes at this instant, of events in order."""
    return list(takewhile(lambda x: x.at <= at + SAME_S, events))


def _only(mine: Sequence[e.Recorded], theirs: Sequence[e.Recorded]) -> e.Recorded | None:
    """The first that the others do not have."""
    return next((x for x in mine if not any(is_same(x, other) for other in theirs)), None)


def part_in_decisions(one: Sequence[e.Recorded], other: Sequence[e.Recorded]) -> Parting | None:
    """The same for decisions alone: what was asked differs where something was changed."""
    mine = [x for x in one if not is_input(x)]
    theirs = [x for x in other if not is_input(x)]
    return part(mine, theirs)


def is_same(mine: e.Recorded, theirs: e.Recorded) -> bool:
    """Whether both say the same, to the millisecond."""
    if abs(mine.at - theirs.at) > SAME_S or type(mine.event) is not type(theirs.event):
        return False
    return mine.event == theirs.event or _alike(mine.event, theirs.event)


def _alike(mine: object, theirs: object) -> bool:
    """Equal but for the rounding of times within."""
    if isinstance(mine, float) and isinstance(theirs, float):
        return abs(mine - theirs) <= SAME_S
    if isinstance(mine, Struct) and type(mine) is type(theirs):
        names = mine.__struct_fields__
        return all(_alike(getattr(mine, name), getattr(theirs, name)) for name in names)
    if isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        return all(_alike(a, b) for a, b in zip(mine, theirs, strict=True))
    return mine == theirs


def _said(recorded: e.Recorded | None) -> Said | None:
    return None if recorded is None else Said(type(recorded.event).__name__, recorded.event)


def totals(ledger: Ledger, gpu_hour_price: float) -> Totals:
    facts = list(ledger.jobs.values())
    waits = [x.wait_s for x in facts if x.wait_s is not None]
    hours = ledger.gpu_s / 3600
    return Totals(
        jobs=len(facts),
        started=len(waits),
        succeeded=sum(x.outcome == "Succeeded" for x in facts),
        failed=sum(x.outcome == "Failed" for x in facts),
        restarts=sum(len(x.restarts) for x in facts),
        preemptions=sum(x.preemptions for x in facts),
        wait_s_mean=sum(waits) / len(waits) if waits else None,
        gpu_hours=hours,
        gpu_hours_lost=ledger.lost_gpu_s / 3600,
        cost=hours * gpu_hour_price,
    )


def _apart(one: Ledger, other: Ledger) -> list[JobApart]:
    """Jobs with another story, those whose end moved most first."""
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
