"""The location of a rank's pod, and its log as it is written, for clusters that have pods."""

from contextlib import aclosing
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from api.engine.engine_client import ENGINE
from api.jobs.jobs import CLUSTER, check_container, named
from api.problems import concerning_only
from api.requests.headers import HEADERS
from api.routes import Route, answer, route
from controlplane.decisions.decider import find_job
from controlplane.lifecycle.job import Job
from controlplane.model.errors import Rejected
from controlplane.ports import RankConsole, RankConsoles, RankLogs


class PlaceQuery(Struct, frozen=True, forbid_unknown_fields=True):
    rank: Annotated[int, Meta(ge=0, le=9_999, description="Whose pod.")] = 0


class FollowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    rank: Annotated[int, Meta(ge=0, le=9_999, description="Whose lines.")] = 0
    tail: Annotated[int, Meta(ge=1, le=10_000, description="How many lines at first.")] = 100
    container: Annotated[
        str, Meta(max_length=253, description="Of this container; none: the one that speaks.")
    ] = ""


class Place(Struct, frozen=True, kw_only=True):
    """The location of a rank's pod. `cluster` is the API server's URL."""

    cluster: str
    namespace: str
    pod: str
    container: str
    node: str


async def get_place(request: web.Request, query: PlaceQuery) -> web.Response:
    job = await _job(request, query.rank)
    cluster = request.app[CLUSTER]
    if not isinstance(cluster, RankConsoles):
        raise _no_pods()
    console = _console(cluster, job, query.rank)
    if console is None:
        raise _not_there(job, query.rank)
    return answer(Place(**console._asdict()))


async def follow_logs(request: web.Request, query: FollowQuery) -> web.StreamResponse:
    job = await _job(request, query.rank)
    cluster = request.app[CLUSTER]
    if not isinstance(cluster, RankLogs):
        raise _no_pods()
    with concerning_only(_pod_in_words(job, query.rank)):
        following = cluster.follow(job, query.rank, query.tail, query.container)
        if following is None:
            raise _not_there(job, query.rank)
        await check_container(cluster, job, query.rank, query.container)
    response = web.StreamResponse(headers=HEADERS)
    response.content_type = "text/plain"
    response.charset = "utf-8"
    await response.prepare(request)
    async with aclosing(following) as lines:  # type: ignore[type-var]
        async for line in lines:
            await response.write(line.encode() + b"\n")
    return response


async def _job(request: web.Request, rank: int) -> Job:
    """Return the job of the request; raise Rejected if it has no such rank."""
    namespace, name = named(request)
    job = await request.app[ENGINE].ask(lambda world: find_job(world, namespace, name))
    ranks = job.spec.size if job.attempt is None else len(job.attempt.ranks)
    if rank >= ranks:
        message = f"{namespace}/{name} has the ranks 0 to {ranks - 1}"
        raise Rejected("no_such_rank", message, field="rank")
    return job


def _console(cluster: RankConsoles, job: Job, rank: int) -> RankConsole | None:
    with concerning_only(_pod_in_words(job, rank)):
        return cluster.console(job, rank)


def _no_pods() -> Rejected:
    message = "this server's cluster is simulated: a rank is a number in a model, without a pod"
    return Rejected("no_pods", message)


def _pod_in_words(job: Job, rank: int) -> str:
    return f"the pod of rank {rank} of {job.namespace}/{job.name}"


def _not_there(job: Job, rank: int) -> Rejected:
    name = job.spec.rank_name(rank) if rank < job.spec.size else f"rank {rank}"
    return Rejected("not_there", f"{name} of {job.namespace}/{job.name} has no pod now")


_JOB = "/v1/jobs/{namespace}/{name}"
_PROBLEMS = (
    "no_such_job",
    "no_such_rank",
    "no_pods",
    "not_there",
    "invalid_parameter",
    "platform_error",
)

ROUTES: tuple[Route, ...] = (
    route(
        "GET", f"{_JOB}/place", get_place, "Where a rank's pod is",
        query=PlaceQuery, answers={200: Place}, problems=_PROBLEMS, needs_leader=True,
    ),
    route(
        "GET", f"{_JOB}/logs/follow", follow_logs, "The lines of a rank as it writes them",
        query=FollowQuery, answers={200: str}, media_types=("text/plain",),
        problems=(*_PROBLEMS, "no_such_container"),
        needs_leader=True,
    ),
)  # fmt: skip
