"""An incident over HTTP: the analysis of a span of time in sentences, and as a page to share."""

import numpy as np
from aiohttp import web
from msgspec import Struct

from api.engine.engine_client import ENGINE
from api.history.annotations import ANNOTATIONS
from api.history.history import TimeSpan, span_of
from api.history.history_index import HISTORY_FOLLOWER
from api.history.past import PAST
from api.requests.headers import HEADERS
from api.routes import Route, answer, route
from controlplane.model.errors import Rejected
from controlplane.ports import LogReader
from studies.analysis import Analysis, EmptySpan, analyse
from studies.analysis.sentences import sentences
from studies.history.marks import MarkKind
from studies.history.views import marks_view, usage_view
from studies.report.incident_page import POLICY, Incident, Remark, incident_page

BINS = 160
MARKS_MAX = 300
# What is worth a line on the page of an incident.
KINDS = tuple(kind for kind in MarkKind if kind is not MarkKind.LEADER)


class IncidentView(Struct, frozen=True, kw_only=True):
    """What failed in a span, where, whose, and what it cost; `sentences` say the most important."""

    sentences: list[str]
    analysis: Analysis


async def get_incident(request: web.Request, query: TimeSpan) -> web.Response:
    analysis = await _analysis(request, *await span_of(request, query))
    return answer(IncidentView(sentences=sentences(analysis), analysis=analysis))


async def get_page(request: web.Request, query: TimeSpan) -> web.Response:
    begin, end = await span_of(request, query)
    analysis = await _analysis(request, begin, end)
    index = request.app[HISTORY_FOLLOWER].index
    cuts = np.linspace(begin, end, BINS + 1)
    remarks = [
        Remark(at=each.at, author=each.author, text=each.text, about=each.about)
        for each in request.app[ANNOTATIONS].all()
        if begin <= each.at <= end
    ]
    page = incident_page(
        Incident(
            title="Incident",
            analysis=analysis,
            sentences=sentences(analysis),
            usage=usage_view(index, cuts, with_queues=False),
            marks=marks_view(index, cuts, KINDS, MARKS_MAX),
            remarks=remarks,
        )
    )
    more = {
        "Content-Security-Policy": POLICY,
        "Content-Disposition": 'inline; filename="incident.html"',
    }
    return web.Response(
        text=page, content_type="text/html", charset="utf-8", headers={**HEADERS, **more}
    )


async def _analysis(request: web.Request, begin: float, end: float) -> Analysis:
    async def look(log: LogReader) -> Analysis:
        return await analyse(log, since=begin, until=end)

    if not (await request.app[ENGINE].log.head()).position:
        raise Rejected("no_such_position", "the log is empty", field="from")
    try:
        return await request.app[PAST].look(look)
    except EmptySpan as error:
        raise Rejected("no_such_position", str(error), field="from") from None


_PROBLEMS = ("invalid_parameter", "no_such_position", "busy")

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/incident", get_incident,
        "What failed in a span of time, where, whose, and what it cost, in sentences",
        query=TimeSpan, answers={200: IncidentView}, problems=_PROBLEMS,
    ),
    route(
        "GET", "/v1/incident/page", get_page, "The same as one HTML page that needs nothing else",
        query=TimeSpan, answers={200: str}, media_types=("text/html",), problems=_PROBLEMS,
        # The leader has the annotations.
        needs_leader=True,
    ),
)  # fmt: skip
