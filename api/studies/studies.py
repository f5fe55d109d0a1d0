"""Studies over HTTP: create, show progress, get the result, cancel."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from api.engine.engine_client import ENGINE
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.headers import HEADERS
from api.routes import NoQuery, Route, answer, route
from api.studies import own_cluster
from api.studies.study_runner import FORK, STUDY_RUNNER, Study, StudyState
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.log.codec import from_row
from controlplane.model.errors import Rejected
from controlplane.model.events import Recorded
from controlplane.model.rows import Row
from simulator.faults.presets import PRESETS
from simulator.network.topology import BadCluster
from studies.fork.futures import ForkResult
from studies.report.findings import findings, plain
from studies.whatif.policies import PACKINGS
from studies.whatif.whatif import ClusterFile, Options, WhatIf, study_of
from studies.workloads.trace import BadTrace

ROWS_A_PAGE = 10_000
TRACE = "trace.csv"
# The maximum of scenarios times replications, for one study over HTTP.
RUNS_MAX = 10_000


class ClusterDocument(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    document: dict[str, Any]


class WhatIfRequest(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, as `muster whatif` asks it. Lists span a grid, whose first point is the base.

    The workload is `trace_csv` (id,submit,gpus,duration and more) or, without it, the jobs that
    have run on this cluster, with `last_days` only those of the last days of the log. Each number
    in `add_nodes` is a cluster: this one with so many more nodes; 0 is this cluster as it is.
    """

    trace_csv: str | None = None
    last_days: Annotated[float, Meta(gt=0, le=36_500)] | None = None
    add_nodes: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=100_000)], ...], Meta(max_length=100)
    ] = ()
    title: Annotated[str, Meta(max_length=200)] = ""
    clusters: tuple[ClusterDocument, ...] = ()
    # Fewer than on the command line: other clients wait for this server.
    replications: Annotated[int, Meta(ge=1, le=1_000)] = 1


class StudyView(Struct, frozen=True, kw_only=True):
    """The progress of a study. `problem` explains why it failed.

    `kind` is `whatif` or `fork`, and `title` names the question in one line. `at` is the instant at
    which a fork begins, in UTC seconds.
    """

    id: str
    kind: str
    title: str
    state: StudyState
    done: int
    total: int
    seconds_left: float | None
    problem: str
    at: float | None = None


class Choice(Struct, frozen=True):
    """A value that a form may offer, and what it means."""

    name: str
    description: str


class StudyChoices(Struct, frozen=True, kw_only=True):
    """What a study may vary by name: disciplines, packings and faults of nodes."""

    disciplines: list[Choice]
    packings: list[Choice]
    faults: list[str]
    gpus: int
    nodes: int


class StudyFindings(Struct, frozen=True):
    """The findings of a study in sentences, the most important first."""

    sentences: list[str]


class StudyList(Struct, frozen=True):
    studies: list[StudyView]


def view(study: Study) -> StudyView:
    left = study.seconds_left
    return StudyView(
        id=study.id,
        kind=study.kind,
        title=study.title,
        state=study.state,
        done=study.done,
        total=study.total,
        seconds_left=None if left is None else round(left, 1),
        problem=study.problem,
        at=study.at,
    )


async def ask_whatif(request: web.Request, query: NoQuery) -> web.Response:
    document = await request.app[BODIES].document(request)
    asked = convert(document, WhatIfRequest)
    runner, name = request.app[STUDY_RUNNER], uuid.uuid4().hex
    if asked.trace_csv is None:
        trace = await _own_jobs(request, asked.last_days)
    else:
        trace = asked.trace_csv
    present = await request.app[ENGINE].ask(own_cluster.infos) if asked.add_nodes else []
    own = tuple(
        ClusterDocument(own_cluster.named(added), own_cluster.document(present, added))
        for added in asked.add_nodes
    )
    folder = runner.folder_for(name)
    question = _question(asked, own, folder / TRACE)
    try:
        # In a thread: a long trace takes seconds to parse, and other clients wait for this server.
        await asyncio.to_thread(_check, question, trace)
    except (BadTrace, BadCluster, ValueError) as error:
        runner.discard(folder)
        raise Rejected("invalid_study", str(error)) from None
    study = Study(name, question, folder, title=asked.title or _title(question))
    runner.take(study)
    return answer(view(study), status=202, headers={"Location": f"/v1/studies/{name}"})


def _check(question: WhatIf, trace: str) -> None:
    """Write the trace to the path in `question`, and raise if the question is not valid."""
    Path(question.trace).write_text(trace, encoding="utf-8")
    study_of(question, runs_max=RUNS_MAX)


