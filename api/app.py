"""make_app: every route in one table, and the components that answer them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from api import dashboard, docs, health
from api.access import ACCESS, Access
from api.cluster import about as about_cluster
from api.cluster import faults, line, nodes, queues, telemetry
from api.cluster.about import ABOUT, AboutCluster
from api.cluster.line import LINES
from api.cluster.telemetry import HISTORY, TELEMETRY
from api.docs import OPENAPI, write_openapi
from api.engine.engine_client import ENGINE, EngineClient
from api.engine.leader_proxy import FORWARDER, Forwarder
from api.history import (
    annotations,
    events,
    history,
    incident_report,
    incidents,
    past,
    story,
    timeline,
)
from api.history.annotations import ANNOTATIONS, AnnotationBook
from api.history.answer_cache import ANSWERS, AnswerCache
from api.history.history_index import HISTORY_FOLLOWER, HistoryFollower
from api.history.past import PAST, Past
from api.history.past_worlds import PAST_WORLDS, PastWorlds
from api.history.sse_feed import FEED, Feed, FeedLimits
from api.jobs import bulk, convert, job_changes, job_counts, jobs, manifests, pods
from api.jobs.jobs import CLUSTER
from api.metrics import METRICS, Metrics
from api.middleware import REQUESTS_MAX, Gatekeeper
from api.requests.bodies import BODIES, BODY_BYTES_MAX, BODY_S_MAX, Bodies
from api.requests.headers import TIME_HEADER
from api.routes import Route
from api.studies import forecasts, forks, outlooks, studies
from api.studies.forecasts import FORECASTS, Forecaster
from api.studies.outlooks import OUTLOOKS, OutlookKeeper
from api.studies.previews import PREVIEWS, Previewer
from api.studies.study_runner import STUDY_RUNNER, StudyRunner
from controlplane.ports import Cluster, Telemetry, TelemetryHistory

Signal = Callable[[web.Request, web.StreamResponse], Awaitable[None]]

ROUTES: tuple[Route, ...] = (
    *bulk.ROUTES,
    *jobs.ROUTES,
    *pods.ROUTES,
    *job_changes.ROUTES,
    *job_counts.ROUTES,
    *convert.ROUTES,
    *manifests.ROUTES,
    *about_cluster.ROUTES,
    *nodes.ROUTES,
    *faults.ROUTES,
    *line.ROUTES,
    *queues.ROUTES,
    *telemetry.ROUTES,
    *events.ROUTES,
    *story.ROUTES,
    *past.ROUTES,
    *history.ROUTES,
    *timeline.ROUTES,
    *forecasts.ROUTES,
    *outlooks.ROUTES,
    *studies.ROUTES,
    *forks.ROUTES,
    *incidents.ROUTES,
    *incident_report.ROUTES,
    *annotations.ROUTES,
    *health.ROUTES,
    *docs.ROUTES,
    *dashboard.ROUTES,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what clients may ask of the server at once."""

    requests_max: int = REQUESTS_MAX
    body_bytes_max: int = BODY_BYTES_MAX
    body_s_max: float = BODY_S_MAX
    feed: FeedLimits = field(default_factory=FeedLimits)


def make_app(
    engine_client: EngineClient,
    cluster: Cluster,
    access: Access | None = None,
    *,
    limits: Limits | None = None,
    now: Callable[[], float] | None = None,
    release: str = "0.1.0",
    more: tuple[Route, ...] = (),
    source: Telemetry | None = None,
    history: TelemetryHistory | None = None,
    about: AboutCluster | None = None,
) -> web.Application:
    """Build the application. Without `access` it suits only a server on a loopback address.

    `cluster` returns the log lines of ranks; `now` is the engine's clock, whose time every answer
    carries; `more` are additional routes; `source` supplies current readings of devices and links,
    and `history` those of the past; `about` says what kind of cluster it is.
    """
    limits = limits or Limits()
    routes = (*ROUTES, *more)
    gatekeeper = Gatekeeper(routes, requests_max=limits.requests_max)
    app = web.Application(middlewares=[gatekeeper.enter], client_max_size=limits.body_bytes_max)
    app[ENGINE] = engine_client
    app[CLUSTER] = cluster
    if source is not None:
        app[TELEMETRY] = source
    if history is not None:
        app[HISTORY] = history
    app[ABOUT] = about or AboutCluster(release=release)
    app[ACCESS] = access or Access()
    app[BODIES] = Bodies(wait_s_max=limits.body_s_max)
    app[FEED] = Feed(engine_client.log, limits.feed)
    app[METRICS] = Metrics()
    app[PAST] = Past(engine_client.log)
    app[HISTORY_FOLLOWER] = HistoryFollower(engine_client.log, now)
    app[PAST_WORLDS] = PastWorlds(engine_client.log, app[HISTORY_FOLLOWER])
    app[OPENAPI] = write_openapi(routes, release=release)
    app[FORECASTS] = Forecaster(now)
    app[OUTLOOKS] = OutlookKeeper()
    app[PREVIEWS] = Previewer()
    app[ANSWERS] = AnswerCache()
    app[LINES] = AnswerCache(fresh_s=line.FRESH_S)
    app[STUDY_RUNNER] = StudyRunner()
    app[FORWARDER] = Forwarder()
    app[ANNOTATIONS] = AnnotationBook()
    engine_client.listen(app[METRICS].record)
    engine_client.listen(app[FORECASTS].record)
    engine_client.listen(faults.injector(cluster))
    engine_client.listen(app[HISTORY_FOLLOWER].record)
    engine_client.listen(app[FEED].publish)
    engine_client.on_skip(app[FEED].begin_at)
    for each in routes:
        app.router.add_route(each.method, each.path, each.handler)
        if each.method == "GET":
            app.router.add_route("HEAD", each.path, each.handler)
    if now is not None:
        app.on_response_prepare.append(_stamp(now))
    app.cleanup_ctx.append(_run_feed)
    app.cleanup_ctx.append(_run_history)
    app.on_shutdown.append(_close_feed)
    app.on_cleanup.append(_close_desk)
    app.on_cleanup.append(_close_forwarder)
    return app


def _stamp(now: Callable[[], float]) -> Signal:
    """Return a signal that adds the clock's time to every answer.

    A client cannot know that time where the clock runs faster than real time.
    """

    async def stamp(request: web.Request, response: web.StreamResponse) -> None:
        response.headers[TIME_HEADER] = f"{now():.3f}"

    return stamp


async def _run_feed(app: web.Application) -> AsyncIterator[None]:
    async with _in_background(app[FEED].run()):
        yield


async def _run_history(app: web.Application) -> AsyncIterator[None]:
    async with _in_background(app[HISTORY_FOLLOWER].run()):
        yield


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` until the block ends."""
    task = asyncio.create_task(work)
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _close_feed(app: web.Application) -> None:
    app[FEED].close()


async def _close_forwarder(app: web.Application) -> None:
    await app[FORWARDER].close()


async def _close_desk(app: web.Application) -> None:
    await app[STUDY_RUNNER].close()
