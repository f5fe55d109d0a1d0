"""Readings over HTTP: none where nothing measures, and jobs by their names."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.cluster.telemetry import HISTORY, TELEMETRY
from controlplane.model.errors import TelemetryUnavailable
from controlplane.ports import DeviceHistory, DeviceReading, LinkReading, Point, Window
from tests.api.stand_in import Server, native, pytorch


class Exporter:
    """Returns the same reading of one GPU every time."""

    def __init__(self, job: str) -> None:
        self.job = job

    async def devices(self) -> Sequence[DeviceReading]:
        return [DeviceReading("n0", 0, self.job, 0.9, 1000, 32768, 70.0, 280.0)]

    async def links(self) -> Sequence[LinkReading]:
        return [LinkReading("nic/n0", 0.25, 100.0)]


async def test_where_nothing_measures_there_are_no_readings(server: Server) -> None:
    assert await server.call("GET", "/v1/telemetry") == (
        200,
        {"devices": [], "links": [], "problem": ""},
    )


async def test_readings_name_the_job_that_holds_a_device(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    job = await server.engine_client.ask(lambda world: next(iter(world.jobs)))
    server.app._frozen = False
    server.app[TELEMETRY] = Exporter(job)
    status, seen = await server.call("GET", "/v1/telemetry")
    assert status == 200
    assert seen["devices"][0]["job"] == "default/train"
    assert seen["devices"][0]["duty"] == 0.9
    assert seen["links"] == [{"link": "nic/n0", "used": 0.25, "capacity_gbps": 100.0, "gbps": 25.0}]


class Recorder:
    """A past that a test knows."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fault: Exception | None = None

    async def of_node(self, node: str, window: Window) -> Sequence[DeviceHistory]:
        self.asked.append((node, window))
        return [DeviceHistory(node, 3, None, (Point(10.0, 0.5),))]

    async def of_pods(
        self, namespace: str, pods: Mapping[str, int], window: Window
    ) -> Sequence[DeviceHistory]:
        if self.fault is not None:
            raise self.fault
        self.asked.append((namespace, dict(pods), window))
        return [DeviceHistory("n0", 0, 1, (Point(10.0, 0.5, 1024, 60.0, 300.0), Point(20.0)))]


PAST = "/v1/telemetry/history"


async def test_the_past_of_a_job_is_asked_by_the_names_of_its_pods(server: Server) -> None:
    await server.call("POST", "/v1/jobs", pytorch("train", workers=1))
    server.app._frozen = False
    past = server.app[HISTORY] = Recorder()
    status, seen = await server.call("GET", f"{PAST}?job=team-a/train&last_s=600&points=7&until=99")
    assert status == 200
    pods = {"train-master-0": 0, "train-worker-0": 1}
    assert past.asked == [("team-a", pods, Window(600.0, 7, 99.0))]
    (only,) = seen["items"]
    assert (only["node"], only["device"], only["rank"]) == ("n0", 0, 1)
    assert only["points"][0] == {
        "at": 10.0,
        "duty": 0.5,
        "memory_used_mib": 1024,
        "temperature_c": 60.0,
        "power_w": 300.0,
    }
    assert only["points"][1]["duty"] is None
    status, seen = await server.call("GET", f"{PAST}?node=n9")
    assert past.asked[-1] == ("n9", Window(3600.0, 60, None))
    assert seen["items"][0]["node"] == "n9"


async def test_what_cannot_be_asked_of_the_past_is_refused(server: Server) -> None:
    status, body = await server.call("GET", f"{PAST}?node=n0")
    assert (status, body["code"]) == (404, "no_history")
    assert "--prometheus" in body["detail"]
    await server.call("POST", "/v1/jobs", native("train"))
    server.app._frozen = False
    past = server.app[HISTORY] = Recorder()
    for query in ("", "?job=a/b&node=n"):
        status, body = await server.call("GET", PAST + query)
        assert (status, body["code"]) == (400, "invalid_parameter")
    status, body = await server.call("GET", f"{PAST}?job=default/none")
    assert (status, body["code"]) == (404, "no_such_job")
    past.fault = TelemetryUnavailable("Prometheus at http://p: it did not answer within 5 s")
    status, body = await server.call("GET", f"{PAST}?job=default/train")
    assert (status, body["code"]) == (504, "telemetry_unavailable")
    assert "http://p" in body["detail"]


async def test_a_source_that_fails_leaves_the_lists_empty_and_reports_why(server: Server) -> None:
    class Away(Exporter):
        async def devices(self) -> Sequence[DeviceReading]:
            raise TelemetryUnavailable("Prometheus at http://p: connection refused")

    server.app._frozen = False
    server.app[TELEMETRY] = Away("")
    assert await server.call("GET", "/v1/telemetry") == (
        200,
        {"devices": [], "links": [], "problem": "Prometheus at http://p: connection refused"},
    )
