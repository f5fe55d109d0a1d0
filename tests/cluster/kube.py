"""Looking at a cluster, and doing to it what people and accidents do."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from deploy.testcluster.api_client import Api, Refused
from deploy.testcluster.places import Place

OURS = "muster.dev/job-id"
NAMESPACE = "default"
# What Muster makes for a job besides pods.
THINGS = ("services", "configmaps", "secrets", "serviceaccounts")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}
# As servers before 1.22 know it.
OLD_EVICTION = {**EVICTION, "apiVersion": "policy/v1beta1"}


class TestBed(NamedTuple):
    __test__ = False

    kubeconfig: Path
    # Where the project's own test cluster runs; None on any other cluster.
    place: Place | None


class Kube:
    def __init__(self, api: Api, namespace: str = NAMESPACE) -> None:
        self.api = api
        self._home = f"/api/v1/namespaces/{namespace}"

    async def pods(self, **labels: str) -> list[dict[str, Any]]:
        """Muster's pods, by name."""
        wanted = [OURS, *(f"muster.dev/{key}={value}" for key, value in labels.items())]
        listed = await self.api.get(f"{self._home}/pods", labelSelector=",".join(wanted))
        return sorted(listed["items"], key=lambda pod: str(pod["metadata"]["name"]))

    async def pod(self, name: str) -> dict[str, Any] | None:
        try:
            document: dict[str, Any] = await self.api.get(f"{self._home}/pods/{name}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise
        return document

    async def log(self, name: str, **query: str) -> str:
        return await self.api.text(f"{self._home}/pods/{name}/log", **query)

    async def delete_pod(self, name: str, grace_s: int | None = None) -> None:
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        await self.api.delete(f"{self._home}/pods/{name}", **query)

    async def evict(self, name: str) -> None:
        """What `kubectl drain` asks for each pod of a node."""
        path, whom = f"{self._home}/pods/{name}/eviction", {"metadata": {"name": name}}
        try:
            await self.api.create(path, {**EVICTION, **whom})
        except Refused as refused:
            if refused.status not in (400, 404):
                raise
            await self.api.create(path, {**OLD_EVICTION, **whom})

    async def cordon(self, node: str, *, cordoned: bool = True) -> None:
        await self.api.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned}})

    async def taint(self, node: str, *taints: dict[str, str]) -> None:
        """These taints and no others; those that the cluster sets by itself come back."""
        await self.api.merge(f"/api/v1/nodes/{node}", {"spec": {"taints": list(taints)}})

    async def minor(self) -> int:
        """The server's version: 36 is Kubernetes 1.36."""
        return int(str((await self.api.get("/version"))["gitVersion"]).split(".")[1])

    async def node(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = await self.api.get(f"/api/v1/nodes/{name}")
        return document

    async def clear(self) -> None:
        """Removes everything that Muster made, and waits until the pods are gone."""
        ours = {"labelSelector": OURS}
        try:
            await self.api.delete(f"{self._home}/pods", gracePeriodSeconds="0", **ours)
        except aiohttp.ServerDisconnectedError:
            # A thousand pods at once take a busy server longer than it lets a request take; it is
            # asked for the rest.
            await self.api.delete(f"{self._home}/pods", gracePeriodSeconds="0", **ours)
        for thing in THINGS:
            for each in (await self.api.get(f"{self._home}/{thing}", **ours))["items"]:
                path = f"{self._home}/{thing}/{each['metadata']['name']}"
                await ignoring(404, self.api.delete(path))
        await self.uncordon_all()
        await until(self.is_clear, 60, "Muster's pods to go")

    async def uncordon_all(self) -> None:
        for node in (await self.api.get("/api/v1/nodes"))["items"]:
            name, taints = node["metadata"]["name"], node["spec"].get("taints") or ()
            if node["spec"].get("unschedulable"):
                await self.cordon(name, cordoned=False)
            # A test that failed half-way has left it.
            if any(taint["key"] == OUT_OF_SERVICE for taint in taints):
                await self.taint(name)

    async def is_clear(self) -> bool:
        return not await self.pods()


async def ignoring(status: int, request: Any) -> None:
    try:
        await request
    except Refused as refused:
        if refused.status != status:
            raise


async def until(reached: Callable[[], Any], seconds: float, what: str, every_s: float = 0.2) -> Any:
    """Asks again and again, and returns the first answer that is true."""
    deadline = time.monotonic() + seconds
    while True:
        answer = await reached()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        await asyncio.sleep(every_s)


def phase(pod: dict[str, Any] | None) -> str:
    return "" if pod is None else str(pod.get("status", {}).get("phase", ""))


def node_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))
