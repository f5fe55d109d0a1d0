"""The first jobs of the lines over HTTP, with the reasons for which they wait."""

from typing import Annotated

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from api.engine.engine_client import ENGINE
from api.history.answer_cache import AnswerCache
from api.history.past_worlds import PAST_PROBLEMS, ask_when
from api.requests.instants import PastQuery
from api.routes import Route, answer, route
from controlplane.model.errors import Rejected
from controlplane.queries.line import first_in_line
from controlplane.queries.views import WaitingLine
from controlplane.state.world import World

JOBS_MAX = 100
# A scheduling pass on a large cluster takes a tenth of a second.
FRESH_S = 3.0


class LineQuery(PastQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=JOBS_MAX, description="At most how many jobs.")] = 10
    queue: Annotated[str, Meta(max_length=253, description="Only of this queue.")] | UnsetType = (
        UNSET
    )


LINES = web.AppKey("lines", AnswerCache)


async def get_line(request: web.Request, query: LineQuery) -> web.Response:
    def ask(world: World) -> WaitingLine:
        if query.queue is UNSET:
            return first_in_line(world, query.limit)
        if query.queue not in world.queues:
            raise Rejected("no_such_queue", f"there is no queue {query.queue!r}", field="queue")
        return first_in_line(world, query.limit, query.queue)

    if query.is_past:
        line, headers = await ask_when(request, query, ask)
        return answer(line, headers=headers)
    kept = request.app[LINES].kept(request)
    if kept is not None:
        return kept
    line = await request.app[ENGINE].ask(ask)
    return request.app[LINES].answer(request, lambda: line)


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/line", get_line,
        "The first jobs that wait, in one queue or all, and why",
        query=LineQuery, answers={200: WaitingLine}, problems=("no_such_queue", *PAST_PROBLEMS),
    ),
)  # fmt: skip
