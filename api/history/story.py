"""The story of a job: what happened to it, one sentence for each event, now or up to an instant.

The sentences are those of `muster events`. A job that was removed later still has its story at every
instant before that.
"""

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from api.engine.engine_client import ENGINE
from api.history.past_worlds import PAST_PROBLEMS, ask_when
from api.jobs.jobs import named
from api.requests.headers import POSITION_HEADER
from api.requests.instants import PastQuery
from api.routes import Route, answer, route
from controlplane.decisions.decider import find_job
from controlplane.event_messages import describe
from controlplane.log.codec import from_row
from controlplane.model.rows import Row
from controlplane.ports import SearchableLog
from controlplane.state.world import World
from controlplane.workflows.dependencies import owner_named

EVENTS_MAX = 1_000
SCAN_PAGE_ROWS = 100_000


class StoryQuery(PastQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX, description="At most how many events.")] = 300


class StoryEvent(Struct, frozen=True, kw_only=True):
    """One event. `actor` is the person who caused it; empty if no person did."""

    position: int
    at: float
    type: str
    message: str
    actor: str = ""


class Story(Struct, frozen=True, kw_only=True):
    """The last events of a job, in order, and the number of all its events."""

    total: int
    items: list[StoryEvent]


async def get_story(request: web.Request, query: StoryQuery) -> web.Response:
    namespace, name = named(request)

    def ask(world: World) -> tuple[str, int]:
        job = owner_named(world, namespace, name) or find_job(world, namespace, name)
        return job.id, job.submitted_position

    (stream, first), headers = await ask_when(request, query, ask)
    rows = await _rows(
        request.app[ENGINE].log, stream, after=first - 1, upto=int(headers[POSITION_HEADER])
    )
    story = Story(total=len(rows), items=[_event(row) for row in rows[-query.limit :]])
    return answer(story, headers=headers)


async def _rows(log: SearchableLog, stream: str, *, after: int, upto: int) -> list[Row]:
    """Return the events of `stream` behind `after`, up to `upto`."""
    rows: list[Row] = []
    for start in range(after, upto, SCAN_PAGE_ROWS):
        rows += await log.read_stream(stream, start, min(start + SCAN_PAGE_ROWS, upto))
    return rows


def _event(row: Row) -> StoryEvent:
    recorded = from_row(row)
    return StoryEvent(
        position=row.position,
        at=row.at,
        type=row.type,
        message=describe(recorded.event),
        actor=row.actor,
    )


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/jobs/{namespace}/{name}/story", get_story,
        "What happened to a job, one sentence for each event",
        query=StoryQuery, answers={200: Story}, problems=("no_such_job", *PAST_PROBLEMS),
    ),
)  # fmt: skip
