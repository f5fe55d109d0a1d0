"""A whole operator on a fake API server: real requests, a real engine, and scripted ranks."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.operator.client import OperatorOptions
from adapters.kubernetes.operator.operator import Operator
from adapters.kubernetes.operator.parse import LAST_APPLIED
from adapters.kubernetes.operator.resource import JobResource, resources
from adapters.kubernetes.operator.work_queue import WorkQueue
from adapters.logs.memory_log import MemoryLog
from api.engine.engine_client import EngineClient
from cli.server.supervisor import Supervisor
from controlplane.engine import EngineOptions
from controlplane.lifecycle.job import Job
from controlplane.model.cluster import NodeInfo
from controlplane.ports import Cluster
from simulator.kernel.virtual_time import VirtualTime
from tests.fake_kubernetes import FakeKubernetes
from tests.fake_kubernetes.store import Resource
from tests.instant_cluster import InstantCluster

EXAMPLES = Path(__file__).parents[4] / "examples"
EVENTS = Resource("", "v1", "events")
PATIENCE_S = 20.0
RESOURCES = {(each.group, each.kind): each for each in resources()}


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text("utf-8"))
    return document


def resource_of(document: dict[str, Any]) -> JobResource:
    return RESOURCES[document["apiVersion"].rpartition("/")[0], document["kind"]]


class OneStore(FakeKubernetes):
    """As a real server does, it keeps an object once, whatever version it is asked for in."""

    async def _answer(self, request: web.Request, watching: bool) -> web.StreamResponse:
        parts = request.path.split("/")
        for each in RESOURCES.values():
            if parts[2:3] == [each.group] and each.plural in parts:
                parts[3] = each.versions[0]
        url = request.rel_url.with_path("/".join(parts), keep_query=True)
        return await super()._answer(request.clone(rel_url=url), watching)


class Bench:
    """The cluster and the log stay; `start` and `stop` are of what may crash in between."""

    def __init__(self, api: FakeKubernetes) -> None:
        self.api = api
        self.log = MemoryLog()
        nodes = [NodeInfo(f"node-{i}", 8) for i in range(64)]
        self.cluster = InstantCluster(VirtualTime(), nodes)
        self.control = EngineClient(self.log)
        self.options = OperatorOptions()
        # How long the watches are believed.
        self.resync_s = 60.0
        self._tasks: list[asyncio.Task[None]] = []
        self._connection: Connection | None = None

    async def start(self) -> None:
        clock = AsyncioClock()
        self._connection = await Connection.open(Access(self.api.kubeconfig))
        self.control = EngineClient(self.log)
        self.operator = Operator(
            self._connection,
            self.control,
            self.log,
            clock.now,
            self.options,
            look_s_first=0.05,
            resync_s=self.resync_s,
        )
        self.control.listen(self.operator.recorded)
        supervisor = Supervisor(
            self.control, self._cluster(self._connection), clock, EngineOptions(release="test")
        )
        self._tasks = [
            asyncio.create_task(supervisor.run()),
            asyncio.create_task(self.operator.run()),
        ]
        await supervisor.serves.wait()

    def _cluster(self, connection: Connection) -> Cluster:
        """What runs the ranks; another bench may have real pods."""
        return self.cluster

    @property
    def is_up(self) -> bool:
        """Whether neither the control plane nor the operator has ended."""
        return not any(task.done() for task in self._tasks)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    # ------------------------------------------------------------------ as people do with kubectl

    def apply(self, document: dict[str, Any], **metadata: Any) -> str:
        """Creates it; returns its uid."""
        made = copy.deepcopy(document)
        annotations = {**(made["metadata"].get("annotations") or {})}
        annotations |= metadata.pop("annotations", {})
        annotations[LAST_APPLIED] = json.dumps(document)
        metadata = {"generation": 1, "annotations": annotations, **metadata}
        made["metadata"] = {**made["metadata"], **metadata}
        stored = self._stored(document)
        made["apiVersion"] = stored.api_version
        store = self.api.store.create(stored, "default", made)
        return str(store["metadata"]["uid"])

    def edit(self, document: dict[str, Any], spec: dict[str, Any]) -> None:
        generation = self.resource(document)["metadata"]["generation"] + 1
        patch = {"metadata": {"generation": generation}, "spec": spec}
        name = document["metadata"]["name"]
        self.api.store.merge(self._stored(document), "default", name, patch)

    def delete(self, document: dict[str, Any]) -> None:
        name = document["metadata"]["name"]
        self.api.store.remove(self._stored(document), "default", name)

    def resource(self, document: dict[str, Any]) -> dict[str, Any]:
        name = document["metadata"]["name"]
        return self.api.store.get(self._stored(document), "default", name)

    def is_there(self, document: dict[str, Any]) -> bool:
        known = self.api.store.objects.get(self._stored(document), {})
        return ("default", document["metadata"]["name"]) in known

    def _stored(self, document: dict[str, Any]) -> Resource:
        kind = resource_of(document)
        return Resource(kind.group, kind.versions[0], kind.plural)

    # ------------------------------------------------------------------ what became of it

    def state(self, document: dict[str, Any]) -> str:
        status = self.resource(document).get("status") or {}
        return str((status.get("muster") or {}).get("state", ""))

    def conditions(self, document: dict[str, Any]) -> dict[str, str]:
        status = self.resource(document).get("status") or {}
        return {each["type"]: each["status"] for each in status.get("conditions", ())}

    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.api.store.all(EVENTS)]

    def messages(self, reason: str) -> list[str]:
        return [e["message"] for e in self.api.store.all(EVENTS) if e["reason"] == reason]

    async def job(self, uid: str) -> Job | None:
        return await self.control.ask(lambda world: world.jobs.get(uid))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110 - what is waited for is no task of ours
                await asyncio.sleep(0.01)

    async def until_state(self, document: dict[str, Any], state: str) -> None:
        try:
            await self.until(lambda: self.state(document) == state)
        except TimeoutError:
            raise AssertionError(f"{self.state(document)!r} and not {state}") from None

    async def until_idle(self) -> None:
        """Until nothing is left to look at, and nothing has come up for a while."""
        await asyncio.sleep(0.3)
        await self.until(lambda: is_idle(self.operator.work))


def is_idle(work: WorkQueue) -> bool:
    """Whether no key waits, is being processed or pauses; timers do not count."""
    return not work._waiting and not work._busy


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    async with OneStore(folder) as api:
        made = Bench(api)
        try:
            yield made
        finally:
            await made.stop()
