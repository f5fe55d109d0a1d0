"""Is it alive, is it ready, and what are its numbers."""

from aiohttp import web
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from api.control import CONTROL, Unavailable
from api.metrics import METRICS, numbers_of
from api.routes import HEADERS, NoQuery, Route, answer, route
from api.stream import FEED


class Health(Struct, frozen=True):
    status: str


async def get_health(request: web.Request, query: NoQuery) -> web.Response:
    return answer(Health("alive"))


async def get_readiness(request: web.Request, query: NoQuery) -> web.Response:
    if not request.app[CONTROL].leads:
        raise Unavailable("no engine leads here at the moment")
    return answer(Health("ready"))


async def get_metrics(request: web.Request, query: NoQuery) -> web.Response:
    app = request.app
    control, feed, metrics = app[CONTROL], app[FEED], app[METRICS]
    try:
        numbers = await control.ask(numbers_of)
    except Unavailable:
        numbers = None
    metrics.show(numbers)
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
        "GET", "/readyz", get_readiness, "Whether an engine leads here and takes commands",
        query=NoQuery, answers={200: Health}, problems=("unavailable",), is_open=True,
    ),
    route(
        "GET", "/metrics", get_metrics, "Numbers for Prometheus",
        query=NoQuery, answers={200: str}, media_types=("text/plain",),
    ),
)  # fmt: skip