def _question(asked: WhatIfRequest, own: tuple[ClusterDocument, ...], trace: Path) -> WhatIf:
    fields: dict[str, Any] = msgspec.structs.asdict(asked)
    for name in ("trace_csv", "last_days", "add_nodes", "title"):
        del fields[name]
    clusters = tuple(
        ClusterFile(each.name, msgspec.json.encode(each.document).decode())
        for each in (*own, *fields.pop("clusters"))
    )
    return WhatIf(trace=str(trace), format="csv", clusters=clusters, **fields)


def _title(question: WhatIf) -> str:
    """Return the question in one line: its clusters and policies, and how often each is run."""
    sizes = (*(f"{gpus} GPUs" for gpus in question.gpus), *question.nodes)
    clusters = (*sizes, *(each.name for each in question.clusters))
    parts = [" or ".join(clusters), " or ".join(question.policies)]
    if question.loads != (1.0,):
        parts.append(f"load {' or '.join(f'{load:g}' for load in question.loads)}")
    if question.synthetic_days is not None:
        parts.append(f"a synthetic load of {question.synthetic_days:g} days")
    if question.replications > 1:
        parts.append(f"{question.replications} replications")
    return ", ".join(parts)


async def _own_jobs(request: web.Request, last_days: float | None) -> str:
    """Return the jobs that have run on this cluster, read from the log, as a trace in CSV."""
    log = request.app[ENGINE].log
    events: list[Recorded] = []
    after = 0
    while rows := await log.read(after, ROWS_A_PAGE):
        events += await asyncio.to_thread(_decoded, rows)
        after = rows[-1].position
    return await asyncio.to_thread(own_cluster.own_trace, events, last_days)


def _decoded(rows: Sequence[Row]) -> list[Recorded]:
    return [from_row(row) for row in rows]


async def list_studies(request: web.Request, query: NoQuery) -> web.Response:
    return answer(StudyList([view(study) for study in request.app[STUDY_RUNNER].all()]))


async def show_study(request: web.Request, query: NoQuery) -> web.Response:
    return answer(view(_study(request)))


async def cancel_study(request: web.Request, query: NoQuery) -> web.Response:
    study = _study(request)
    request.app[STUDY_RUNNER].cancel(study)
    return answer(view(study))


async def show_choices(request: web.Request, query: NoQuery) -> web.Response:
    present = await request.app[ENGINE].ask(own_cluster.infos)
    named = (DISCIPLINES[name] for name in DISCIPLINES.names)
    choices = StudyChoices(
        disciplines=[Choice(each.name, each.description) for each in named],
        packings=[Choice(name, about) for name, (_, about) in PACKINGS.items()],
        faults=["none", *PRESETS],
        gpus=sum(node.gpus for node in present),
        nodes=len(present),
    )
    return answer(choices)


async def show_findings(request: web.Request, query: NoQuery) -> web.Response:
    study = _study(request)
    if study.kind == FORK:
        raise Rejected("no_report", "the sentences of a fork are in its result")
    result = msgspec.json.decode(_content(study, "result.json"))
    return answer(StudyFindings([plain(sentence) for sentence in findings(result)]))


async def show_result(request: web.Request, query: NoQuery) -> web.Response:
    return _file(request, "result.json", "application/json")


async def show_report(request: web.Request, query: NoQuery) -> web.Response:
    if _study(request).kind == FORK:
        raise Rejected("no_report", "a fork has a result, and no page of its own")
    return _file(request, "report.html", "text/html")


def _file(request: web.Request, name: str, media_type: str) -> web.Response:
    body = _content(_study(request), name)
    # The page has its styles inline and needs nothing else, so nothing else is allowed.
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return web.Response(
        body=body, content_type=media_type, charset="utf-8", headers={**HEADERS, **policy}
    )


def _content(study: Study, name: str) -> bytes:
    """Return a file of a study that is done; raise Rejected for any other study."""
    if study.state is not StudyState.DONE:
        state = f"it is {study.state.value}"
        raise Rejected("study_not_done", f"study {study.id} has no result: {state}")
    return (study.folder / name).read_bytes()


def _study(request: web.Request) -> Study:
    return request.app[STUDY_RUNNER].find(request.match_info["name"])


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
        "GET", "/v1/studies/choices", show_choices, "What a study may vary by name",
        query=NoQuery, answers={200: StudyChoices},
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
        "GET", f"{_STUDY}/result", show_result, "The result of a study as JSON",
        query=NoQuery, answers={200: (ForkResult, dict[str, Any])}, problems=("no_such_study", "study_not_done"),
        needs_leader=True,
    ),
    route(
        "GET", f"{_STUDY}/findings", show_findings, "The findings of a study, in sentences",
        query=NoQuery, answers={200: StudyFindings},
        problems=("no_such_study", "study_not_done", "no_report"), needs_leader=True,
    ),
    route(
        "GET", f"{_STUDY}/report", show_report, "The report of a study as HTML",
        query=NoQuery, answers={200: str}, problems=("no_such_study", "study_not_done", "no_report"),
        media_types=("text/html",), needs_leader=True,
    ),
)  # fmt: skip
