"""The list of jobs over HTTP: filters and pages.

Rows are ordered by the position of their submission in the log. The position never changes and is
unique, so a cursor holds it.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, json
from msgspec.structs import replace

from api.requests.instants import Instant, PastQuery, seconds
from api.requests.pages import Cursor, Limit, read_cursor, write_cursor
from controlplane.decisions.isolation import bounded_text
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.messages import words
from controlplane.model.phases import Phase
from controlplane.model.reasons import FailureReason
from controlplane.model.spec import JobSpec
from controlplane.queries.arrays import array_phase, array_view, members_of
from controlplane.queries.queries import job_view
from controlplane.queries.views import JobView
from controlplane.state.queue_order import is_waiting
from controlplane.state.world import World

_log = logging.getLogger("muster.api")

_decode_position = json.Decoder(int).decode
_position = attrgetter("submitted_position")

# One row of the list.
Row = Job | Owner


class Order(StrEnum):
    OLDEST = "oldest"
    NEWEST = "newest"


class JobsQuery(PastQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    namespace: Annotated[str, Meta(description="Only jobs of this namespace.")] | UnsetType = UNSET
    phase: Annotated[tuple[Phase, ...], Meta(description="Only jobs in one of these.")] = ()
    queue: Annotated[str, Meta(description="Only jobs of this queue.")] | UnsetType = UNSET
    kind: Annotated[str, Meta(description="Only jobs of this kind.")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="Only jobs whose name begins with this.")] | UnsetType = (
        UNSET
    )
    search: (
        Annotated[
            str,
            Meta(
                max_length=253,
                description="Only jobs with this in their name, namespace, queue, kind or user.",
            ),
        ]
        | UnsetType
    ) = UNSET
    label: Annotated[
        tuple[str, ...], Meta(description="Only jobs with these labels: KEY=VALUE, or KEY.")
    ] = ()
    user: Annotated[str, Meta(description="Only jobs of this user (label `user`).")] | UnsetType = (
        UNSET
    )
    since: (
        Annotated[Instant, Meta(description="Only jobs submitted then or later.")] | UnsetType
    ) = UNSET
    until: Annotated[Instant, Meta(description="Only jobs submitted before.")] | UnsetType = UNSET
    array: Annotated[str, Meta(description="Only the indices of this array.")] | UnsetType = UNSET
    members: Annotated[
        bool, Meta(description="Also indices of arrays, each for itself; else an array is one row.")
    ] = False
    order: Order = Order.OLDEST
    limit: Limit = 100
    after: Cursor | UnsetType = UNSET


class JobPage(Struct, frozen=True, kw_only=True):
    """One page of jobs, and the cursor of the next page; null on the last page."""

    items: list[JobView]
    next: str | None


def job_page(world: World, query: JobsQuery) -> JobPage:
    after = None if query.after is UNSET else read_cursor(query.after, _decode_position)
    ordered = _newest_first if query.order is Order.NEWEST else _oldest_first
    jobs = ordered(_candidates(world, query), after)
    for asked in _conditions(world, query):
        jobs = filter(asked, jobs)
    page = list(islice(jobs, query.limit + 1))
    shown = page[: query.limit]
    more = len(page) > len(shown)
    return JobPage(
        items=[_view(world, job) for job in shown],
        next=write_cursor(_position(shown[-1])) if more else None,
    )


def _view(world: World, row: Row) -> JobView:
    """Return the line of a job or an array; for a job that cannot be shown, a line with the error.

    One such job must not hide all others.
    """
    try:
        return array_view(world, row) if isinstance(row, Owner) else _job_view(world, row)
    except Exception as error:
        _log.exception("job %s cannot be shown", row.id)
        if isinstance(row, Owner):
            raise
        job = row
        message = f"it cannot be shown: {type(error).__name__}: {bounded_text(error)}"
        return JobView(
            namespace=job.namespace,
            name=job.name,
            id=job.id,
            kind=job.spec.kind,
            queue=job.spec.queue,
            priority=job.spec.priority,
            phase=job.phase,
            reason=FailureReason.PLATFORM_ERROR,
            message=message,
            gpus=0,
            ranks=0,
            ranks_running=0,
            attempt=0 if job.attempt is None else job.attempt.number,
            restarts=len(job.restarts),
            failures=job.failures,
            failures_max=None,
            submitted_at=job.submitted_at,
            queued_at=job.queued_at,
            placed_at=None,
            running_at=job.running_at,
            finished_at=job.finished_at,
            retry_at=job.retry_at,
            gpus_held=0,
            deleting=job.deleting,
        )


def _job_view(world: World, job: Job) -> JobView:
    """Return the line of a job; one in its queue has its place and its last reason to wait."""
    view = job_view(job)
    if not is_waiting(job):
        return view
    place = bisect_left(world.waiting.keys(job.spec.queue), world.waiting.key_of(job)) + 1
    reason = job.wait_reason or ""
    return replace(view, place_in_queue=place, wait_reason=reason, wait_message=words(reason))


def _candidates(world: World, query: JobsQuery) -> list[Row]:
    """Return a superset of the matching jobs and arrays, in the order of their submission."""
    if query.array is not UNSET:
        return _members(world, query.array, query.namespace)
    jobs: list[Row] = [*_jobs(world, query.phase)]
    if not world.owners:
        return jobs
    if not query.members:
        jobs = [job for job in jobs if isinstance(job, Job) and job.owner is None]
    return list(merge(jobs, world.owners.values(), key=_position))


def _members(world: World, array: str, namespace: str | UnsetType) -> list[Row]:
    """Return the jobs of all arrays named `array`, in the order of their submission."""
    named = [
        owner
        for owner in world.owners.values()
        if owner.name == array and namespace in (UNSET, owner.namespace)
    ]
    members = [job for owner in named for job in members_of(world, owner)]
    return sorted(members, key=_position)


def _jobs(world: World, phases: Collection[Phase]) -> list[Job]:
    """Return a superset of the jobs in `phases`, in the order of their submission.

    Sorting the few jobs of rare phases costs less than a scan over all jobs; where most jobs are in
    the wanted phases, a scan fills a page soon.
    """
    jobs, by_phase = world.jobs, [world.phases.by_phase[phase] for phase in set(phases)]
    if phases and sum(map(len, by_phase)) < len(jobs) / 10:
        return sorted((jobs[job_id] for ids in by_phase for job_id in ids), key=_position)
    return list(jobs.values())


def _conditions(world: World, query: JobsQuery) -> Iterator[Callable[[Row], bool]]:
    """Yield the predicates that every listed job and array must fulfil."""
    if query.phase:
        yield lambda row: _phase(world, row) in query.phase
    if query.namespace is not UNSET:
        yield lambda row: row.namespace == query.namespace
    if query.queue is not UNSET:
        yield lambda row: _spec(row).queue == query.queue
    if query.kind is not UNSET:
        yield lambda row: _spec(row).kind == query.kind
    if (name := query.name) is not UNSET:
        yield lambda job: job.name.startswith(name)
    if query.search is not UNSET:
        text = query.search.lower()
        yield lambda row: text in _searched(row)
    for label in query.label:
        yield _labelled(label)
    if query.user is not UNSET:
        yield lambda row: _spec(row).labels.get("user", "") == query.user
    if (since := seconds(query.since)) is not None:
        yield lambda row: row.submitted_at >= since
    if (until := seconds(query.until)) is not None:
        yield lambda row: row.submitted_at < until


def _searched(row: Row) -> str:
    """Return everything of a row that a search looks at."""
    spec = _spec(row)
    parts = (f"{row.namespace}/{row.name}", spec.queue, spec.kind, spec.labels.get("user", ""))
    return "\n".join(parts).lower()


def _labelled(label: str) -> Callable[[Row], bool]:
    """Return whether a row has the label KEY=VALUE, or KEY with any value."""
    key, equals, value = label.partition("=")
    if equals:
        return lambda row: _spec(row).labels.get(key) == value
    return lambda row: key in _spec(row).labels


def _phase(world: World, row: Row) -> Phase:
    if isinstance(row, Job):
        return row.phase
    return array_phase(row, world.workflows.members_of(row.id))


def _spec(row: Row) -> JobSpec:
    return row.spec if isinstance(row, Job) else row.spec.job


def _oldest_first(jobs: list[Row], after: int | None) -> Iterator[Row]:
    first = 0 if after is None else bisect_right(jobs, after, key=_position)
    return islice(jobs, first, None)


def _newest_first(jobs: list[Row], after: int | None) -> Iterator[Row]:
    end = len(jobs) if after is None else bisect_left(jobs, after, key=_position)
    return islice(reversed(jobs), len(jobs) - end, None)
