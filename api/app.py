"""make_app: every route in one table, and the parts that answer them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from aiohttp import web

from api import (
    convert,
    dashboard,
    docs,
    events,
    forecasts,
    health,
    incidents,
    job_changes,
    jobs,
    manifests,
    nodes,
    past,
    pods,
    queues,
    studies,
    telemetry,
)
from api.access import ACCESS, Access
from api.control import CONTROL, Control
from api.docs import OPENAPI, write_openapi
from api.door import REQUESTS_MAX, Door
from api.forecasts import FORECASTS, Forecaster
from api.forwarding import FORWARDER, Forwarder
from api.headers import TIME_HEADER
from api.jobs import CLUSTER
from api.metrics import METRICS, Metrics
from api.past import PAST, Past
from api.routes import Route
from api.stream import FEED, Feed, FeedLimits
from api.study_desk import DESK, Desk
from api.telemetry import HISTORY, TELEMETRY
from api.wire import BODIES, BODY_BYTES_MAX, BODY_S_MAX, Bodies
from controlplane.ports import Cluster, Telemetry, TelemetryHistory

Signal = Callable[[web.Request, web.StreamResponse], Awaitable[None]]

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *pods.ROUTES,
    *job_changes.ROUTES,
    *convert.ROUTES,
    *manifests.ROUTES,
    *nodes.ROUTES,
    *queues.ROUTES,
    *telemetry.ROUTES,
    *events.ROUTES,
    *past.ROUTES,
    *forecasts.ROUTES,
    *studies.ROUTES,
    *incidents.ROUTES,
    *health.ROUTES,
    *docs.ROUTES,
    *dashboard.ROUTES,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the outside may ask of the server at once."""

    requests_max: int = REQUESTS_MAX
    body_bytes_max: int = BODY_BYTES_MAX
    body_s_max: float = BODY_S_MAX
    feed: FeedLimits = field(default_factory=FeedLimits)


def make_app(
    control: Control,
    cluster: Cluster,
    access: Access | None = None,
    *,
    limits: Limits | None = None,
    now: Callable[[], float] | None = None,
    release: str = "0.1.0",
    more: tuple[Route, ...] = (),
    source: Telemetry | None = None,
    history: TelemetryHistory | None = None,
) -> web.Application:
    """The application. Without `access` it is for a server on a loopback address.

    `cluster` is asked for the lines that ranks wrote; `now` is the engine's clock, which every
    answer shows; `more` are routes of other rooms; `source` gives the readings of devices and links,
    and `history` those of the past.
    """
    limits = limits or Limits()
    routes = (*ROUTES, *more)
    door = Door(routes, requests_max=limits.requests_max)
    app = web.Application(middlewares=[door.enter], client_max_size=limits.body_bytes_max)
    app[CONTROL] = control
    app[CLUSTER] = cluster
    if source is not None:
        app[TELEMETRY] = source
    if history is not None:
        app[HISTORY] = history
    app[ACCESS] = access or Access()
    app[BODIES] = Bodies(wait_s_max=limits.body_s_max)
    app[FEED] = Feed(control.log, limits.feed)
    app[METRICS] = Metrics()
    app[PAST] = Past(control.log)
    app[OPENAPI] = write_openapi(routes, release=release)
    app[FORECASTS] = Forecaster(now)
    app[DESK] = Desk()
    app[FORWARDER] = Forwarder()
    control.listen(app[METRICS].record)
    control.listen(app[FORECASTS].record)
    control.listen(app[FEED].publish)
    control.on_skip(app[FEED].begin_at)
    for each in routes:
        app.router.add_route(each.method, each.path, each.handler)
        if each.method == "GET":
            app.router.add_route("HEAD", each.path, each.handler)
    if now is not None:
        app.on_response_prepare.append(_stamp(now))
    app.cleanup_ctx.append(_run_feed)
    app.on_shutdown.append(_close_feed)
    app.on_cleanup.append(_close_desk)
    app.on_cleanup.append(_close_forwarder)
    return app


def _stamp(now: Callable[[], float]) -> Signal:
    """Every answer carries the clock's time: a client cannot know it where time runs fast."""

    async def stamp(request: web.Request, response: web.StreamResponse) -> None:
        response.headers[TIME_HEADER] = f"{now():.3f}"

    return stamp


async def _run_feed(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[FEED].run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _close_feed(app: web.Application) -> None:
    app[FEED].close()


async def _close_forwarder(app: web.Application) -> None:
    await app[FORWARDER].close()


async def _close_desk(app: web.Application) -> None:
    await app[DESK].close()
