"""Which jobs a listing shows, page by page.

Jobs are ordered by the position of their submission in the log. It stays the same for a job's whole
life and no two jobs share one, so it is what a cursor holds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, json

from api.pages import Cursor, Limit, read_cursor, write_cursor
from controlplane.job import Job, Phase
from controlplane.queries import job_view
from controlplane.views import JobView
from controlplane.world import World

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
    found = list(islice(ordered(_matching(world, query), after), query.limit + 1))
    shown = found[: query.limit]
    more = len(found) > len(shown)
    return JobPage(
        items=[job_view(job) for job in shown],
        next=write_cursor(_position(shown[-1])) if more else None,
    )


def _matching(world: World, query: JobsQuery) -> list[Job]:
    """Jobs in the order of their submission; each filter is one quick pass."""
    jobs = list(world.jobs.values())
    if query.phase:
        ids = (job_id for phase in set(query.phase) for job_id in world.by_phase[phase])
        jobs = sorted((world.jobs[job_id] for job_id in ids), key=_position)
    if query.namespace is not UNSET:
        jobs = [job for job in jobs if job.namespace == query.namespace]
    if query.queue is not UNSET:
        jobs = [job for job in jobs if job.spec.queue == query.queue]
    if query.kind is not UNSET:
        jobs = [job for job in jobs if job.spec.kind == query.kind]
    if query.name is not UNSET:
        jobs = [job for job in jobs if job.name.startswith(query.name)]
    return jobs


def _oldest_first(jobs: list[Job], after: int | None) -> Iterator[Job]:
    first = 0 if after is None else bisect_right(jobs, after, key=_position)
    return islice(jobs, first, None)


def _newest_first(jobs: list[Job], after: int | None) -> Iterator[Job]:
    end = len(jobs) if after is None else bisect_left(jobs, after, key=_position)
    return islice(reversed(jobs), len(jobs) - end, None)
