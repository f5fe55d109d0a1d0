"""The measurements: creation rate of a large gang, cost of rest, delays, many jobs at once."""

import asyncio
import json
import os
import sys
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Any

from tests.cluster.engine_client import Muster

from bench.cluster.seen import Follower, Watcher
from deploy.testcluster.api_client import Api
from deploy.testcluster.fake_nodes import EXIT_CODE, SECONDS, START_AFTER
from deploy.testcluster.proxy import Proxy
from tests.cluster.kube import Kube, until

IN_FLIGHT = 32
# No limit of its own: the loop beside it has none either.
UNPACED = ("--qps", "0", "--in-flight", str(IN_FLIGHT))
# What the training operators share among all of their jobs by default (--qps 20).
OPERATORS_QPS = 20
SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
Line = dict[str, Any]


def gang(name: str, ranks: int, **annotations: str) -> dict[str, Any]:
    container = {
        "name": "main", "image": "example/none:1", "resources": {"limits": {"nvidia.com/gpu": 1}},
    }  # fmt: skip
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    roles = [{"name": "worker", "replicas": ranks, "template": template}]
    metadata = {"name": name}
    selector = {"selector": {"muster.dev/made-up": "true"}}
    spec = {"roles": roles, "start_timeout_s": 3600.0, "clean": "All", "scheduling": selector}
    return {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def creation(kubeconfig: Path, folder: Path, ranks: int, rounds: int) -> list[Line]:
    """The same documents, made by Muster and by a bare loop, turn and turn about."""
    ours, bare = [], []
    async with Api(kubeconfig) as api:
        kube = Kube(api)
        await kube.clear()
        for number in range(rounds):
            async with Watcher(api) as watcher:
                async with Muster(kubeconfig, _new(folder, f"made-{number}"), *UNPACED) as muster:
                    await until(lambda: _room(muster, ranks), 60, "room for the gang")
                    await muster.submit(gang("wide", ranks, **{START_AFTER: "never"}))
                    await watcher.until(lambda: len(watcher.made) >= ranks, 300, "Muster's pods")
                    documents = [copied(pod) for pod in await kube.pods()]
                await kube.clear()
            ours.append(watcher.rate(""))
            async with Watcher(api) as watcher:
                file = folder / f"documents-{number}.json"
                file.write_text(json.dumps(documents))
                words = ["-m", "bench.cluster.bare", str(kubeconfig), str(file), str(IN_FLIGHT)]
                loop = await asyncio.create_subprocess_exec(sys.executable, *words)
                assert await loop.wait() == 0
                await watcher.until(lambda: len(watcher.made) >= ranks, 60, "the loop's pods")
            bare.append(watcher.rate(""))
            await kube.clear()
    best, base = max(ours), max(bare)
    rounds = ", ".join(f"{a:.0f} : {b:.0f}" for a, b in zip(ours, bare, strict=True))
    return [
        {
            "name": f"gang of {ranks:,} pods created",
            "value": round(best, 1),
            "unit": "pods/s",
            "baseline": round(base, 1),
            "ratio": round(best / base, 2),
            "target": 0.9,
            "note": f"with services, placement and binding; baseline: kubernetes-asyncio, "
            f"{IN_FLIGHT} in flight as here; rounds {rounds}",
        }
    ]


async def rest(kubeconfig: Path, folder: Path, ranks: int, seconds: float) -> list[Line]:
    """What a thousand running pods cost while nothing changes."""
    async with Api(kubeconfig) as api, Proxy(kubeconfig) as proxy:
        kube = Kube(api)
        await kube.clear()
        place = _new(folder, "rest")
        (place / "kubeconfig").write_text(proxy.kubeconfig())
        async with Muster(place / "kubeconfig", place, *UNPACED) as muster:
            await until(lambda: _room(muster, ranks), 60, "room for the gang")
            await muster.submit(gang("steady", ranks))
            await muster.until_phase("steady", "Running", seconds=300)
            await asyncio.sleep(15)
            requests, used, began = proxy.judge.requests.total(), cpu_s(muster.pid), monotonic()
            await asyncio.sleep(seconds)
            spent = monotonic() - began
            requests = proxy.judge.requests.total() - requests
            used = cpu_s(muster.pid) - used
        await kube.clear()
    share, a_minute = 100 * used / spent, requests * 60 / spent
    return [
        {
            "name": f"{ranks:,} running pods at rest, CPU", "value": round(share, 2),
            "unit": "% of a core", "baseline": 2.0, "ratio": round(2.0 / max(share, 0.01), 2), "target": 1.0,
            "note": f"over {spent:.0f} s; baseline: the most that is allowed",
        },
        {
            "name": f"{ranks:,} running pods at rest, requests", "value": round(a_minute, 1),
            "unit": "a minute", "baseline": 10.0, "ratio": round(10.0 / max(a_minute, 0.1), 2), "target": 1.0,
            "note": "to the API server; baseline: the most that is allowed",
        },
    ]  # fmt: skip


async def many(kubeconfig: Path, folder: Path, jobs: int, ranks: int) -> list[Line]:
    """Many jobs at once until all run, and how soon the ends of their pods are in the log."""
    async with Api(kubeconfig) as api:
        kube = Kube(api)
        await kube.clear()
        place = _new(folder, "many")
        async with Watcher(api) as watcher, Muster(kubeconfig, place, *UNPACED) as muster:
            follower = Follower(muster.url)
            await until(lambda: _room(muster, jobs * ranks), 60, "room for the jobs")
            began = monotonic()
            ends = {SECONDS: "20", EXIT_CODE: "0"}
            names = [f"many-{index}" for index in range(jobs)]
            await asyncio.gather(*(muster.submit(gang(name, ranks, **ends)) for name in names))
            submitted = monotonic() - began
            await watcher.until(lambda: len(watcher.ran) >= jobs * ranks, 300, "all to run")
            running = max(watcher.ran.values()) - began
            await watcher.until(lambda: len(watcher.ended) >= jobs * ranks, 300, "all to end")
            for name in names:
                await muster.until_phase(name, "Succeeded", seconds=120)
            delays = await follower.delays(watcher)
        await kube.clear()
    cuts = quantiles(delays, n=100)
    # Each job of theirs takes a pod and a service for every rank.
    ceiling = jobs * ranks * 2 / OPERATORS_QPS
    return [
        {
            "name": f"{jobs} jobs of {ranks} ranks, until all run", "value": round(running, 1),
            "unit": "s", "baseline": round(ceiling, 1), "ratio": round(ceiling / running, 1), "target": None,
            "note": f"submitted in {submitted:.1f} s; baseline: a pod and a service a rank at the "
            f"{OPERATORS_QPS} requests/s that the training operators share by default, reckoned",
        },
        {
            "name": "from pod exit to durable event, p99", "value": round(cuts[98] * 1e3),
            "unit": "ms", "baseline": round(cuts[49] * 1e3), "ratio": round(cuts[98] / max(cuts[49], 1e-3), 1),
            "target": None,
            "note": f"{len(delays):,} exits; from the API server's word to the event in Muster's own "
            "stream, both seen by one client; baseline: p50",
        },
    ]  # fmt: skip


def copied(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod as it was asked for, under another name."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in SERVER_FIELDS}
    metadata["name"] = "bare-" + metadata["name"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def cpu_s(pid: int) -> float:
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


async def _room(muster: Muster, gpus: int) -> bool:
    items = (await muster.get("/v1/nodes", limit="1000"))["items"]
    return sum(int(node["gpus_free"]) for node in items) >= gpus
