"""One change to many jobs over HTTP, with a result for each; and running a job once more."""

import asyncio
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import replace

from api.access import ACTOR
from api.engine.engine_client import ENGINE, EngineClient
from api.jobs.jobs import named, submission_answer
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.idempotency import HEADER, command_id, new_job_id
from api.routes import NoQuery, Route, answer, route
from controlplane.decisions.decider import find_job
from controlplane.model import commands as c
from controlplane.model.errors import Rejected
from controlplane.queries.views import JobDetail
from controlplane.state.world import World
from controlplane.workflows.dependencies import plain_name

JOBS_MAX = 1_000
# How many commands of one request are under way at a time, so that others get their turn.
AT_ONCE_MAX = 50
NAME_LENGTH_MAX = 63
_COUNTED = re.compile(r"^(.*)-rerun-(\d+)$")


class BulkAction(StrEnum):
    CANCEL = "cancel"
    SUSPEND = "suspend"
    RESUME = "resume"
    DELETE = "delete"
    AMEND = "amend"


class BulkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do, and to which jobs, named NAMESPACE/NAME; `queue` and `priority` are for `amend`."""

    action: BulkAction
    jobs: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=320)]],
        Meta(min_length=1, max_length=JOBS_MAX),
    ]
    queue: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    priority: Annotated[int, Meta(ge=-(10**9), le=10**9)] | None = None


class BulkResult(Struct, frozen=True, kw_only=True):
    """The result for one job: `code` and `message` are those of the problem, empty if it is done."""

    job: str
    done: bool
    code: str = ""
    message: str = ""


class BulkResults(Struct, frozen=True, kw_only=True):
    done: int
    refused: int
    items: list[BulkResult]


class RerunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of the new job; without one, a number is added to the old name."""

    name: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""


async def change_many(request: web.Request, query: NoQuery) -> web.Response:
    asked = convert(await request.app[BODIES].document(request), BulkRequest)
    key = command_id(request)
    turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(number: int, job: str) -> BulkResult:
        async with turns:
            common = {"id": f"{key}/{number}", "actor": request[ACTOR]}
            return await _changed(request.app[ENGINE], _command(asked, job, common), job)

    jobs = list(dict.fromkeys(asked.jobs))
    items = await asyncio.gather(*(one(number, job) for number, job in enumerate(jobs)))
    done = sum(item.done for item in items)
    return answer(BulkResults(done=done, refused=len(items) - done, items=list(items)))


def _command(asked: BulkRequest, job: str, common: dict[str, str]) -> c.Request:
    namespace, _, name = job.rpartition("/")
    whose = {**common, "namespace": namespace or "default", "name": plain_name(name)}
    if asked.action is BulkAction.AMEND:
        changes = {"queue": asked.queue, "priority": asked.priority}
        given = {field: value for field, value in changes.items() if value is not None}
        if not given:
            raise Rejected("invalid_body", "amend needs `queue` or `priority`", field="queue")
        return c.AmendJob(**whose, **given)  # type: ignore[arg-type]
    return _COMMANDS[asked.action](**whose)


_COMMANDS: dict[BulkAction, Callable[..., c.Request]] = {
    BulkAction.CANCEL: c.CancelJob,
    BulkAction.SUSPEND: c.SuspendJob,
    BulkAction.RESUME: c.ResumeJob,
    BulkAction.DELETE: c.DeleteJob,
}


async def _changed(engine_client: EngineClient, command: c.Request, job: str) -> BulkResult:
    try:
        await engine_client.submit(command)
    except Rejected as refusal:
        return BulkResult(job=job, done=False, code=refusal.code, message=refusal.message)
    return BulkResult(job=job, done=True)


async def rerun_job(request: web.Request, query: NoQuery) -> web.Response:
    """Submit a job with the spec of another one, which may have ended in any way."""
    asked = convert(await request.app[BODIES].document(request), RerunRequest)
    namespace, name = named(request)

    def ask(world: World) -> c.SubmitJob:
        job = find_job(world, namespace, name)
        if job.owner is not None:
            raise Rejected(
                "owned_job",
                f"{namespace}/{name} belongs to array {job.owner.name}; retry the index instead",
            )
        return c.SubmitJob(
            id=command_id(request),
            actor=request[ACTOR],
            job=new_job_id(),
            namespace=namespace,
            name=asked.name or next_name(world, namespace, name),
            # What it waited for has ended, or is gone.
            spec=replace(job.spec, after=()),
        )

    command = await request.app[ENGINE].ask(ask)
    return await submission_answer(request, command)


def next_name(world: World, namespace: str, name: str) -> str:
    """Return the name of the job's next run: NAME-rerun-1, NAME-rerun-2 and so on."""
    counted = _COUNTED.match(name)
    base, number = (counted[1], int(counted[2])) if counted else (name, 0)
    while True:
        number += 1
        suffix = f"-rerun-{number}"
        candidate = base[: NAME_LENGTH_MAX - len(suffix)] + suffix
        if world.job(namespace, candidate) is None:
            return candidate


ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/jobs/bulk", change_many,
        "Cancel, suspend, resume, delete or amend many jobs, with a result for each",
        query=NoQuery, body=BulkRequest, answers={200: BulkResults},
        problems=("invalid_body", *BODY_PROBLEMS), headers=(HEADER,),
    ),
    route(
        "POST", "/v1/jobs/{namespace}/{name}/rerun", rerun_job,
        "Submit a job once more under another name",
        query=NoQuery, body=RerunRequest, answers={201: JobDetail, 200: JobDetail},
        problems=("no_such_job", "is_array", "owned_job", "name_taken", "invalid_job",
                  "unknown_queue", "can_never_fit", "invalid_body", "idempotency_key_reused",
                  "platform_error", *BODY_PROBLEMS),
        headers=(HEADER,),
    ),
)  # fmt: skip
