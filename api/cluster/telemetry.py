"""Readings of devices and links over HTTP, current and past, from a telemetry source."""

from typing import Annotated, NamedTuple

from aiohttp import web
from msgspec import Meta, Struct

from api.cluster.telemetry_views import (
    DeviceView,
    HistoryList,
    HistoryView,
    LinkView,
    PointView,
    SharerView,
    TelemetryView,
)
from api.engine.engine_client import ENGINE
from api.problems import concerning_only
from api.routes import NoQuery, Route, answer, route
from controlplane.decisions.decider import find_job
from controlplane.kinds.kind import GangContext
from controlplane.kinds.registry import kind_of
from controlplane.model.errors import Rejected, TelemetryUnavailable
from controlplane.ports import DeviceReading, Telemetry, TelemetryHistory, Window
from controlplane.queries.queries import full_name
from controlplane.state.world import World

TELEMETRY = web.AppKey("telemetry", Telemetry)
HISTORY = web.AppKey("telemetry_history", TelemetryHistory)


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    job: Annotated[str, Meta(max_length=200, description="Of this job: NAMESPACE/NAME.")] = ""
    node: Annotated[str, Meta(max_length=253, description="Of this node.")] = ""
    last_s: Annotated[float, Meta(gt=0, le=31_536_000, description="How far back.")] = 3_600.0
    points: Annotated[int, Meta(ge=1, le=1_000, description="At most how many points.")] = 60
    until: Annotated[float, Meta(ge=0, description="Up to when; now, if it is 0.")] = 0.0


async def get_telemetry(request: web.Request, query: NoQuery) -> web.Response:
    source = request.app.get(TELEMETRY)
    if source is None:
        return answer(TelemetryView(devices=[], links=[]))
    try:
        with concerning_only("the readings of devices"):
            devices, links = await source.devices(), await source.links()
    except (TelemetryUnavailable, Rejected) as error:
        return answer(TelemetryView(devices=[], links=[], problem=str(error)))
    jobs = {reading.job for reading in devices if reading.job}
    jobs |= {sharer.job for reading in devices for sharer in reading.sharers}
    names = await request.app[ENGINE].ask(lambda world: _names(world, jobs))
    return answer(
        TelemetryView(
            devices=[_view(reading, names) for reading in devices],
            links=[
                LinkView(
                    link=r.link,
                    used=round(r.used, 4),
                    capacity_gbps=r.capacity_gbps,
                    gbps=round(r.gbps or r.used * r.capacity_gbps, 3),
                )
                for r in links
            ],
        )
    )


def _names(world: World, jobs: set[str]) -> dict[str, str]:
    return {job: full_name(world.jobs[job]) for job in jobs if job in world.jobs}


def _view(reading: DeviceReading, names: dict[str, str]) -> DeviceView:
    sharers = [
        SharerView(**(sharer._asdict() | {"job": names.get(sharer.job, sharer.job)}))
        for sharer in reading.sharers
    ]
    job = names.get(reading.job, reading.job)
    return DeviceView(**(reading._asdict() | {"job": job, "sharers": sharers}))


# ---------------------------------------------------------------- the past


class _Pods(NamedTuple):
    """A job's pods by name, each with its rank."""

    namespace: str
    ranks: dict[str, int]


async def get_history(request: web.Request, query: HistoryQuery) -> web.Response:
    source = request.app.get(HISTORY)
    if source is None:
        message = "nothing here keeps what was measured; start the server with --prometheus URL"
        raise Rejected("no_history", message)
    if bool(query.job) == bool(query.node):
        raise Rejected("invalid_parameter", "name a job or a node, and not both", field="job")
    window = Window(query.last_s, query.points, query.until or None)
    try:
        if query.node:
            with concerning_only(f"the readings of node {query.node}"):
                devices = await source.of_node(query.node, window)
        else:
            pods = await request.app[ENGINE].ask(lambda world: _pods(world, query.job))
            with concerning_only(f"the readings of {query.job}"):
                devices = await source.of_pods(pods.namespace, pods.ranks, window)
    except TelemetryUnavailable as error:
        raise Rejected("telemetry_unavailable", str(error)) from None
    items = [
        HistoryView(
            node=each.node,
            device=each.device,
            rank=each.rank,
            points=[PointView(**point._asdict()) for point in each.points],
        )
        for each in devices
    ]
    return answer(HistoryList(items=items))


def _pods(world: World, name: str) -> _Pods:
    namespace, slash, short = name.rpartition("/")
    job = find_job(world, namespace if slash else "default", short)
    with concerning_only(f"the names of the pods of {job.namespace}/{job.name}"):
        environment_of = kind_of(job.spec).environments(
            GangContext(job.namespace, job.name, job.spec)
        )
        return _Pods(
            job.namespace, {environment_of(rank).name: rank for rank in range(job.spec.size)}
        )


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/telemetry", get_telemetry, "What GPUs and links report at this moment",
        query=NoQuery, answers={200: TelemetryView}, needs_leader=True,
    ),
    route(
        "GET", "/v1/telemetry/history", get_history, "What GPUs of a job or a node reported before",
        query=HistoryQuery, answers={200: HistoryList},
        problems=("no_history", "no_such_job", "invalid_parameter", "telemetry_unavailable",
                  "platform_error"),
    ),
)  # fmt: skip
