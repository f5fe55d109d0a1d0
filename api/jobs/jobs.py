"""Jobs over HTTP: submit, list, get. Changes to jobs are in `job_changes.py`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, TypeVar

from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from api.access import ACTOR
from api.engine.engine_client import ENGINE, EngineClient
from api.history.past_worlds import PAST_PROBLEMS, ask_when
from api.jobs.job_list import JobPage, JobsQuery, job_page
from api.problems import concerning_only
from api.requests.bodies import BODIES, BODY_PROBLEMS, check_writable
from api.requests.idempotency import HEADER, command_id, events_of, first_answer, new_job_id
from api.requests.instants import PastQuery
from api.requests.notices import notices
from api.routes import NoQuery, Route, answer, answer_bytes, encode, route
from api.studies.forecasts import FORECASTS
from api.studies.previews import PREVIEWS
from controlplane.decisions.decider import find_job
from controlplane.kinds.kind import Submission
from controlplane.kinds.registry import read_manifest
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.errors import Rejected
from controlplane.ports import Cluster, RankLogs, VetsJobs
from controlplane.queries.arrays import array_detail, why_array
from controlplane.queries.dry_run import plan
from controlplane.queries.queries import job_detail, why
from controlplane.queries.views import JobDetail, LogLines, Plan, Why
from controlplane.state.image import Receipt
from controlplane.state.world import World
from controlplane.workflows.dependencies import owner_named, plain_name, without
from studies.forecast.forecast import Question
from studies.forecast.views import PlanAnswer, WhyAnswer

LOGS_S_MAX = 30.0

T = TypeVar("T")

CLUSTER = web.AppKey("cluster", Cluster)


class Manifest:
    """A placeholder in the route table for every registered kind of manifest."""


class SubmitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    plan: Annotated[bool, Meta(description="Return the plan without storing anything.")] = False
    forecast: Annotated[
        bool, Meta(description="With a plan: include a forecast of its start and end.")
    ] = True
    preview: Annotated[
        bool, Meta(description="With a plan: which other jobs it would start, stop or move.")
    ] = False
    before: Annotated[
        tuple[str, ...],
        Meta(
            description="With a plan: NAMESPACE/NAME of jobs that are submitted first; `after` may name them."
        ),
    ] = ()


class WhyQuery(PastQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    forecast: Annotated[
        bool, Meta(description="Include a forecast of its start and end; not of the past.")
    ] = True


class LogsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    rank: Annotated[int, Meta(ge=0, le=9_999, description="Whose lines.")] = 0
    tail: Annotated[int, Meta(ge=1, le=10_000, description="At most how many lines.")] = 100
    attempt: Annotated[int, Meta(ge=0, description="Of an earlier attempt; 0: the latest.")] = 0
    previous: Annotated[
        bool, Meta(description="Of its container before it was started again in place.")
    ] = False
    container: Annotated[
        str, Meta(max_length=253, description="Of this container; none: the one that speaks.")
    ] = ""


class Submitted(NamedTuple):
    receipt: Receipt
    # The job as JSON; None if it is gone already.
    detail: bytes | None


async def submit_job(request: web.Request, query: SubmitQuery) -> web.Response:
    submission = await _read(request)
    command = _command(request, submission)
    if query.plan:
        command = _without_earlier(command, query.before)
        return await _planned(
            request,
            submission,
            command,
            with_forecast=query.forecast,
            with_preview=query.preview,
        )
    return await submission_answer(request, command, submission.warnings)


async def submission_answer(
    request: web.Request, command: c.SubmitJob, warnings: Sequence[str] = ()
) -> web.Response:
    """Submit a job and answer with it: 201 if it is new, 200 if the command was repeated."""
    engine_client = request.app[ENGINE]
    submitted = await engine_client.submit_then(command, _submitted)
    is_new = submitted.receipt.stream == command.job
    detail = submitted.detail
    if detail is None or not is_new:
        detail = await _repeated(engine_client, command, submitted)
    return answer_bytes(
        detail,
        status=201 if is_new else 200,
        headers={
            "Location": f"/v1/jobs/{command.namespace}/{command.name}",
            **notices(warnings),
        },
    )


def _without_earlier(command: c.SubmitJob, names: tuple[str, ...]) -> c.SubmitJob:
    """Return `command` without its dependencies on `names`, jobs that are not submitted yet."""
    after = without(command.spec.after, command.namespace, names)
    return replace(command, spec=replace(command.spec, after=after))


async def forecast_job(request: web.Request, query: NoQuery) -> web.Response:
    """Answer as a plan with a forecast does.

    The route is listed among the studies, where people look for forecasts.
    """
    submission = await _read(request)
    return await _planned(request, submission, _command(request, submission), with_forecast=True)


async def _read(request: web.Request) -> Submission:
    document = await request.app[BODIES].document(request)
    cluster = request.app[CLUSTER]
    with concerning_only("this manifest"):
        submission = read_manifest(document)
        check_writable(submission.spec)
        refusal = cluster.vet(submission.spec) if isinstance(cluster, VetsJobs) else None
    if refusal is not None:
        raise refusal
    return submission


def _command(request: web.Request, submission: Submission) -> c.SubmitJob:
    return c.SubmitJob(
        id=command_id(request),
        actor=request[ACTOR],
        job=new_job_id(),
        namespace=submission.namespace,
        name=submission.name,
        spec=submission.spec,
        suspended=submission.suspended,
    )


async def _planned(
    request: web.Request,
    submission: Submission,
    command: c.SubmitJob,
    *,
    with_forecast: bool,
    with_preview: bool = False,
) -> web.Response:
    """Answer with the plan and, if wanted, a forecast from the same state and a preview."""
    forecaster = request.app[FORECASTS]

    def ask(world: World) -> tuple[Plan, Question | None]:
        planned = plan(world, command)
        return planned, forecaster.draft(world, command) if with_forecast else None

    planned, question = await request.app[ENGINE].ask(ask)
    forecast = await forecaster.answer(question)
    preview = await request.app[PREVIEWS].preview(request, command) if with_preview else None
    body = PlanAnswer(**asdict(planned), forecast=forecast, preview=preview)
    return answer(body, headers=notices(submission.warnings))


def _submitted(world: World, receipt: Receipt) -> Submitted:
    return Submitted(receipt, detail_of(world, receipt.stream))


def detail_of(world: World, stream: str) -> bytes | None:
    """Return the job or the array with this id as JSON; None if there is none."""
    if (job := world.jobs.get(stream)) is not None:
        return encode(job_detail(job))
    array = world.owners.get(stream)
    return None if array is None else encode(array_detail(world, array))


async def _repeated(
    engine_client: EngineClient, command: c.SubmitJob, submitted: Submitted
) -> bytes:
    """Return the job as it is now or, if it is gone, as it was right after its submission."""
    recorded = await events_of(engine_client.log, command, submitted.receipt)
    if submitted.detail is None and command.spec.array:
        name = f"{command.namespace}/{command.name}"
        raise Rejected("no_such_job", f"{name} was submitted and has been removed since")
    return submitted.detail or encode(job_detail(first_answer(recorded)))


async def list_jobs(request: web.Request, query: JobsQuery) -> web.Response:
    page, headers = await ask_when(request, query, lambda world: job_page(world, query))
    return answer(page, headers=headers)


async def get_job(request: web.Request, query: PastQuery) -> web.Response:
    namespace, name = named(request)

    def ask(world: World) -> JobDetail:
        array = owner_named(world, namespace, name)
        with concerning_only(f"this view of {namespace}/{name}"):
            if array is not None:
                return array_detail(world, array)
            return job_detail(find_job(world, namespace, name))

    detail, headers = await ask_when(request, query, ask)
    return answer(detail, headers=headers)


async def explain_job(request: web.Request, query: WhyQuery) -> web.Response:
    forecaster = request.app[FORECASTS]
    namespace, name = named(request)

    def ask(world: World) -> tuple[Why, Question | None]:
        if (array := owner_named(world, namespace, name)) is not None:
            return why_array(world, array), None
        job = find_job(world, namespace, name)
        with concerning_only(f"why {namespace}/{name}"):
            asks = query.forecast and not query.is_past
            return why(world, job), forecaster.question(world, job) if asks else None

    (explanation, question), headers = await ask_when(request, query, ask)
    forecast = await forecaster.answer(question)
    return answer(WhyAnswer(**asdict(explanation), forecast=forecast), headers=headers)


async def ask_about(request: web.Request, view: Callable[[World, Job], T]) -> T:
    """Return `view(world, job)` for the job that the URL names.

    An exception of `view` fails this answer alone.
    """
    namespace, name = named(request)

    def ask(world: World) -> T:
        job = find_job(world, namespace, name)
        with concerning_only(f"this view of {namespace}/{name}"):
            return view(world, job)

    return await request.app[ENGINE].ask(ask)


def named(request: web.Request) -> tuple[str, str]:
    """Return the namespace and the name in the URL; NAME[7] is index 7 of an array."""
    return request.match_info["namespace"], plain_name(request.match_info["name"])


async def read_logs(request: web.Request, query: LogsQuery) -> web.Response:
    namespace, name = named(request)
    job = await request.app[ENGINE].ask(lambda world: find_job(world, namespace, name))
    ranks = job.spec.size if job.attempt is None else len(job.attempt.ranks)
    if query.rank >= ranks:
        message = f"{namespace}/{name} has the ranks 0 to {ranks - 1}"
        raise Rejected("no_such_rank", message, field="rank")
    lines: list[str] = []
    if job.attempt is not None:
        lines = await _lines(request.app[CLUSTER], job, query)
    number = query.attempt or (0 if job.attempt is None else job.attempt.number)
    return answer(
        LogLines(namespace=namespace, name=name, attempt=number, rank=query.rank, lines=lines)
    )


async def _lines(cluster: Cluster, job: Job, query: LogsQuery) -> list[str]:
    with concerning_only(f"the logs of {job.namespace}/{job.name}"):
        try:
            async with asyncio.timeout(LOGS_S_MAX):
                if query.attempt or query.previous or query.container:
                    return await _older_lines(cluster, job, query)
                return await cluster.logs(job, query.rank, query.tail)
        except TimeoutError:
            raise Rejected("cluster_timeout", f"no lines came within {LOGS_S_MAX:g} s") from None


async def _older_lines(cluster: Cluster, job: Job, query: LogsQuery) -> list[str]:
    if not isinstance(cluster, RankLogs):
        message = "this server's cluster keeps the lines of the latest attempt only"
        raise Rejected("no_pods", message)
    await check_container(cluster, job, query.rank, query.container, query.attempt)
    return await cluster.older_logs(
        job,
        query.rank,
        query.tail,
        attempt=query.attempt,
        previous=query.previous,
        container=query.container,
    )


async def check_container(
    cluster: RankLogs, job: Job, rank: int, container: str, attempt: int = 0
) -> None:
    """Raise Rejected, with the names of the rank's containers, if it has no such `container`."""
    if not container:
        return
    known = await cluster.containers(job, rank, attempt)
    if container not in known:
        hint = f"it has: {', '.join(known)}" if known else "nothing is left of it"
        raise Rejected(
            "no_such_container", f"rank {rank} has no container {container!r}; {hint}",
            field="container",
        )  # fmt: skip


