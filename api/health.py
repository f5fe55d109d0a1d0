"""Liveness, readiness and metrics."""

from aiohttp import web
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from api.engine.engine_client import ENGINE, EngineClient, ReplicaRole, Unavailable
from api.history.sse_feed import FEED
from api.metrics import METRICS, numbers_of
from api.requests.headers import HEADERS
from api.routes import NoQuery, Route, answer, route
from controlplane.queries.queries import first_quarantined

# The maximum number of quarantined jobs that an answer names.
QUARANTINED_MAX = 20


class Health(Struct, frozen=True):
    status: str


class Readiness(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the control plane can answer.

    `role` is leader, standby or taking over; `leader` is the leader's URL, if it is known.
    `quarantined` names the first jobs, as NAMESPACE/NAME, that stopped the control plane and were
    quarantined; it is left out when there are none.
    """

    status: str
    role: str
    leader: str
    position: int
    quarantined: list[str] = []


async def get_health(request: web.Request, query: NoQuery) -> web.Response:
    return answer(Health("alive"))


async def get_readiness(request: web.Request, query: NoQuery) -> web.Response:
    engine_client = request.app[ENGINE]
    return answer(await _readiness(engine_client))


async def get_leadership(request: web.Request, query: NoQuery) -> web.Response:
    engine_client = request.app[ENGINE]
    if not engine_client.leads:
        where = f"; {engine_client.leader} does" if engine_client.leader else ""
        raise Unavailable(f"this one does not lead{where}")
    return answer(await _readiness(engine_client))


async def _readiness(engine_client: EngineClient) -> Readiness:
    role = engine_client.role
    if engine_client.takes_over_from is not None and role is ReplicaRole.NEITHER:
        # Questions wait for the new leader, which needs only a short time.
        return Readiness(
            status="ready", role="taking over", leader="", position=engine_client.takes_over_from
        )
    if role is ReplicaRole.NEITHER:
        raise Unavailable("no engine leads here at the moment, and no log is followed")
    leader = engine_client.address if role is ReplicaRole.LEADER else engine_client.leader
    position, quarantined = await engine_client.ask(
        lambda world: (world.position, first_quarantined(world, QUARANTINED_MAX))
    )
    return Readiness(
        status="ready",
        role=role.value,
        leader=leader,
        position=position,
        quarantined=quarantined,
    )


async def get_metrics(request: web.Request, query: NoQuery) -> web.Response:
    app = request.app
    engine_client, feed, metrics = app[ENGINE], app[FEED], app[METRICS]
    try:
        numbers = await engine_client.ask(numbers_of)
    except Unavailable:
        numbers = None
    metrics.show(numbers, leads=engine_client.leads)
    metrics.show_server(
        watchers=feed.watchers, dropped=feed.dropped, commands=engine_client.commands_in_flight
    )
    return web.Response(
        body=metrics.text(), headers={**HEADERS, "Content-Type": CONTENT_TYPE_LATEST}
    )


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/healthz", get_health, "Whether the server runs",
        query=NoQuery, answers={200: Health}, is_open=True,
    ),
    route(
        "GET", "/readyz", get_readiness, "Whether it answers, as the leader or as a standby",
        query=NoQuery, answers={200: Readiness}, problems=("unavailable",), is_open=True,
    ),
    route(
        "GET", "/leaderz", get_leadership, "Whether this one leads",
        query=NoQuery, answers={200: Readiness}, problems=("unavailable",), is_open=True,
    ),
    route(
        "GET", "/metrics", get_metrics, "Numbers for Prometheus",
        query=NoQuery, answers={200: str}, media_types=("text/plain",),
    ),
)  # fmt: skip
