"""Readings of devices and links over HTTP, from whatever gives them."""

from aiohttp import web
from msgspec import Struct

from api.control import CONTROL
from api.routes import NoQuery, Route, answer, route
from controlplane.ports import DeviceReading, Telemetry
from controlplane.queries import full_name
from controlplane.world import World

TELEMETRY = web.AppKey("telemetry", Telemetry)


class DeviceView(Struct, frozen=True, kw_only=True):
    """A GPU's counters. `job` is NAMESPACE/NAME of who holds it; empty when it is free."""

    node: str
    device: int
    job: str
    duty: float
    memory_used_mib: int
    memory_total_mib: int
    temperature_c: float
    power_w: float


class LinkView(Struct, frozen=True, kw_only=True):
    """`used` is the share of the capacity that is in use."""

    link: str
    used: float
    capacity_gbps: float


class TelemetryView(Struct, frozen=True, kw_only=True):
    """Both lists are empty where nothing measures."""

    devices: list[DeviceView]
    links: list[LinkView]


async def get_telemetry(request: web.Request, query: NoQuery) -> web.Response:
    source = request.app.get(TELEMETRY)
    if source is None:
        return answer(TelemetryView(devices=[], links=[]))
    devices, links = await source.devices(), await source.links()
    jobs = {reading.job for reading in devices if reading.job}
    names = await request.app[CONTROL].ask(lambda world: _names(world, jobs))
    return answer(
        TelemetryView(
            devices=[_view(reading, names) for reading in devices],
            links=[
                LinkView(link=r.link, used=round(r.used, 4), capacity_gbps=r.capacity_gbps)
                for r in links
            ],
        )
    )


def _names(world: World, jobs: set[str]) -> dict[str, str]:
    return {job: full_name(world.jobs[job]) for job in jobs if job in world.jobs}


def _view(reading: DeviceReading, names: dict[str, str]) -> DeviceView:
    return DeviceView(**(reading._asdict() | {"job": names.get(reading.job, reading.job)}))


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/telemetry", get_telemetry, "What GPUs and links report at this moment",
        query=NoQuery, answers={200: TelemetryView}, needs_leader=True,
    ),
)  # fmt: skip