_JOB = "/v1/jobs/{namespace}/{name}"

ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/jobs", submit_job,
        "Submit a job, or with plan=true learn what would become of it",
        query=SubmitQuery, body=Manifest, answers={201: JobDetail, 200: (JobDetail, PlanAnswer)},
        problems=("invalid_manifest", "unknown_kind", "invalid_job", "unknown_queue",
                  "can_never_fit", "name_taken", "unknown_dependency", "dependency_cycle",
                  "dependency_failed", "no_such_job", "idempotency_key_reused", "platform_error",
                  *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "POST", "/v1/studies/forecast", forecast_job, "When a job would start and end",
        query=NoQuery, body=Manifest, answers={200: PlanAnswer},
        problems=("invalid_manifest", "unknown_kind", "invalid_job", "unknown_queue",
                  "can_never_fit", "name_taken", "unknown_dependency", "dependency_cycle",
                  "dependency_failed", "platform_error", *BODY_PROBLEMS),
    ),
    route(
        "GET", "/v1/jobs", list_jobs, "List jobs, page by page",
        query=JobsQuery, answers={200: JobPage}, problems=("bad_cursor", *PAST_PROBLEMS),
    ),
    route(
        "GET", _JOB, get_job, "A job with its spec, its latest attempt and its restarts",
        query=PastQuery, answers={200: JobDetail},
        problems=("no_such_job", "platform_error", *PAST_PROBLEMS),
    ),
    route(
        "GET", f"{_JOB}/why", explain_job, "Why a job waits, restarts, or ended as it did",
        query=WhyQuery, answers={200: WhyAnswer},
        problems=("no_such_job", "platform_error", *PAST_PROBLEMS),
    ),
    route(
        "GET", f"{_JOB}/logs", read_logs, "The last lines that a rank wrote",
        query=LogsQuery, answers={200: LogLines}, needs_leader=True,
        problems=("no_such_job", "is_array", "no_such_rank", "no_such_container", "invalid_parameter",
                  "cluster_timeout", "no_pods", "platform_error"),
    ),
)  # fmt: skip
