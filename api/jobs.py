"""Jobs over HTTP: submit, list, look. What changes them is in `job_changes.py`."""

import asyncio
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar

from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import asdict

from api.access import ACTOR
from api.control import CONTROL, Control
from api.forecasts import FORECASTS
from api.idempotency import HEADER, command_id, events_of, first_answer, new_job_id
from api.job_list import JobPage, JobsQuery, job_page
from api.notices import notices
from api.problems import concerning_only
from api.routes import NoQuery, Route, answer, answer_bytes, encode, route
from api.wire import BODIES, BODY_PROBLEMS, check_writable
from controlplane import commands as c
from controlplane.decider import find_job
from controlplane.errors import Rejected
from controlplane.image import Receipt
from controlplane.job import Job
from controlplane.kinds.kind import Submission
from controlplane.kinds.registry import read_manifest
from controlplane.plan import plan
from controlplane.ports import Cluster, RealPods, VetsJobs
from controlplane.queries import job_detail, why
from controlplane.views import JobDetail, LogLines, Plan, Why
from controlplane.world import World
from studies.forecast import Question
from studies.forecast_answers import PlanAnswer, WhyAnswer

LOGS_S_MAX = 30.0

T = TypeVar("T")

CLUSTER = web.AppKey("cluster", Cluster)


class Manifest:
    """Stands in the route table for every kind of manifest that is known."""


class SubmitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    plan: Annotated[bool, Meta(description="Say what would happen, and store nothing.")] = False
    forecast: Annotated[bool, Meta(description="With a plan: when it would start and end.")] = True


class WhyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    forecast: Annotated[bool, Meta(description="Say when it will start and end.")] = True


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
        return await _planned(request, submission, command, with_forecast=query.forecast)
    control = request.app[CONTROL]
    submitted = await control.submit_then(command, _submitted)
    is_new = submitted.receipt.stream == command.job
    detail = submitted.detail
    if detail is None or not is_new:
        detail = await _repeated(control, command, submitted)
    return answer_bytes(
        detail,
        status=201 if is_new else 200,
        headers={
            "Location": f"/v1/jobs/{command.namespace}/{command.name}",
            **notices(submission.warnings),
        },
    )


async def forecast_job(request: web.Request, query: NoQuery) -> web.Response:
    """The same as a plan: who asks for a study looks for it among the studies."""
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
    request: web.Request, submission: Submission, command: c.SubmitJob, *, with_forecast: bool
) -> web.Response:
    """The plan, and a forecast from the very same state."""
    forecaster = request.app[FORECASTS]

    def ask(world: World) -> tuple[Plan, Question | None]:
        planned = plan(world, command)
        return planned, forecaster.draft(world, command) if with_forecast else None

    planned, question = await request.app[CONTROL].ask(ask)
    told = PlanAnswer(**asdict(planned), forecast=await forecaster.answer(question))
    return answer(told, headers=notices(submission.warnings))


def _submitted(world: World, receipt: Receipt) -> Submitted:
    job = world.jobs.get(receipt.stream)
    return Submitted(receipt, None if job is None else encode(job_detail(job)))


async def _repeated(control: Control, command: c.SubmitJob, submitted: Submitted) -> bytes:
    """What the job is now; if it is gone, what it was at first."""
    recorded = await events_of(control.log, command, submitted.receipt)
    return submitted.detail or encode(job_detail(first_answer(recorded)))


async def list_jobs(request: web.Request, query: JobsQuery) -> web.Response:
    return answer(await request.app[CONTROL].ask(lambda world: job_page(world, query)))


async def get_job(request: web.Request, query: NoQuery) -> web.Response:
    return answer(await ask_about(request, lambda _, job: job_detail(job)))


async def explain_job(request: web.Request, query: WhyQuery) -> web.Response:
    forecaster = request.app[FORECASTS]
    namespace, name = named(request)

    def ask(world: World) -> tuple[Why, Question | None]:
        job = find_job(world, namespace, name)
        with concerning_only(f"why {namespace}/{name}"):
            return why(world, job), forecaster.question(world, job) if query.forecast else None

    told, question = await request.app[CONTROL].ask(ask)
    return answer(WhyAnswer(**asdict(told), forecast=await forecaster.answer(question)))


async def ask_about(request: web.Request, view: Callable[[World, Job], T]) -> T:
    """What `view` shows of the job that the address names; what it raises concerns this answer alone."""
    namespace, name = named(request)

    def ask(world: World) -> T:
        job = find_job(world, namespace, name)
        with concerning_only(f"this view of {namespace}/{name}"):
            return view(world, job)

    return await request.app[CONTROL].ask(ask)


def named(request: web.Request) -> tuple[str, str]:
    return request.match_info["namespace"], request.match_info["name"]


async def read_logs(request: web.Request, query: LogsQuery) -> web.Response:
    namespace, name = named(request)
    job = await request.app[CONTROL].ask(lambda world: find_job(world, namespace, name))
    ranks = job.spec.size if job.attempt is None else len(job.attempt.ranks)
    if query.rank >= ranks:
        told = f"{namespace}/{name} has the ranks 0 to {ranks - 1}"
        raise Rejected("no_such_rank", told, field="rank")
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
    if not isinstance(cluster, RealPods):
        told = "a simulated cluster keeps the lines of the latest attempt only"
        raise Rejected("no_pods", told)
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
    cluster: RealPods, job: Job, rank: int, container: str, attempt: int = 0
) -> None:
    """A container that the rank has not is told, with those that it has."""
    if not container:
        return
    known = await cluster.containers(job, rank, attempt)
    if container not in known:
        told = f"it has: {', '.join(known)}" if known else "nothing is left of it"
        raise Rejected(
            "no_such_container", f"rank {rank} has no container {container!r}; {told}",
            field="container",
        )  # fmt: skip


_JOB = "/v1/jobs/{namespace}/{name}"

ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/jobs", submit_job,
        "Submit a job, or with plan=true learn what would become of it",
        query=SubmitQuery, body=Manifest, answers={201: JobDetail, 200: (JobDetail, PlanAnswer)},
        problems=("invalid_manifest", "unknown_kind", "invalid_job", "unknown_queue",
                  "can_never_fit", "name_taken", "idempotency_key_reused", "platform_error",
                  *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
    route(
        "POST", "/v1/studies/forecast", forecast_job, "When a job would start and end",
        query=NoQuery, body=Manifest, answers={200: PlanAnswer},
        problems=("invalid_manifest", "unknown_kind", "invalid_job", "unknown_queue",
                  "can_never_fit", "name_taken", "platform_error", *BODY_PROBLEMS),
    ),
    route(
        "GET", "/v1/jobs", list_jobs, "List jobs, page by page",
        query=JobsQuery, answers={200: JobPage}, problems=("invalid_parameter", "bad_cursor"),
    ),
    route(
        "GET", _JOB, get_job, "A job with its spec, its latest attempt and its restarts",
        query=NoQuery, answers={200: JobDetail}, problems=("no_such_job", "platform_error"),
    ),
    route(
        "GET", f"{_JOB}/why", explain_job, "Why a job waits, restarts, or ended as it did",
        query=WhyQuery, answers={200: WhyAnswer},
        problems=("no_such_job", "invalid_parameter", "platform_error"),
    ),
    route(
        "GET", f"{_JOB}/logs", read_logs, "The last lines that a rank wrote",
        query=LogsQuery, answers={200: LogLines}, needs_leader=True,
        problems=("no_such_job", "no_such_rank", "no_such_container", "invalid_parameter",
                  "cluster_timeout", "no_pods", "platform_error"),
    ),
)  # fmt: skip
