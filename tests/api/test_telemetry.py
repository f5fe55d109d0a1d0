"""Readings over HTTP: none where nothing measures, and jobs by their names."""

from collections.abc import Sequence

from api.telemetry import TELEMETRY
from controlplane.ports import DeviceReading, LinkReading
from tests.api.stand_in import Server, native


class Exporter:
    """Says the same of one GPU every time."""

    def __init__(self, job: str) -> None:
        self.job = job

    async def devices(self) -> Sequence[DeviceReading]:
        return [DeviceReading("n0", 0, self.job, 0.9, 1000, 32768, 70.0, 280.0)]

    async def links(self) -> Sequence[LinkReading]:
        return [LinkReading("nic/n0", 0.25, 100.0)]


async def test_where_nothing_measures_there_are_no_readings(server: Server) -> None:
    assert await server.call("GET", "/v1/telemetry") == (200, {"devices": [], "links": []})


async def test_readings_name_the_job_that_holds_a_device(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    job = await server.control.ask(lambda world: next(iter(world.jobs)))
    server.app._frozen = False
    server.app[TELEMETRY] = Exporter(job)
    status, seen = await server.call("GET", "/v1/telemetry")
    assert status == 200
    assert seen["devices"][0]["job"] == "default/train"
    assert seen["devices"][0]["duty"] == 0.9
    assert seen["links"] == [{"link": "nic/n0", "used": 0.25, "capacity_gbps": 100.0}]
