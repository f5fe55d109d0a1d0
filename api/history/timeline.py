"""Bars for a timeline over HTTP, in columns: a view of many thousand bars stays small.

A column has one entry for each bar; jobs and nodes are indices into tables of the answer. Times are
seconds after `origin`, the begin of the requested span; a bar may begin before it.
"""

from typing import Annotated

from aiohttp import web
from msgspec import Meta

from api.history.answer_cache import ANSWERS
from api.history.history import TimeSpan, span_of
from api.history.history_index import HISTORY_FOLLOWER
from api.routes import Route, route
from studies.history.views import Lanes, Timeline, timeline_view

BARS_MAX = 50_000


class TimelineQuery(TimeSpan, frozen=True, forbid_unknown_fields=True, kw_only=True):
    lanes: Annotated[
        Lanes, Meta(description="A bar for each job and node, or one for each attempt of a job.")
    ] = Lanes.NODES
    limit: Annotated[int, Meta(ge=1, le=BARS_MAX, description="At most how many bars.")] = 10_000


async def get_timeline(request: web.Request, query: TimelineQuery) -> web.Response:
    follower = request.app[HISTORY_FOLLOWER]
    begin, end = await span_of(request, query)
    return request.app[ANSWERS].answer(
        request,
        lambda: timeline_view(
            follower.index,
            begin=begin,
            end=end,
            now=follower.now(),
            lanes=query.lanes,
            limit=query.limit,
        ),
    )


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/history/timeline", get_timeline,
        "Which jobs held which devices and when, which waited, and which nodes were out",
        query=TimelineQuery, answers={200: Timeline}, problems=("invalid_parameter",),
    ),
)  # fmt: skip
