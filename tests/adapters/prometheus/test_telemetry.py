"""Readings from a Prometheus: names, units, whose they are, the past, and servers that fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.prometheus import PrometheusTelemetry
from adapters.prometheus import telemetry as t
from controlplane.model.errors import TelemetryUnavailable
from controlplane.ports import DeviceReading, Point, Window
from tests.fake_prometheus import FakePrometheus

PODS = {("team", "train-worker-0"): ("j1", 0), ("team", "train-worker-1"): ("j1", 1)}


@asynccontextmanager
async def asked(fake: FakePrometheus, **options: Any) -> AsyncIterator[PrometheusTelemetry]:
    runner = web.AppRunner(fake.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"

    async def pods() -> Any:
        return PODS

    source = PrometheusTelemetry(
        url, pods=pods, clock=AsyncioClock(start=fake.now), **{"token": "", **options}
    )
    try:
        yield source
    finally:
        await source.close()
        await runner.cleanup()


def dcgm(fake: FakePrometheus, *, gpu: int = 0, node: str = "node-a", pod: str = "", **values: Any):
    labels = {"gpu": str(gpu), "device": f"nvidia{gpu}", "Hostname": node, "UUID": f"GPU-{gpu}"}
    if pod:
        labels |= {"namespace": "team", "pod": pod, "container": "main"}
    for name, value in values.items():
        fake.add(f"DCGM_FI_{name}", value, **labels)


async def test_dcgm_counters_become_readings_of_ranks():
    fake = FakePrometheus()
    dcgm(fake, pod="train-worker-1", DEV_GPU_UTIL=97, DEV_FB_USED=61_440, DEV_FB_FREE=20_480,
         DEV_GPU_TEMP=66, DEV_POWER_USAGE=412.348)  # fmt: skip
    dcgm(fake, gpu=1, DEV_GPU_UTIL=0, DEV_FB_USED=3, DEV_FB_FREE=81_917)
    fake.add("up", 1, instance="elsewhere:9400")
    async with asked(fake) as source:
        assert await source.devices() == [
            DeviceReading("node-a", 0, "j1", 0.97, 61_440, 81_920, 66.0, 412.3, 1),
            DeviceReading("node-a", 1, "", 0.0, 3, 81_920, 0.0, 0.0, None),
        ]


async def test_the_older_names_and_units_are_taken_too():
    fake = FakePrometheus()
    labels = {
        "minor_number": "3",
        "node_name": "cn-1",
        "namespace_name": "team",
        "pod_name": "train-worker-0",
    }
    fake.add("nvidia_gpu_duty_cycle", 50, **labels)
    fake.add("nvidia_gpu_memory_used_bytes", 2**30, **labels)
    fake.add("nvidia_gpu_memory_total_bytes", 16 * 2**30, **labels)
    fake.add("nvidia_gpu_power_usage_milliwatts", 250_000, **labels)
    fake.add("nvidia_gpu_temperature_celsius", 70, **labels)
    async with asked(fake) as source:
        assert await source.devices() == [
            DeviceReading("cn-1", 3, "j1", 0.5, 1024, 16_384, 70.0, 250.0, 0)
        ]


async def test_renamed_labels_are_recognised_and_the_exporter_is_not_taken_for_a_rank():
    fake = FakePrometheus()
    scraped = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x", "instance": "10.0.0.7:9400"}
    fake.add("DCGM_FI_DEV_GPU_UTIL", 10, gpu="0", exported_namespace="team", exported_pod="train-worker-0", **scraped)  # fmt: skip
    async with asked(fake) as source:
        (reading,) = await source.devices()
        assert (reading.node, reading.job, reading.rank) == ("10.0.0.7", "j1", 0)


async def test_a_device_that_is_reported_twice_is_one_device():
    fake = FakePrometheus()
    for pod in ("train-worker-1", "train-worker-0"):
        dcgm(fake, pod=pod, PROF_GR_ENGINE_ACTIVE=0.31, DEV_GPU_UTIL=40, DEV_POWER_USAGE=100)
    fake.add("nvidia_gpu_duty_cycle", 99, minor_number="0", node="node-a")
    async with asked(fake) as source:
        (reading,) = await source.devices()
        assert (reading.duty, reading.power_w, reading.rank) == (0.4, 100.0, 0)


async def test_numbers_that_are_none_are_left_out():
    fake = FakePrometheus()
    dcgm(fake, DEV_GPU_UTIL=float("nan"), DEV_FB_USED=9_223_372_036_854_775_794.0, DEV_GPU_TEMP=50)
    fake.add("DCGM_FI_DEV_GPU_UTIL", 5)
    async with asked(fake) as source:
        assert await source.devices() == [
            DeviceReading("node-a", 0, "", 0.0, 0, 0, 50.0, 0.0, None)
        ]


async def test_links_report_their_traffic():
    fake = FakePrometheus()
    dcgm(fake, PROF_NVLINK_TX_BYTES=1e9, PROF_NVLINK_RX_BYTES=2e9, PROF_PCIE_RX_BYTES=5e8)
    async with asked(fake) as source:
        assert [(r.link, r.gbps) for r in await source.links()] == [
            ("nvlink/node-a/0", 24.0),
            ("pcie/node-a/0", 4.0),
        ]


async def test_the_past_of_a_job_is_that_of_its_pods_and_of_no_others():
    fake = FakePrometheus()

    def ramp(at: float) -> float:
        return float("nan") if at > fake.now - 60 else (at - fake.now + 600) / 6

    dcgm(fake, pod="train-worker-0", DEV_GPU_UTIL=ramp, DEV_FB_USED=1024)
    dcgm(fake, gpu=1, pod="train-worker-1", DEV_GPU_UTIL=50)
    dcgm(fake, gpu=2, pod="train-worker-10", DEV_GPU_UTIL=51)
    fake.add("DCGM_FI_DEV_GPU_UTIL", 52, gpu="3", Hostname="node-a", namespace="other", pod="train-worker-0")  # fmt: skip
    async with asked(fake) as source:
        pods = {"train-worker-0": 0, "train-worker-1": 1}
        first, second = await source.of_pods("team", pods, Window(600.0, 10, until=fake.now))
        assert (first.node, first.device, first.rank) == ("node-a", 0, 0)
        assert first.points[0] == Point(fake.now - 600, 0.0, 1024, None, None)
        assert first.points[5] == Point(fake.now - 300, 0.5, 1024, None, None)
        assert first.points[-1].duty is None
        assert {point.duty for point in second.points} == {0.5}
        assert await source.of_pods("team", {}, Window(600.0, 10)) == []


async def test_the_past_of_a_node_under_every_label_name():
    fake = FakePrometheus()
    dcgm(fake, node="a.b", DEV_GPU_UTIL=50)
    dcgm(fake, node="aXb", DEV_GPU_UTIL=51)
    fake.add("DCGM_FI_DEV_GPU_UTIL", 52, gpu="1", instance="a.b:9400")
    async with asked(fake) as source:
        series = await source.of_node("a.b", Window(60.0, 2))
        assert [(each.node, each.device, each.points[0].duty) for each in series] == [
            ("a.b", 0, 0.5),
            ("a.b", 1, 0.52),
        ]


async def test_names_cannot_break_out_of_the_question():
    fake = FakePrometheus()
    dcgm(fake, node="n", DEV_GPU_UTIL=50)
    async with asked(fake) as source:
        for node in ('x"} or {__name__=~".*', ".*", "n|m", "a\\b"):
            assert await source.of_node(node, Window(60.0, 2)) == []


async def test_concurrent_callers_share_one_query():
    fake = FakePrometheus()
    dcgm(fake, DEV_GPU_UTIL=50)
    async with asked(fake) as source:
        await asyncio.gather(*(source.devices() for _ in range(20)), source.links())
        assert [what for what, _ in fake.asked] == ["query"]


async def test_a_token_is_sent_and_a_wrong_one_is_reported():
    fake = FakePrometheus()
    fake.token = "secret"
    async with asked(fake, token="secret") as source:
        assert await source.devices() == []
    async with asked(fake, token="wrong") as source:
        with pytest.raises(TelemetryUnavailable, match="401 Unauthorized, and not as a Prometheus"):
            await source.devices()


async def test_a_refused_question_reports_why():
    async with asked(FakePrometheus()) as source:
        with pytest.raises(TelemetryUnavailable, match="refused the question: exceeded 11,000"):
            await source.of_node("n", Window(60_000.0, 20_000))


async def test_a_server_that_hangs_is_given_up_and_then_left_alone(monkeypatch):
    monkeypatch.setattr(t, "ANSWER_S_MAX", 0.05)
    fake = FakePrometheus()

    async def hang() -> None:
        await asyncio.sleep(60)

    fake.fault = hang
    async with asked(fake) as source:
        with pytest.raises(TelemetryUnavailable, match=r"did not answer within 0\.05 s"):
            await source.devices()
        for _ in range(5):
            with pytest.raises(TelemetryUnavailable):
                await source.of_node("n", Window(60.0, 2))
        assert len(fake.asked) == 1
        fake.fault = None
        source._paused_until = 0.0
        assert await source.devices() == []


async def test_a_server_that_is_not_there_is_named_without_its_password(unused_tcp_port: int):
    async def pods() -> Any:
        return {}

    url = f"http://user:secret@127.0.0.1:{unused_tcp_port}"
    source = PrometheusTelemetry(url, pods=pods, clock=AsyncioClock())
    with pytest.raises(TelemetryUnavailable) as error:
        await source.devices()
    assert f"Prometheus at http://127.0.0.1:{unused_tcp_port}:" in str(error.value)
    assert "secret" not in str(error.value)
    await source.close()


async def test_an_answer_that_is_not_from_prometheus_is_reported():
    fake = FakePrometheus()

    async def cut() -> None:
        raise web.HTTPBadGateway(text="<html>")

    fake.fault = cut
    async with asked(fake) as source, aiohttp.ClientSession():
        with pytest.raises(TelemetryUnavailable, match="502 Bad Gateway"):
            await source.devices()
