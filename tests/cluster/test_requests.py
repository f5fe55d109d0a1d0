"""Cores that ranks request, besides those of other people's pods, on nodes whose kubelets count them."""

from typing import Any

import pytest

from tests.cluster.control import Muster, Refusal
from tests.cluster.kube import Kube, ignoring, node_of, until
from tests.cluster.manifests import BUSYBOX, job, shell

PODS = "/api/v1/namespaces/default/pods"
SLEEP = shell("sleep 600")


def asking(name: str, milli: int, replicas: int = 1, seconds: int = 600) -> dict[str, Any]:
    more = {"supplies": {"resources": {"cpu": f"{milli}m"}}}
    patient = shell(f"trap exit TERM; sleep {seconds} & wait")
    return job(name, patient, replicas=replicas, **more)


def theirs(name: str, node: str, milli: int) -> dict[str, Any]:
    """A pod of another workload, whose first container requests more than its second."""
    first = {"name": "first", "image": BUSYBOX, "command": ["true"],
             "resources": {"requests": {"cpu": f"{milli}m"}}}  # fmt: skip
    main = {"name": "main", "image": BUSYBOX, "command": SLEEP}
    spec = {"nodeName": node, "initContainers": [first], "containers": [main],
            "terminationGracePeriodSeconds": 0}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def _free(muster: Muster) -> dict[str, str]:
    nodes = (await muster.get("/v1/nodes"))["items"]
    return {node["name"]: node["resources_free"]["cpu"] for node in nodes}


def _milli(written: str) -> int:
    return int(written[:-1]) if written.endswith("m") else int(written) * 1000


async def test_a_gang_goes_where_its_cores_are_and_waits_where_there_are_none(
    muster: Muster, kube: Kube
) -> None:
    names = sorted(await _free(muster))
    first, *others = names
    whole = _milli((await _free(muster))[first])
    taken = [f"theirs-{name}" for name in names]
    try:
        # Other pods hold most of the first node: a rank that requests half of one goes elsewhere.
        await kube.api.create(PODS, theirs(taken[0], first, whole - 100))
        await until(lambda: _is_left(muster, first, 100), 30, "their pod to be counted")
        await muster.submit(asking("elsewhere", whole // 2))
        placed = await muster.until_phase("elsewhere", "Running")
        assert placed["attempt"]["ranks"][0]["node"] != first
        # Of all other nodes too: a gang waits, and shows for what.
        await muster.delete("elsewhere")
        for name, node in zip(taken[1:], others, strict=True):
            await until(lambda node=node: _is_left(muster, node, whole), 30, "the cores to be free")
            await kube.api.create(PODS, theirs(name, node, whole - 100))
            await until(lambda node=node: _is_left(muster, node, 100), 30, "it to be counted")
        await muster.submit(asking("waits", 200, replicas=2))
        await muster.until_event("waits", "GangWaiting")
        reason = (await muster.why("waits"))["reasons"][0]
        assert "each of 2 ranks needs 0.2 CPUs" in reason["message"]
        assert f"{first} has 0.1 of" in reason["message"]
        assert await _nodes_of(kube, "waits") == set()
        # Theirs goes, and it starts there.
        await kube.api.delete(f"{PODS}/{taken[0]}", gracePeriodSeconds="0")
        await muster.until_phase("waits", "Running")
        assert await _nodes_of(kube, "waits") == {first}
        assert (await muster.job("waits"))["restarts"] == []
    finally:
        for name in taken:
            await ignoring(404, kube.api.delete(f"{PODS}/{name}", gracePeriodSeconds="0"))


async def _nodes_of(kube: Kube, name: str) -> set[str]:
    pods = [pod for pod in await kube.pods() if pod["metadata"]["name"].startswith(f"{name}-")]
    return {node_of(pod) for pod in pods}


async def _is_left(muster: Muster, node: str, milli: int) -> bool:
    return _milli((await _free(muster))[node]) == milli


async def test_of_more_ranks_than_there_are_cores_none_is_turned_down(
    muster: Muster, kube: Kube
) -> None:
    """Gangs of several sizes, all at once; each runs in the end, at its first attempt."""
    whole = min(map(_milli, (await _free(muster)).values()))
    names = [f"cores-{number}" for number in range(6)]
    for number, name in enumerate(names):
        await muster.submit(asking(name, whole // (2 + number % 2), replicas=3, seconds=1))
    for name in names:
        ended = await muster.until_phase(name, "Succeeded", seconds=150)
        assert ended["restarts"] == [], name
        assert (await muster.story(name)).count("GangPlaced") == 1


async def test_a_gang_that_asks_for_more_cores_than_a_node_has_is_refused(muster: Muster) -> None:
    with pytest.raises(Refusal, match="needs 1000 CPUs on one node") as refused:
        await muster.submit(asking("huge", 1_000_000))
    assert "can_never_fit" in str(refused.value)
