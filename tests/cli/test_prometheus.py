"""`muster top` with counters from a Prometheus, by a real server."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.cli.conftest import Muster, server_thread
from tests.fake_prometheus import FakePrometheus


@pytest.fixture
def prometheus() -> Iterator[tuple[FakePrometheus, str]]:
    fake, ready, urls = FakePrometheus(), threading.Event(), list[str]()

    async def serve() -> None:
        runner = web.AppRunner(fake.app(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        ready.set()
        await asyncio.to_thread(over.wait)
        await runner.cleanup()

    over = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    yield fake, urls[0]
    over.set()
    thread.join(10)


def test_top_shows_counters_of_ranks_now_and_over_a_while(
    prometheus: tuple[FakePrometheus, str], muster: Muster, manifest: Callable[..., Path]
) -> None:
    fake, address = prometheus
    labels = {"Hostname": "node-0-0", "namespace": "default", "pod": "train-worker-1"}
    for gpu, duty in ((0, 20), (1, 90)):
        fake.add("DCGM_FI_DEV_GPU_UTIL", duty, gpu=str(gpu), **labels)
        fake.add("DCGM_FI_DEV_FB_USED", 2048, gpu=str(gpu), **labels)
        fake.add("DCGM_FI_DEV_FB_FREE", 6144, gpu=str(gpu), **labels)
    with server_thread(prometheus=address) as url:
        assert muster("submit", manifest("train", replicas=2, gpus=1, duration_s=1e6), "--url", url).code == 0  # fmt: skip
        row = muster("top", "job", "--url", url).out.splitlines()[1].split()
        assert "55%" in row
        assert "4/16G" in row
        rows = [x.split() for x in muster("top", "job", "train", "--url", url).out.splitlines()]
        assert rows[0][:4] == ["RANK", "NODE", "GPU", "DUTY"]
        assert [row[:5] for row in rows[1:]] == [
            ["1", "node-0-0", "0", "20%", "2.0/8G"],
            ["1", "node-0-0", "1", "90%", "2.0/8G"],
        ]
        past = muster("top", "job", "train", "--last", "1h", "--url", url).out.splitlines()
        assert past[1].split()[:6] == ["1", "node-0-0", "0", "20%", "20%", "2.0G"]
        assert set(past[1].split()[-1]) == {"▂"}
        assert set(past[2].split()[-1]) == {"█"}
        ran = muster("top", "node", "node-0-0", "--last", "10m", "-o", "json", "--url", url)
        assert [item["device"] for item in ran.json["items"]] == [0, 1]
        ran = muster("top", "node", "--last", "10m", "--url", url)
        assert (ran.code, "--last needs the name" in ran.err) == (2, True)
        assert muster("top", "job", "none", "--last", "1h", "--url", url).code == 102


def test_a_prometheus_that_is_away_is_named_and_nothing_else_suffers(
    unused_tcp_port: int, muster: Muster, manifest: Callable[..., Path]
) -> None:
    address = f"http://127.0.0.1:{unused_tcp_port}"
    with server_thread(prometheus=address) as url:
        ran = muster("top", "node", "--url", url)
        assert ran.code == 0
        assert "8 nodes" in ran.out or "64" in ran.out
        assert f"note: Prometheus at {address}" in ran.err
        ran = muster("top", "node", "node-0-0", "--last", "1h", "--url", url)
        assert ran.code == 1
        assert address in ran.err
