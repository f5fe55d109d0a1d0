"""Which jobs a listing shows, page by page.

Jobs are ordered by the position of their submission in the log. It stays the same for a job's whole
life and no two jobs share one, so it is what a cursor holds.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, json

from api.pages import Cursor, Limit, read_cursor, write_cursor
from controlplane.faults import bounded_text
from controlplane.job import Job, Phase
from controlplane.job_life import PLATFORM_ERROR
from controlplane.queries import job_view
from controlplane.views import JobView
from controlplane.world import World

_log = logging.getLogger("muster.api")

_decode_position = json.Decoder(int).decode
_position = attrgetter("submitted_as")


class Order(StrEnum):
    OLDEST = "oldest"
    NEWEST = "newest"


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    namespace: Annotated[str, Meta(description="Only jobs of this namespace.")] | UnsetType = UNSET
    phase: Annotated[tuple[Phase, ...], Meta(description="Only jobs in one of these.")] = ()
    queue: Annotated[str, Meta(description="Only jobs of this queue.")] | UnsetType = UNSET
    kind: Annotated[str, Meta(description="Only jobs of this kind.")] | UnsetType = UNSET
    name: Annotated[str, Meta(description="Only jobs whose name begins with this.")] | UnsetType = (
        UNSET
    )
    order: Order = Order.OLDEST
    limit: Limit = 100
    after: Cursor | UnsetType = UNSET


class JobPage(Struct, frozen=True, kw_only=True):
    """Some jobs, and the cursor with which to ask for more; null when there are no more."""

    items: list[JobView]
    next: str | None


def job_page(world: World, query: JobsQuery) -> JobPage:
    after = None if query.after is UNSET else read_cursor(query.after, _decode_position)
    ordered = _newest_first if query.order is Order.NEWEST else _oldest_first
    jobs = ordered(_candidates(world, query.phase), after)
    for asked in _conditions(query):
        jobs = filter(asked, jobs)
    found = list(islice(jobs, query.limit + 1))
    shown = found[: query.limit]
    more = len(found) > len(shown)
    return JobPage(
        items=[_view(job) for job in shown],
        next=write_cursor(_position(shown[-1])) if more else None,
    )


def _view(job: Job) -> JobView:
    """A job in one line; one that cannot be shown must not hide all others."""
    try:
        return job_view(job)
    except Exception as error:  # noqa: BLE001 - it concerns this job alone
        _log.exception("job %s cannot be shown", job.id)
        told = f"it cannot be shown: {type(error).__name__}: {bounded_text(error)}"
        return JobView(
            namespace=job.namespace,
            name=job.name,
            id=job.id,
            kind=job.spec.kind,
            queue=job.spec.queue,
            priority=job.spec.priority,
            phase=job.phase,
            reason=PLATFORM_ERROR,
            message=told,
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


def _candidates(world: World, phases: Collection[Phase]) -> list[Job]:
    """Jobs in the order of their submission, all that could match among them.

    Few jobs are sorted sooner than many are looked through; where most are in these phases, a page
    is full before long.
    """
    jobs, found = world.jobs, [world.by_phase[phase] for phase in set(phases)]
    if phases and sum(map(len, found)) < len(jobs) / 10:
        return sorted((jobs[job_id] for ids in found for job_id in ids), key=_position)
    return list(jobs.values())


def _conditions(query: JobsQuery) -> Iterator[Callable[[Job], bool]]:
    """What is asked of every job that is shown."""
    if query.phase:
        yield lambda job: job.phase in query.phase
    if query.namespace is not UNSET:
        yield lambda job: job.namespace == query.namespace
    if query.queue is not UNSET:
        yield lambda job: job.spec.queue == query.queue
    if query.kind is not UNSET:
        yield lambda job: job.spec.kind == query.kind
    if (name := query.name) is not UNSET:
        yield lambda job: job.name.startswith(name)


def _oldest_first(jobs: list[Job], after: int | None) -> Iterator[Job]:
    first = 0 if after is None else bisect_right(jobs, after, key=_position)
    return islice(jobs, first, None)


def _newest_first(jobs: list[Job], after: int | None) -> Iterator[Job]:
    end = len(jobs) if after is None else bisect_left(jobs, after, key=_position)
    return islice(reversed(jobs), len(jobs) - end, None)
