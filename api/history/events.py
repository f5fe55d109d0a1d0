"""The event log over HTTP: as pages of JSON, or as an event stream that stays open."""

from typing import Annotated, NamedTuple

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.engine.engine_client import ENGINE
from api.history.sse_feed import FEED
from api.history.sse_frames import EventPage, view_of_row
from api.jobs.jobs import named
from api.requests.instants import POSITION_MAX
from api.requests.pages import Limit
from api.routes import Route, answer, route
from controlplane.decisions.decider import find_job
from controlplane.model.errors import Rejected
from controlplane.model.rows import Row
from controlplane.ports import SearchableLog
from controlplane.workflows.dependencies import owner_named

# A page of one job's events is searched for in at most this many rows, in several reads. The page
# may therefore hold fewer events than asked for, or none, and still have a `next`.
SCAN_ROWS_MAX = 2_000_000
SCAN_PAGE_ROWS = 100_000
LAST_EVENT_ID = "Last-Event-ID"


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=POSITION_MAX, description="Begin behind this.")] = 0
    limit: Limit = 100
    job: (
        Annotated[str, Meta(max_length=63, description="Only events of the job with this id.")]
        | UnsetType
    ) = UNSET


class JobEventsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=POSITION_MAX, description="Begin behind this.")] = 0
    limit: Limit = 100


async def list_events(request: web.Request, query: EventsQuery) -> web.StreamResponse:
    stream = None if query.job is UNSET else query.job
    return await _answer(request, after=query.after, limit=query.limit, stream=stream)


async def list_job_events(request: web.Request, query: JobEventsQuery) -> web.StreamResponse:
    namespace, name = named(request)
    job = await request.app[ENGINE].ask(
        lambda world: owner_named(world, namespace, name) or find_job(world, namespace, name)
    )
    first = job.submitted_position
    return await _answer(
        request, after=query.after, limit=query.limit, stream=job.id, not_before=first - 1
    )


async def _answer(
    request: web.Request, *, after: int, limit: int, stream: str | None, not_before: int = 0
) -> web.StreamResponse:
    log = request.app[ENGINE].log
    is_stream = "text/event-stream" in request.headers.get("Accept", "")
    after = _last_event_id(request, after)
    head = (await log.head()).position
    if after > head:
        raise Rejected("no_such_position", f"the log ends at {head}", field="after")
    after = max(after, not_before)
    if is_stream:
        return await request.app[FEED].serve(request, after=after, stream=stream)
    page = await _find(log, after=after, limit=limit, stream=stream, head=head)
    return answer(
        EventPage(items=[view_of_row(row) for row in page.rows], next=page.next, head=head)
    )


def _last_event_id(request: web.Request, after: int) -> int:
    """Return the position to resume after: the Last-Event-ID header if present, else `after`.

    A browser that reconnects sends its original URL, and the last id that it received in the
    header.
    """
    last = request.headers.get(LAST_EVENT_ID)
    if last is None:
        return after
    if not last.isascii() or not last.isdigit() or not int(last[:20]) <= POSITION_MAX:
        raise Rejected("invalid_parameter", f"{LAST_EVENT_ID}: not a position", field=LAST_EVENT_ID)
    return int(last)


class RowPage(NamedTuple):
    rows: list[Row]
    next: int | None


async def _find(
    log: SearchableLog, *, after: int, limit: int, stream: str | None, head: int
) -> RowPage:
    """Return up to `limit` rows of `stream`, or of all streams if it is None."""
    if stream is None:
        rows = list(await log.read(after, min(limit, head - after)))
        upto = rows[-1].position if rows else after
        return RowPage(rows, upto if upto < head else None)
    matching: list[Row] = []
    end = min(head, after + SCAN_ROWS_MAX)
    while after < end and len(matching) < limit:
        upto = min(after + SCAN_PAGE_ROWS, end)
        matching += await log.read_stream(stream, after, upto)
        after = upto
    if len(matching) >= limit:
        after = matching[limit - 1].position
    return RowPage(matching[:limit], after if after < head else None)


_STREAM = ("application/json", "text/event-stream")

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/events", list_events,
        "What has happened, in order: a page, or with `Accept: text/event-stream` a stream",
        query=EventsQuery, answers={200: EventPage},
        problems=("invalid_parameter", "no_such_position", "busy"),
        media_types=_STREAM, headers=(LAST_EVENT_ID,),
    ),
    route(
        "GET", "/v1/jobs/{namespace}/{name}/events", list_job_events,
        "What has happened to a job: a page, or a stream",
        query=JobEventsQuery, answers={200: EventPage},
        problems=("no_such_job", "invalid_parameter", "no_such_position", "busy"),
        media_types=_STREAM, headers=(LAST_EVENT_ID,),
    ),
)  # fmt: skip
