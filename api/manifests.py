"""A job as its own kind shows it: its manifest with status, and what each rank is told."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from api.jobs import ask_about, named
from api.routes import NoQuery, Route, answer, route
from controlplane.errors import Rejected
from controlplane.job import Job
from controlplane.kinds.kind import Told
from controlplane.kinds.registry import OWN, manifest_of, told_of
from controlplane.world import World


class ManifestQuery(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(max_length=200, description="`own`, `native`, or KIND/VERSION.")] = OWN


async def get_manifest(request: web.Request, query: ManifestQuery) -> web.Response:
    return answer(await ask_about(request, lambda _, job: manifest_of(job, query.to)))


class RankTold(Struct, frozen=True, kw_only=True):
    """What one rank is told: names, labels, environment, hosts, files."""

    namespace: str
    name: str
    rank: int
    told: Told


async def get_told(request: web.Request, query: NoQuery) -> web.Response:
    namespace, name = named(request)
    asked = request.match_info["rank"]

    def view(world: World, job: Job) -> RankTold:
        if not asked.isascii() or not asked.isdecimal() or int(asked) >= job.spec.size:
            told = f"{namespace}/{name} has the ranks 0 to {job.spec.size - 1}"
            raise Rejected("no_such_rank", told, field="rank")
        rank = int(asked)
        return RankTold(namespace=namespace, name=name, rank=rank, told=told_of(job, rank))

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
        "GET", f"{_JOB}/ranks/{{rank}}", get_told,
        "What one rank is told: names, labels, environment, hosts, files",
        query=NoQuery, answers={200: RankTold},
        problems=("no_such_job", "no_such_rank", "platform_error"),
    ),
)  # fmt: skip
