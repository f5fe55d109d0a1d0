"""Submissions over loopback from 64 clients, each durable before its answer; and where time goes.

The layers are measured by leaving them out, one after the other: the whole over HTTP, the same jobs
handed to an engine without HTTP, the same rows appended without an engine, and the manifest read
without anything else. Clients and server share the machine.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.database.event_log import DatabaseLog
from api.requests.bodies import parse_document, parse_json
from bench.append import in_our_loop
from bench.engine import FullCluster, fill, hand_in
from bench.server import muster_up
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.registry import read_manifest
from controlplane.log.codec import from_row
from controlplane.model.commands import SubmitJob

CLIENTS = 64
JOBS = 10_000
JOBS_QUICK = 3_000


def run(quick: bool) -> list[dict[str, Any]]:
    jobs = JOBS_QUICK if quick else JOBS
    bodies = [json.dumps(manifest(number)).encode() for number in range(jobs)]
    with muster_up() as server:
        took, delays = in_our_loop(submit_all(server.url, bodies))
    reading_s = read_all(bodies)
    engine_s, log_s = in_our_loop(without_http(bodies))
    each = 1e6 / jobs
    cuts = quantiles(delays, n=100)
    shares = {
        "log": log_s / took,
        "engine": (engine_s - log_s) / took,
        "manifest": reading_s / took,
        "HTTP and clients": 1 - (engine_s + reading_s) / took,
    }
    parts = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return [
        {
            "name": f"HTTP submissions, {CLIENTS} clients",
            "value": round(jobs / took),
            "baseline": round(jobs / engine_s),
            "ratio": round(engine_s / took, 2),
            "target": None,
            "unit": "jobs/s",
            "note": f"p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms; of "
            f"{took * each:.0f} us a job: {parts}; baseline: the engine without HTTP",
        }
    ]


def manifest(number: int) -> dict[str, Any]:
    """A PyTorchJob of the usual size."""
    container = {
        "name": "pytorch",
        "image": "registry.example/team/train:2024.11",
        "command": ["python", "-m", "train", "--config", "configs/large.yaml"],
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    role = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": f"train-{number}",
            "namespace": "bench",
            "annotations": {"sim.muster.dev/duration-seconds": "86400"},
        },
        "spec": {
            "runPolicy": {"backoffLimit": 3},
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, **role},
                "Worker": {"replicas": 3, **role},
            },
        },
    }


async def submit_all(url: str, bodies: list[bytes]) -> tuple[float, list[float]]:
    """Seconds for all, and for each one; every client has one connection and waits for answers."""
    where = urlsplit(url)
    waiting, delays = iter(bodies), []

    async def client() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        for body in waiting:
            began = perf_counter()
            writer.write(posted(where.netloc, body))
            assert await answered(reader) == 201
            delays.append(perf_counter() - began)
        writer.close()

    began = perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return perf_counter() - began, delays


def posted(host: str, body: bytes) -> bytes:
    """A submission as it goes over the wire."""
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answered(reader: asyncio.StreamReader) -> int:
    """The status of the next answer; its body is read and dropped."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = next(
        int(line.split(":")[1])
        for line in head.split("\r\n")
        if line.lower().startswith("content-length:")
    )
    await reader.readexactly(length)
    return int(head.split()[1])


def read_all(bodies: list[bytes]) -> float:
    began = perf_counter()
    for body in bodies:
        read_manifest(parse_document(body, parse_json))
    return perf_counter() - began


async def without_http(bodies: list[bytes]) -> tuple[float, float]:
    """Seconds for the same jobs through the engine alone, and for the same rows through the log."""
    commands = [
        SubmitJob(
            id=f"c{n}", job=f"h{n:012x}", namespace=x.namespace, name=x.name, spec=x.spec
        )
        for n, body in enumerate(bodies)
        for x in [read_manifest(parse_document(body, parse_json))]
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        log = await DatabaseLog.open(Path(folder) / "engine.db")
        engine = Engine(AsyncioClock(), log, FullCluster(), EngineOptions(snapshot_every=None))
        running = asyncio.ensure_future(engine.run())
        await fill(engine)
        before = engine.world.position
        engine_s = await hand_in(engine, iter(commands), CLIENTS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        log_s = await append_again(log, before, Path(folder) / "log.db")
        await log.close()
    return engine_s, log_s


async def append_again(log: DatabaseLog, after: int, path: Path) -> float:
    """Seconds to append the same events to another log, as many at once as there are clients."""
    rows: list[Any] = []
    while page := await log.read(after + len(rows), 10_000):
        rows += page
    events = [replace(from_row(row), position=n) for n, row in enumerate(rows, start=1)]
    other = await DatabaseLog.open(path)
    epoch = (await other.lead()).epoch
    began = perf_counter()
    for first in range(0, len(events), CLIENTS):
        await other.append(events[first : first + CLIENTS], epoch=epoch)
    took = perf_counter() - began
    await other.close()
    return took


if __name__ == "__main__":
    print(run(quick=True))
