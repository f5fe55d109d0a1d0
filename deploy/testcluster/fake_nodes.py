"""Nodes without machines: they report themselves ready, and every pod bound to them as running.

Run by itself: `python -m deploy.testcluster.fake_nodes KUBECONFIG NODES GPUS HEARTBEAT_SECONDS`. A pod bound to such a
node runs at once; these annotations determine what happens to it:

    made-up/seconds: "5"       seconds until it ends; without it, it runs until it is deleted
    made-up/exit-code: "3"     with this code (0)
    made-up/start-after: "2"   seconds for which it stays Pending; "never": for ever

A deleted pod is gone at once.
"""

import asyncio
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from deploy.testcluster.api_client import Api, Refused

SECONDS, EXIT_CODE, START_AFTER = "made-up/seconds", "made-up/exit-code", "made-up/start-after"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODES_IN_A_RACK = 8
Document = Mapping[str, Any]


def node_names(count: int) -> list[str]:
    return [f"made-up-{index}" for index in range(count)]


def node(name: str, rack: int) -> Document:
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"made-up-rack-{rack}",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.memory": "81920",
        "muster.dev/made-up": "true",
    }
    return {"metadata": {"name": name, "labels": labels}}


def node_status(gpus: int) -> Document:
    resources = {"cpu": "192", "memory": "2Ti", "pods": "250", "nvidia.com/gpu": str(gpus)}
    well = {"type": "Ready", "status": "True", "reason": "MadeUp", "message": "always ready"}
    times = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    return {
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [address],
            "conditions": [{**well, **times}],
        }
    }


def lease(name: str) -> Document:
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _precise_now()}
    return {"metadata": {"name": name}, "spec": spec}


def pod_status(pod: Document, state: Mapping[str, Any], phase: str) -> Document:
    """Return the status of a pod whose containers are all in one state, as a kubelet writes it."""
    ready = phase == "Running"
    truths = {"Initialized": True, "Ready": ready, "ContainersReady": ready, "PodScheduled": True}
    conditions = [
        {"type": name, "status": str(truth), "lastTransitionTime": _now()}
        for name, truth in truths.items()
    ]
    containers = [
        {
            "name": each["name"], "image": each["image"], "imageID": "", "restartCount": 0,
            "ready": ready, "started": ready, "state": state,
        }
        for each in pod["spec"]["containers"]
    ]  # fmt: skip
    addresses = {"hostIP": "127.0.0.1", "podIP": "127.0.0.1"}
    status = {"phase": phase, "startTime": _now(), **addresses}
    return {"status": {**status, "conditions": conditions, "containerStatuses": containers}}


class Nodes:
    def __init__(self, api: Api, names: list[str], gpus: int) -> None:
        self._api, self._names, self._gpus = api, names, gpus
        self._ours = frozenset(names)
        # By uid: the pods that a task already drives.
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._reaped: set[str] = set()
        self._few = asyncio.Semaphore(32)
        self._background: set[asyncio.Task[None]] = set()

    async def join(self) -> None:
        await asyncio.gather(*(self._join(i, name) for i, name in enumerate(self._names)))
        print(f"{len(self._names)} nodes are there", flush=True)

    async def _join(self, index: int, name: str) -> None:
        async with self._few:
            await self._ignoring(
                409, self._api.create("/api/v1/nodes", node(name, index // NODES_IN_A_RACK))
            )
            await self._api.merge(f"/api/v1/nodes/{name}/status", node_status(self._gpus))
            await self._ignoring(409, self._api.create(LEASES, lease(name)))

    async def live(self, heartbeat_s: float) -> None:
        """Send the heartbeats of the nodes, for ever."""
        while True:
            pause = asyncio.create_task(asyncio.sleep(heartbeat_s))
            await asyncio.gather(*map(self._beat, self._names))
            await pause

    async def _beat(self, name: str) -> None:
        async with self._few:
            try:
                await self._api.merge(f"{LEASES}/{name}", {"spec": {"renewTime": _precise_now()}})
            except (Refused, aiohttp.ClientError, OSError) as error:
                print(f"lease of {name}: {error!r}", flush=True)

    async def drive(self) -> None:
        """Follow the pods that are bound to these nodes."""
        bound = "spec.nodeName!="
        while True:
            try:
                listing = await self._api.get("/api/v1/pods", fieldSelector=bound)
                for pod in listing["items"]:
                    self._see("ADDED", pod)
                version = listing["metadata"]["resourceVersion"]
                async for kind, pod in self._api.watch(
                    "/api/v1/pods", version, fieldSelector=bound
                ):
                    self._see(kind, pod)
            except (Refused, aiohttp.ClientError, OSError) as error:
                print(f"watch: {error!r}", flush=True)
                await asyncio.sleep(0.5)

    def _see(self, kind: str, pod: Document) -> None:
        if pod["spec"].get("nodeName") not in self._ours:
            return
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._reaped.discard(uid)
            if task := self._driven.pop(uid, None):
                task.cancel()
        elif pod["metadata"].get("deletionTimestamp"):
            if uid not in self._reaped:
                self._reaped.add(uid)
                _ = self._keep(self._reap(pod))
        elif uid not in self._driven and pod.get("status", {}).get("phase") in ("Pending", None):
            self._driven[uid] = self._keep(self._run(pod))

    def _keep(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _run(self, pod: Document) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        wait = annotations.get(START_AFTER, "0")
        if wait == "never":
            return
        await asyncio.sleep(float(wait))
        began = _now()
        await self._write(pod, pod_status(pod, {"running": {"startedAt": began}}, "Running"))
        if SECONDS not in annotations:
            return
        await asyncio.sleep(float(annotations[SECONDS]))
        code = int(annotations.get(EXIT_CODE, "0"))
        end = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": began}
        state = {"terminated": {**end, "finishedAt": _now()}}
        await self._write(pod, pod_status(pod, state, "Failed" if code else "Succeeded"))

    async def _write(self, pod: Document, status: Document) -> None:
        async with self._few:
            await self._ignoring(404, self._api.merge(_path(pod) + "/status", status))

    async def _reap(self, pod: Document) -> None:
        only = {"preconditions": {"uid": pod["metadata"]["uid"]}, "gracePeriodSeconds": 0}
        async with self._few:
            deleting = self._api.delete(_path(pod), only)
            await self._ignoring(404, self._ignoring(409, deleting))

    async def _ignoring(self, status: int, request: Any) -> None:
        try:
            await request
        except Refused as refused:
            if refused.status != status:
                raise


async def run(kubeconfig: Path, count: int, gpus: int, heartbeat_s: float) -> None:
    async with Api(kubeconfig) as api:
        nodes = Nodes(api, node_names(count), gpus)
        await nodes.join()
        await asyncio.gather(nodes.live(heartbeat_s), nodes.drive())


def _path(pod: Document) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _precise_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
