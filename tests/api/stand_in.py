"""A whole server for tests: real engine, log in memory, and a scripted cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.logs.memory_log import MemoryLog
from api.access import Access
from api.app import Limits, make_app
from api.engine.engine_client import EngineClient
from api.history.sse_feed import FEED, Feed
from api.server import Runner
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.effects import Effect, LaunchGang, StopGang, Survey
from controlplane.lifecycle.job import Job
from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import Report, ReportCluster, ReportRanks
from controlplane.model.failures import Exit
from controlplane.ports import EventLog

START = 1_700_000_000.0


class ObedientCluster:
    """Starts and stops gangs at once; their ranks exit when `finish` is called."""

    def __init__(self, nodes: int = 2, gpus: int = 8) -> None:
        self.nodes = [NodeInfo(f"node-{i}", gpus, rack=f"rack-{i % 2}") for i in range(nodes)]
        self._report: Callable[[Report], None] = lambda report: None
        # Job id -> the ranks of its latest attempt that still run.
        self._running: dict[str, tuple[int, set[int]]] = {}

    async def connect(self, report: Callable[[Report], None]) -> None:
        self._report = report

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Survey):
                self._report(ReportCluster(up=tuple(self.nodes)))
            elif isinstance(effect, LaunchGang):
                self._launch(effect)
            elif isinstance(effect, StopGang):
                self._stop(effect)

    def _launch(self, effect: LaunchGang) -> None:
        assert effect.job.attempt is not None
        ranks = range(len(effect.job.attempt.ranks))
        self._running[effect.job_id] = (effect.attempt, set(ranks))
        self._report(ReportRanks(job=effect.job_id, attempt=effect.attempt, started=tuple(ranks)))

    def _stop(self, effect: StopGang) -> None:
        _, ranks = self._running.pop(effect.job_id, (0, set()))
        gone = tuple(sorted(ranks))
        self._report(ReportRanks(job=effect.job_id, attempt=effect.attempt, gone=gone))

    def finish(self, job_id: str, code: int = 0) -> None:
        """Every rank of the job exits."""
        attempt, ranks = self._running.pop(job_id)
        exits = tuple(Exit(rank, code) for rank in sorted(ranks))
        self._report(ReportRanks(job=job_id, attempt=attempt, exited=exits))

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return [f"{job.name} rank {rank} line {i}" for i in range(200)][-lines_max:]


@dataclass
class Server:
    """A running server, and what stands behind it."""

    url: str
    engine_client: EngineClient
    log: EventLog
    cluster: ObedientCluster
    app: web.Application
    session: aiohttp.ClientSession
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def feed(self) -> Feed:
        return self.app[FEED]

    async def lead(self) -> None:
        """Starts an engine, as the supervisor would."""
        clock = AsyncioClock(start=START)
        options = EngineOptions(resync_s=None)
        engine = Engine(
            clock, self.log, self.cluster, options, on_recorded=self.engine_client.recorded
        )
        self.engine_client.engine = engine
        self.tasks.append(asyncio.create_task(engine.run()))
        await self.settled()

    async def stop_engine(self) -> None:
        task = self.tasks.pop()
        task.cancel()
        await asyncio.wait([task])

    async def settled(self) -> None:
        """Waits until nothing happens any more."""
        before = -1
        while before != (now := (await self.log.head()).position):
            before = now
            for _ in range(20):
                await asyncio.sleep(0)

    async def call(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        """Status and decoded body of one request."""
        if body is not None:
            options["json"] = body
        async with self.session.request(method, self.url + path, **options) as answer:
            if "json" not in answer.content_type:
                return answer.status, await answer.text()
            return answer.status, await answer.json(content_type=None)


@asynccontextmanager
async def serving(
    *,
    nodes: int = 2,
    gpus: int = 8,
    access: Access | None = None,
    limits: Limits | None = None,
    log: EventLog | None = None,
    leads: bool = True,
    port: int = 0,
    now: Callable[[], float] | None = None,
) -> AsyncIterator[Server]:
    log = log or MemoryLog()
    engine_client = EngineClient(log)
    cluster = ObedientCluster(nodes, gpus)
    app = make_app(engine_client, cluster, access, limits=limits, now=now)
    runner = Runner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        server = Server(f"http://{host}:{port}", engine_client, log, cluster, app, session)
        try:
            if leads:
                await server.lead()
            yield server
        finally:
            for task in server.tasks:
                task.cancel()
            await asyncio.gather(*server.tasks, return_exceptions=True)
            await runner.cleanup()


def native(name: str, *, replicas: int = 1, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A manifest in the native form."""
    role = {"name": "worker", "replicas": replicas, "gpus": gpus}
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"roles": [role], **spec},
    }


def pytorch(name: str, *, workers: int = 1, gpus: int = 1) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    replica = {"template": {"spec": {"containers": [container]}}}
    specs = {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": workers}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"pytorchReplicaSpecs": specs},
    }
