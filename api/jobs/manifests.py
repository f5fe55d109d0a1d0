"""A job in the form of its kind: its manifest with status, and the environment of each rank."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from api.jobs.jobs import CLUSTER, ask_about, named
from api.routes import NoQuery, Route, answer, route
from controlplane.kinds.kind import RankEnvironment
from controlplane.kinds.registry import OWN, manifest_of, rank_environment
from controlplane.lifecycle.job import Job
from controlplane.model.errors import Rejected
from controlplane.ports import addresses_of
from controlplane.state.world import World


class ManifestQuery(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(max_length=200, description="`own`, `native`, or KIND/VERSION.")] = OWN


async def get_manifest(request: web.Request, query: ManifestQuery) -> web.Response:
    return answer(await ask_about(request, lambda _, job: manifest_of(job, query.to)))


class RankEnv(Struct, frozen=True, kw_only=True):
    """The environment of one rank: names, labels, variables, hosts, files."""

    namespace: str
    name: str
    rank: int
    environment: RankEnvironment


async def get_rank_environment(request: web.Request, query: NoQuery) -> web.Response:
    namespace, name = named(request)
    asked, cluster = request.match_info["rank"], request.app[CLUSTER]

    def view(world: World, job: Job) -> RankEnv:
        if not asked.isascii() or not asked.isdecimal() or int(asked) >= job.spec.size:
            message = f"{namespace}/{name} has the ranks 0 to {job.spec.size - 1}"
            raise Rejected("no_such_rank", message, field="rank")
        rank = int(asked)
        environment = rank_environment(job, rank, addresses_of(cluster, job))
        return RankEnv(namespace=namespace, name=name, rank=rank, environment=environment)

    return answer(await ask_about(request, view))


_JOB = "/v1/jobs/{namespace}/{name}"

ROUTES: tuple[Route, ...] = (
    route(
        "GET", f"{_JOB}/manifest", get_manifest,
        "A job's manifest with every default spelt out, and its status as its kind shows it",
        query=ManifestQuery, answers={200: dict[str, Any]},
        problems=("no_such_job", "unknown_kind", "cannot_convert", "platform_error"),
    ),
    route(
        "GET", f"{_JOB}/ranks/{{rank}}", get_rank_environment,
        "The environment of one rank: names, labels, variables, hosts, files",
        query=NoQuery, answers={200: RankEnv},
        problems=("no_such_job", "no_such_rank", "platform_error"),
    ),
)  # fmt: skip
