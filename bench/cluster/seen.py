"""Pod changes as an API server's watch reports them, with the time of each report."""

import asyncio
import json
from time import monotonic
from typing import Any

import aiohttp

from deploy.testcluster.api_client import Api, Refused


class Watcher:
    """Follows the pods of a namespace; an asynchronous context."""

    def __init__(self, api: Api, namespace: str = "default") -> None:
        self._api, self._path = api, f"/api/v1/namespaces/{namespace}/pods"
        # When it was first there and first seen running, by name; when its end was seen, by rank.
        self.made: dict[str, float] = {}
        self.ran: dict[str, float] = {}
        self.ended: dict[tuple[str, int], float] = {}
        self.present: set[str] = set()

    async def __aenter__(self) -> "Watcher":
        listing = await self._api.get(self._path)
        self.present = {pod["metadata"]["name"] for pod in listing["items"]}
        self._task = asyncio.create_task(self._follow(listing["metadata"]["resourceVersion"]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self, version: str) -> None:
        while True:
            try:
                async for kind, pod in self._api.watch(self._path, version):
                    version = pod["metadata"]["resourceVersion"]
                    self._see(kind, pod)
            except (Refused, aiohttp.ClientError) as error:
                raise RuntimeError("the benchmark lost sight of the pods") from error

    def _see(self, kind: str, pod: dict[str, Any]) -> None:
        name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase")
        if kind == "DELETED":
            self.present.discard(name)
            return
        self.present.add(name)
        self.made.setdefault(name, monotonic())
        if phase == "Running":
            self.ran.setdefault(name, monotonic())
        if phase in ("Succeeded", "Failed"):
            labels = pod["metadata"].get("labels") or {}
            rank = (labels.get("muster.dev/job-id", ""), int(labels.get("muster.dev/rank", -1)))
            self.ended.setdefault(rank, monotonic())

    async def until(self, reached: Any, seconds: float, what: str) -> None:
        deadline = monotonic() + seconds
        while not reached():
            if self._task.done():
                self._task.result()
            if monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
            await asyncio.sleep(0.05)

    def rate(self, prefix: str) -> float:
        """Pods made in a second, from the first to the last."""
        times = sorted(at for name, at in self.made.items() if name.startswith(prefix))
        return (len(times) - 1) / (times[-1] - times[0])


class Follower:
    """Reads Muster's event stream, which has only events that are in the log."""

    def __init__(self, url: str) -> None:
        self._exits: dict[tuple[str, int], float] = {}
        self._task = asyncio.create_task(self._follow(url))

    async def _follow(self, url: str) -> None:
        patient = aiohttp.ClientTimeout(total=None)
        headers = {"Accept": "text/event-stream"}
        async with (
            aiohttp.ClientSession(
                timeout=patient, headers=headers, read_bufsize=1 << 24
            ) as session,
            session.get(f"{url}/v1/events", params={"after": "0"}) as answer,
        ):
            async for line in answer.content:
                if line.startswith(b"data:") and b"RanksExited" in line:
                    event = json.loads(line[len("data:") :])
                    for each in event["payload"]["exits"]:
                        rank = (event["payload"]["job"], each.get("rank", 0))
                        self._exits.setdefault(rank, monotonic())

    async def delays(self, watcher: Watcher) -> list[float]:
        """How long each exit took from the API server's word to the log; ends the following."""
        for _ in range(100):
            if self._exits.keys() >= watcher.ended.keys():
                break
            await asyncio.sleep(0.1)
        self._task.cancel()
        await asyncio.wait([self._task])
        return [max(0.0, self._exits[rank] - seen) for rank, seen in watcher.ended.items()]
