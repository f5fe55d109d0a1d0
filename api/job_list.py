"""Which jobs a listing shows, page by page.

Jobs are ordered by the time of their submission, and those of one instant by id. Both stay as they
are for a job's whole life, so the pair is what a cursor holds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import StrEnum
from itertools import groupby, islice
from operator import attrgetter
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, json

from api.pages import Cursor, Limit, read_cursor, write_cursor
from controlplane.job import Job, Phase
from controlplane.queries import JobView, job_view
from controlplane.world import World

Key = tuple[float, str]
_decode_key = json.Decoder(Key).decode


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
    after = None if query.after is UNSET else read_cursor(query.after, _decode_key)
    ordered = _newest_first if query.order is Order.NEWEST else _oldest_first
    found = list(islice(ordered(_matching(world, query), after), query.limit + 1))
    shown = found[: query.limit]
    more = len(found) > len(shown)
    return JobPage(
        items=[job_view(job) for job in shown],
        next=write_cursor(_key(shown[-1])) if more else None,
    )


def _key(job: Job) -> Key:
    return job.submitted_at, job.id


_submitted_at = attrgetter("submitted_at")
_id = attrgetter("id")


def _matching(world: World, query: JobsQuery) -> list[Job]:
    """Jobs in the order of their submission; each filter is one quick pass."""
    jobs = list(world.jobs.values())
    if query.phase:
        ids = (job_id for phase in set(query.phase) for job_id in world.by_phase[phase])
        jobs = sorted((world.jobs[job_id] for job_id in ids), key=_submitted_at)
    if query.namespace is not UNSET:
        jobs = [job for job in jobs if job.namespace == query.namespace]
    if query.queue is not UNSET:
        jobs = [job for job in jobs if job.spec.queue == query.queue]
    if query.kind is not UNSET:
        jobs = [job for job in jobs if job.spec.kind == query.kind]
    if query.name is not UNSET:
        jobs = [job for job in jobs if job.name.startswith(query.name)]
    return jobs


def _oldest_first(jobs: list[Job], after: Key | None) -> Iterator[Job]:
    first = 0 if after is None else bisect_left(jobs, after[0], key=_submitted_at)
    for _, together in groupby(islice(jobs, first, None), _submitted_at):
        for job in sorted(together, key=_id):
            if after is None or _key(job) > after:
                yield job


def _newest_first(jobs: list[Job], after: Key | None) -> Iterator[Job]:
    end = len(jobs) if after is None else bisect_right(jobs, after[0], key=_submitted_at)
    backwards = islice(reversed(jobs), len(jobs) - end, None)
    for _, together in groupby(backwards, _submitted_at):
        for job in sorted(together, key=_id, reverse=True):
            if after is None or _key(job) < after:
                yield job
