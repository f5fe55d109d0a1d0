"""Manifests converted to another form: the native one, or another version of their kind."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from api.jobs.jobs import Manifest
from api.problems import concerning_only
from api.requests.bodies import BODIES, BODY_PROBLEMS
from api.requests.notices import notices
from api.routes import Route, answer, route
from controlplane.kinds.registry import convert_manifest


class ConvertQuery(Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[
        str,
        Meta(
            max_length=200,
            description="`native`, `own` (every default spelt out), or KIND/VERSION.",
        ),
    ] = "native"


async def convert_job(request: web.Request, query: ConvertQuery) -> web.Response:
    document = await request.app[BODIES].document(request)
    with concerning_only("this manifest"):
        converted, warnings = convert_manifest(document, query.to)
    return answer(converted, headers=notices(warnings))


ROUTES: tuple[Route, ...] = (
    route(
        "POST", "/v1/convert", convert_job,
        "A manifest in another form, with every default spelt out; nothing is stored",
        query=ConvertQuery, body=Manifest, answers={200: dict[str, Any]}, needs_leader=False,
        problems=("invalid_manifest", "unknown_kind", "cannot_convert", "platform_error", *BODY_PROBLEMS),
    ),
)  # fmt: skip
