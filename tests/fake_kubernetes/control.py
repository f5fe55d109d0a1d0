"""A whole control plane on the fake API server: engine, log in memory, Kubernetes adapter."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.kubernetes.api.connection import Connection, Limits
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.cluster import KubernetesCluster, Options
from adapters.logs.memory_log import MemoryLog
from controlplane.decisions.step import Answer
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role
from controlplane.ports import RankLogArchive
from tests.fake_kubernetes.server import FakeKubernetes
from tests.fake_kubernetes.store import PODS

QUICK = Limits(qps=0, backoff_s_first=0.005, backoff_s_max=0.05)


def spec(workers: int = 2, gpus: int = 1, **more: Any) -> JobSpec:
    role = Role(name="worker", replicas=workers, gpus=gpus, image="example.com/train:1")
    restart = RestartPolicy(limit=3, backoff_s_first=0.05, backoff_s_max=0.1)
    fields = {"roles": (role,), "done_when": DoneWhen("worker"), "restart": restart, **more}
    return JobSpec(**fields)


class ControlPlane:
    def __init__(self, api: FakeKubernetes, log: MemoryLog, cluster: KubernetesCluster) -> None:
        self.api, self.log, self.cluster = api, log, cluster
        self.engine = Engine(AsyncioClock(), log, cluster, EngineOptions(resync_s=0.5))
        self.running: asyncio.Task[None]

    @property
    def pods(self) -> list[dict[str, Any]]:
        return self.api.store.all(PODS)

    def job(self, name: str) -> Job | None:
        return self.engine.world.job("default", name)

    def phase(self, name: str) -> str:
        job = self.job(name)
        return "" if job is None else str(job.phase)

    async def ask(self, command: c.AnyCommand) -> Answer:
        answer = asyncio.get_running_loop().create_future()
        self.engine.submit(command, answer.set_result)
        return await answer  # type: ignore[no-any-return]

    async def submit(self, name: str, of: JobSpec | None = None) -> None:
        command = c.SubmitJob(
            job=f"id-{name}", namespace="default", name=name, spec=of or spec(), id=f"cmd-{name}"
        )
        answer = await self.ask(command)
        assert not isinstance(answer, Exception), answer

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - it may be anything
                await asyncio.sleep(0.005)

    async def until_phase(self, name: str, phase: str) -> None:
        await self.until(lambda: self.phase(name) == phase)


@asynccontextmanager
async def control_plane(
    api: FakeKubernetes,
    log: MemoryLog | None = None,
    *,
    instance: str = "test",
    archive: RankLogArchive | None = None,
    limits: Limits = QUICK,
    **options: Any,
) -> AsyncIterator[ControlPlane]:
    async def name() -> str:
        return instance

    connection = await Connection.open(Access(kubeconfig=api.kubeconfig), limits)
    settings = Options(**{"resync_s": 60.0, "lost_after_s": 0.05, **options})
    cluster = KubernetesCluster(connection, name, settings, archive=archive)
    plane = ControlPlane(api, log if log is not None else MemoryLog(), cluster)
    plane.running = asyncio.create_task(plane.engine.run())
    try:
        yield plane
    finally:
        plane.running.cancel()
        with suppress(asyncio.CancelledError):
            await plane.running
        await cluster.close()


@asynccontextmanager
async def cluster_of(folder: Path, nodes: int = 2, gpus: int = 4) -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes(folder) as api:
        for i in range(nodes):
            api.kubelets.add_node(f"node-{i}", gpus)
        yield api
