"""Is it alive, is it ready, and what are its numbers."""

from aiohttp import web
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from api.control import CONTROL, Control, Role, Unavailable
from api.headers import HEADERS
from api.metrics import METRICS, numbers_of
from api.routes import NoQuery, Route, answer, route
from api.stream import FEED
from controlplane.queries import first_quarantined

# At most so many quarantined jobs are named.
QUARANTINED_MAX = 20


class Health(Struct, frozen=True):
    status: str


class Readiness(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`role` is leader, standby or taking over; `leader` is where the leader answers, if that is known.

    `quarantined` are the first jobs, as NAMESPACE/NAME, that stopped the control plane and were set
    aside; it is left out when there are none.
    """

    status: str
    role: str
    leader: str
    position: int
    quarantined: list[str] = []


async def get_health(request: web.Request, query: NoQuery) -> web.Response:
    return answer(Health("alive"))


async def get_readiness(request: web.Request, query: NoQuery) -> web.Response:
    control = request.app[CONTROL]
    return answer(await _readiness(control))


async def get_leadership(request: web.Request, query: NoQuery) -> web.Response:
    control = request.app[CONTROL]
    if not control.leads:
        where = f"; {control.leader} does" if control.leader else ""
        raise Unavailable(f"this one does not lead{where}")
    return answer(await _readiness(control))


async def _readiness(control: Control) -> Readiness:
    role = control.role
    if control.takes_over_from is not None and role is Role.NEITHER:
        # Questions wait for the new leader, and it will not be long.
        return Readiness(
            status="ready", role="taking over", leader="", position=control.takes_over_from
        )
    if role is Role.NEITHER:
        raise Unavailable("no engine leads here at the moment, and no log is followed")
    leader = control.address if role is Role.LEADER else control.leader
    position, quarantined = await control.ask(
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
    control, feed, metrics = app[CONTROL], app[FEED], app[METRICS]
    try:
        numbers = await control.ask(numbers_of)
    except Unavailable:
        numbers = None
    metrics.show(numbers, leads=control.leads)
    metrics.show_server(
        watchers=feed.watchers, dropped=feed.dropped, commands=control.commands_in_flight
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
