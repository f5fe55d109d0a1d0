"""Studies over HTTP: ask, see how far it is, take the answer, cancel."""

import asyncio
import io
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from api.control import CONTROL
from api.headers import HEADERS
from api.routes import NoQuery, Route, answer, route
from api.study_desk import DESK, Study, StudyState
from api.wire import BODIES, BODY_PROBLEMS, convert
from controlplane.codec import Row, from_row
from controlplane.errors import Rejected
from controlplane.events import Recorded
from simulator.topology import BadCluster
from studies.whatif import ClusterFile, Options, WhatIf, study_of
from studies.workloads.csv_trace import write_csv
from studies.workloads.event_log import trace_of_events
from studies.workloads.trace import BadTrace

ROWS_A_PAGE = 10_000
TRACE = "trace.csv"
# Scenarios times replications, for one question over HTTP.
RUNS_MAX = 10_000


class ClusterDocument(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    document: dict[str, Any]


class WhatIfRequest(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, as `muster whatif` asks it. Lists span a grid, whose first point is the base.

    The workload is `trace_csv` (id,submit,gpus,duration and more), or without it the jobs that have
    run on this cluster.
    """

    trace_csv: str | None = None
    clusters: tuple[ClusterDocument, ...] = ()
    # Fewer than at the terminal: others wait for this server.
    replications: Annotated[int, Meta(ge=1, le=1_000)] = 1


class StudyView(Struct, frozen=True, kw_only=True):
    """How far a study is. `problem` says why it failed."""

    id: str
    state: StudyState
    done: int
    total: int
    seconds_left: float | None
    problem: str


class StudyList(Struct, frozen=True):
    studies: list[StudyView]


def view(study: Study) -> StudyView:
    left = study.seconds_left
    return StudyView(
        id=study.id,
        state=study.state,
        done=study.done,
        total=study.total,
        seconds_left=None if left is None else round(left, 1),
        problem=study.problem,
    )


async def ask_whatif(request: web.Request, query: NoQuery) -> web.Response:
    document = await request.app[BODIES].document(request)
    asked = convert(document, WhatIfRequest)
    desk, name = request.app[DESK], uuid.uuid4().hex
    trace = await _own_jobs(request) if asked.trace_csv is None else asked.trace_csv
    folder = desk.folder_for(name)
    question = _question(asked, folder / TRACE)
    try:
        # In a thread: a long trace takes seconds to read, and others wait for this server.
        await asyncio.to_thread(_check, question, trace)
    except (BadTrace, BadCluster, ValueError) as error:
        desk.discard(folder)
        raise Rejected("invalid_study", str(error)) from None
    study = Study(name, question, folder)
    desk.take(study)
    return answer(view(study), status=202, headers={"Location": f"/v1/studies/{name}"})


def _check(question: WhatIf, trace: str) -> None:
    """Writes the trace to where the question names it, and raises what is wrong with the question."""
    Path(question.trace).write_text(trace, encoding="utf-8")
    study_of(question, runs_max=RUNS_MAX)


def _question(asked: WhatIfRequest, trace: Path) -> WhatIf:
    told: dict[str, Any] = msgspec.structs.asdict(asked)
    del told["trace_csv"]
    clusters = tuple(
        ClusterFile(each.name, msgspec.json.encode(each.document).decode())
        for each in told.pop("clusters")
    )
    return WhatIf(trace=str(trace), format="csv", clusters=clusters, **told)


async def _own_jobs(request: web.Request) -> str:
    """The jobs that have run here, read off the log, as a trace."""
    log = request.app[CONTROL].log
    events: list[Recorded] = []
    after = 0
    while rows := await log.read(after, ROWS_A_PAGE):
        events += await asyncio.to_thread(_decoded, rows)
        after = rows[-1][0]
    try:
        return await asyncio.to_thread(_as_csv, events)
    except BadTrace as error:
        raise Rejected("invalid_study", str(error)) from None


def _decoded(rows: Sequence[Row]) -> list[Recorded]:
    return [from_row(row) for row in rows]


def _as_csv(events: Sequence[Recorded]) -> str:
    text = io.StringIO()
    write_csv(trace_of_events("this cluster", events), text)
    return text.getvalue()


async def list_studies(request: web.Request, query: NoQuery) -> web.Response:
    return answer(StudyList([view(study) for study in request.app[DESK].all()]))


async def show_study(request: web.Request, query: NoQuery) -> web.Response:
    return answer(view(_found(request)))


async def cancel_study(request: web.Request, query: NoQuery) -> web.Response:
    study = _found(request)
    request.app[DESK].cancel(study)
    return answer(view(study))


async def show_result(request: web.Request, query: NoQuery) -> web.Response:
    return _file(request, "result.json", "application/json")


async def show_report(request: web.Request, query: NoQuery) -> web.Response:
    return _file(request, "report.html", "text/html")


def _file(request: web.Request, name: str, media_type: str) -> web.Response:
    study = _found(request)
    if study.state is not StudyState.DONE:
        told = f"it is {study.state.value}"
        raise Rejected("study_not_done", f"study {study.id} has no result: {told}")
    # The page brings its styles along and needs nothing else, so it may have nothing else.
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    body = (study.folder / name).read_bytes()
    return web.Response(
        body=body, content_type=media_type, charset="utf-8", headers={**HEADERS, **policy}
    )


def _found(request: web.Request) -> Study:
    return request.app[DESK].find(request.match_info["name"])


_STUDY = "/v1/studies/{name}"

ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/studies/whatif", ask_whatif,
        "Ask what another cluster, policy or workload would do",
        query=NoQuery, body=WhatIfRequest, answers={202: StudyView},
        problems=("invalid_body", "invalid_study", "busy", *BODY_PROBLEMS),
    ),
    route(
        "GET", "/v1/studies", list_studies, "The studies that this server knows",
        query=NoQuery, answers={200: StudyList}, needs_leader=True,
    ),
    route(
        "GET", _STUDY, show_study, "How far a study is",
        query=NoQuery, answers={200: StudyView}, problems=("no_such_study",), needs_leader=True,
    ),
    route(
        "DELETE", _STUDY, cancel_study, "Cancel a study",
        query=NoQuery, answers={200: StudyView}, problems=("no_such_study",),
    ),
    route(
        "GET", f"{_STUDY}/result", show_result, "What a study found, for machines",
        query=NoQuery, answers={200: dict[str, Any]}, problems=("no_such_study", "study_not_done"),
        needs_leader=True,
    ),
    route(
        "GET", f"{_STUDY}/report", show_report, "What a study found, as a page",
        query=NoQuery, answers={200: str}, problems=("no_such_study", "study_not_done"),
        media_types=("text/html",), needs_leader=True,
    ),
)  # fmt: skip
