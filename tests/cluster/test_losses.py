"""Every way in which a rank ends or is lost, provoked for real, and reported with its cause."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.testcluster import nodes
from deploy.testcluster.images import PYTHON
from deploy.testcluster.places import Place
from tests.cluster.control import Muster, Refusal
from tests.cluster.kube import OUT_OF_SERVICE, Kube, node_of, phase, until
from tests.cluster.manifests import job, shell

SLEEP = shell("trap 'exit 143' TERM; while :; do sleep 0.1; done")
# What a person sets on a node whose machine is off for good: its pods are given up.
GIVEN_UP_SINCE = 24
GIVEN_UP = {"key": OUT_OF_SERVICE, "value": "off", "effect": "NoExecute"}
ONCE_MORE = {"limit": 1, "backoff_s_first": 0.5, "backoff_s_max": 0.5}


def number_of(node: str) -> int:
    return int(node.removeprefix("node-"))


async def running(muster: Muster, kube: Kube, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Submits a job, waits until it runs, and returns its pods in the order of the ranks."""
    name = await muster.submit(manifest)
    await muster.until_phase(name, "Running")
    return await kube.pods()


async def last_exit(muster: Muster, name: str) -> dict[str, Any]:
    """How the first rank that ended ended."""
    for event in await muster.events(name):
        if event["type"] == "RanksExited":
            return dict(event["payload"]["exits"][0])
    raise AssertionError(f"no rank of {name} has ended")


async def test_an_exit_code_fails_the_job_and_is_reported(muster: Muster, kube: Kube) -> None:
    await muster.submit(job("fails", shell("exit 42")))
    ended = await muster.until_phase("fails", "Failed")
    assert ended["attempt"]["ranks"][0]["exit_code"] == 42
    assert "42" in (await muster.why("fails"))["summary"]


async def test_a_killed_container_is_an_exit_that_is_tried_again(
    place: Place, muster: Muster, kube: Kube
) -> None:
    (pod,) = await running(muster, kube, job("killed", SLEEP, restart=ONCE_MORE))
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    nodes.signal_container(place, number_of(node_of(pod)), container, 9)
    await muster.until_event("killed", "JobRestarting")
    ended = await last_exit(muster, "killed")
    assert ended["code"] == 137
    again = await muster.until_phase("killed", "Running")
    assert again["job"]["attempt"] == 2
    assert again["job"]["failures"] == 1


async def test_a_pod_deleted_by_hand_is_made_anew_at_nobodys_cost(
    muster: Muster, kube: Kube
) -> None:
    pods = await running(muster, kube, job("deleted", SLEEP, replicas=2, restart=ONCE_MORE))
    await kube.delete_pod(pods[1]["metadata"]["name"])
    await muster.until_event("deleted", "JobRestarting")
    again = await muster.until_phase("deleted", "Running")
    assert again["job"]["attempt"] == 2
    assert again["job"]["failures"] == 0, "not the job's own fault"
    uids = {pod["metadata"]["uid"] for pod in await kube.pods()}
    assert len(uids) == 2
    assert uids.isdisjoint({pod["metadata"]["uid"] for pod in pods}), "the gang started anew"


async def test_a_pod_deleted_by_force_does_not_run_twice(muster: Muster, kube: Kube) -> None:
    (pod,) = await running(muster, kube, job("forced", SLEEP, restart=ONCE_MORE))
    await kube.delete_pod(pod["metadata"]["name"], grace_s=0)
    await muster.until_event("forced", "JobRestarting")
    again = await muster.until_phase("forced", "Running")
    assert again["job"]["attempt"] == 2
    assert len(await kube.pods()) == 1


async def test_filled_memory_is_reported_as_out_of_memory(muster: Muster, kube: Kube) -> None:
    container = {
        "name": "main",
        "image": PYTHON,
        "command": ["python3", "-c", "x = bytes([1]) * (300 << 20)"],
        "resources": {"limits": {"memory": "64Mi"}},
    }
    manifest = job("hungry", [])
    manifest["spec"]["roles"] = [
        {"name": "worker", "template": {"spec": {"containers": [container]}}}
    ]
    await muster.submit(manifest)
    await muster.until_phase("hungry", "Failed")
    ended = await last_exit(muster, "hungry")
    assert (ended["cause"], ended["code"]) == ("oom", 137)


async def test_an_eviction_as_by_drain_costs_the_job_nothing(muster: Muster, kube: Kube) -> None:
    pods = await running(muster, kube, job("drained", SLEEP, gpus=1, restart=ONCE_MORE))
    node = node_of(pods[0])
    await kube.cordon(node)
    await kube.evict(pods[0]["metadata"]["name"])
    again = await until(lambda: _runs_elsewhere(muster, kube, "drained", node), 60, "the move")
    assert again["job"]["failures"] == 0
    causes = {entry["cause"] for entry in again["restarts"]}
    assert causes <= {"eviction", "vanished"}, again["restarts"]


async def test_a_cordoned_node_takes_no_more_ranks(muster: Muster, kube: Kube) -> None:
    nodes = (await kube.api.get("/api/v1/nodes"))["items"]
    names = sorted(node["metadata"]["name"] for node in nodes)
    since = await muster.head()
    for name in names[1:]:
        await kube.cordon(name)
    await until(lambda: _cordons_seen(muster, names[1:], since), 30, "the cordons to be seen")
    pods = await running(muster, kube, job("stays", SLEEP, replicas=4, gpus=2))
    assert {node_of(pod) for pod in pods} == {names[0]}
    await muster.submit(job("waits", SLEEP, gpus=1))
    assert await muster.phase("waits") == "Queued"
    await kube.cordon(names[1], cordoned=False)
    await muster.until_phase("waits", "Running")


async def test_a_wrong_image_is_reported_while_the_job_waits_and_when_it_ends(
    muster: Muster, kube: Kube
) -> None:
    await muster.submit(job("wrong", SLEEP, image="localhost/no-such:1", start_timeout_s=12.0))
    answer = await until(
        lambda: _why_contains(muster, "wrong", "localhost/no-such:1"), 30, "the reason"
    )
    assert answer["phase"] in ("Starting", "Placed", "Running"), answer
    # Nothing of the job's own has failed, so it is tried again, and the reason stays in the log.
    again = await muster.until_event("wrong", "JobRestarting", seconds=60)
    assert again["payload"]["restart"]["cause"] == "start_timeout"
    assert "localhost/no-such:1" in json.dumps(again["payload"]["restart"]["facts"])


@pytest.mark.parametrize("image", ["localhost/no-such:1", "localhost/No Name"])
async def test_a_job_without_an_image_fails_in_the_end(
    muster: Muster, kube: Kube, image: str
) -> None:
    await muster.submit(job("imageless", SLEEP, image=image, image_timeout_s=5.0))
    ended = await muster.until_phase("imageless", "Failed")
    assert ended["job"]["reason"] == "no_image"
    assert image in ended["job"]["message"]
    await until(lambda: _no_pods(kube), 30, "its pods to go")


async def test_a_gang_that_a_node_turns_down_goes_elsewhere(muster: Muster, kube: Kube) -> None:
    """Muster counts devices, cores and memory; a kubelet also knows who has which port."""
    port = {"containerPort": 18_080, "hostPort": 18_080}
    most = {"containers": [{"name": "main", "image": "localhost/busybox:1", "command": SLEEP,
            "ports": [port]}]}  # fmt: skip
    again = {"limit": 0, "backoff_s_first": 1.0, "backoff_s_max": 1.0}
    for name in ("first", "second"):
        manifest = job(name, [], restart=again)
        manifest["spec"]["roles"] = [{"name": "worker", "template": {"spec": most}}]
        await muster.submit(manifest)
        await muster.until_phase(name, "Running")
    moved = await muster.job("second")
    (entry,) = moved["restarts"]
    assert entry["cause"] == "refused"
    assert "NodePorts" in entry["message"]
    assert moved["job"]["failures"] == 0
    assert moved["attempt"]["ranks"][0]["node"] != entry["node"]


async def test_a_failing_init_container_fails_the_rank(muster: Muster, kube: Kube) -> None:
    spec = {
        "initContainers": [
            {"name": "prepare", "image": "localhost/busybox:1", "command": shell("exit 3")}
        ],
        "containers": [{"name": "main", "image": "localhost/busybox:1", "command": SLEEP}],
    }
    manifest = job("unready", [])
    manifest["spec"]["roles"] = [{"name": "worker", "template": {"spec": spec}}]
    await muster.submit(manifest)
    await muster.until_phase("unready", "Failed", seconds=60)
    assert "prepare" in (await last_exit(muster, "unready"))["detail"]


async def test_a_sick_device_is_not_allocated(place: Place, muster: Muster, kube: Kube) -> None:
    others = [f"node-{node}" for node in range(2, 5)]
    since = await muster.head()
    for node in others:
        await kube.cordon(node)
    nodes.sicken(place, 1, "GPU-0", "GPU-1")
    await until(lambda: _free(muster, "node-1", 6), 30, "the sick devices to be seen")
    await until(lambda: _cordons_seen(muster, others, since), 30, "the cordons to be seen")
    pods = await running(muster, kube, job("six", SLEEP, gpus=6))
    assert [node_of(pod) for pod in pods if phase(pod) == "Running"] == ["node-1"]
    await muster.submit(job("one-more", SLEEP, gpus=1))
    assert await muster.phase("one-more") == "Queued"


async def test_a_lost_node_moves_the_gang_at_nobodys_cost(
    place: Place, muster: Muster, kube: Kube
) -> None:
    """Not before an administrator confirms that nothing runs there any more: it cannot be known from here."""
    pods = await running(muster, kube, job("lost", SLEEP, replicas=2, gpus=8, restart=ONCE_MORE))
    node = node_of(pods[0])
    nodes.off(place, number_of(node))
    await muster.until_event("lost", "JobRestarting")
    assert (await muster.job("lost"))["job"]["phase"] != "Running"
    await kube.taint(node, GIVEN_UP)
    if await kube.minor() < GIVEN_UP_SINCE:
        # There a person deletes the pods by force.
        for pod in await kube.pods():
            if node_of(pod) == node:
                await kube.delete_pod(pod["metadata"]["name"], grace_s=0)
    again = await until(lambda: _runs_elsewhere(muster, kube, "lost", node), 120, "the move")
    assert again["job"]["failures"] == 0
    assert {entry["cause"] for entry in again["restarts"]} <= {"node_lost", "eviction", "vanished"}
    await kube.taint(node)
    nodes.up(place, number_of(node))
    await until(lambda: _free(muster, node, 8), 60, "the node to be counted again")


async def test_a_forgotten_node_lets_its_gang_go(place: Place, muster: Muster, kube: Kube) -> None:
    """Neither the node nor its pods are changed in Kubernetes."""
    pods = await running(muster, kube, job("left", SLEEP, replicas=2, gpus=8, restart=ONCE_MORE))
    node = node_of(pods[0])
    with pytest.raises(Refusal, match="node_is_up"):
        await muster.post(f"/v1/nodes/{node}/forget")
    nodes.off(place, number_of(node))
    await muster.until_event("left", "JobRestarting")
    await until(lambda: _forgets(muster, node), 60, "the node to be counted as lost")
    await until(lambda: _runs_elsewhere(muster, kube, "left", node), 60, "the move")
    nodes.up(place, number_of(node))
    await until(lambda: _free(muster, node, 8), 60, "the node to be counted again")


async def test_a_rank_whose_kubelet_died_does_not_run_twice(
    place: Place, muster: Muster, kube: Kube
) -> None:
    """The processes live on where the kubelet is dead, so the rank may not run elsewhere yet."""
    # The rank shows that it runs by a file that all nodes see.
    mark = place.state / "alive"
    mark.mkdir(exist_ok=True)
    text = "echo $$ > /alive/$HOSTNAME-$(date +%s%N); trap 'exit 143' TERM; while :; do touch /alive/beat-$NODE; sleep 0.1; done"
    spec = {
        "containers": [
            {
                "name": "main",
                "image": "localhost/busybox:1",
                "command": shell(text),
                "env": [
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
                ],
                "volumeMounts": [{"name": "alive", "mountPath": "/alive"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
        "volumes": [{"name": "alive", "hostPath": {"path": str(mark)}}],
    }
    manifest = job("zombie", [], restart=ONCE_MORE)
    manifest["spec"]["roles"] = [{"name": "worker", "template": {"spec": spec}}]
    (pod,) = await running(muster, kube, manifest)
    node = node_of(pod)
    nodes.kill(place, number_of(node), "kubelet")
    nodes.kill(place, number_of(node), "containerd")
    await until(lambda: _is_lost(kube, node), 40, "the node to be missed")
    # Long enough for taints, evictions and a hasty control plane to do their worst.
    for _ in range(40):
        beats = [path for path in mark.glob("beat-*") if _fresh(path)]
        assert len(beats) <= 1, f"the rank runs on two nodes: {beats}"
        await asyncio.sleep(0.5)
    nodes.start(place, number_of(node), "containerd")
    nodes.start(place, number_of(node), "kubelet")
    again = await muster.until_phase("zombie", "Running", seconds=90)
    assert again["job"]["failures"] == 0
    beats = [path for path in mark.glob("beat-*") if _fresh(path)]
    assert len(beats) <= 1


def _fresh(path: Path) -> bool:
    """Whether it was changed just now."""
    return time.time() - path.stat().st_mtime < 1.5


async def _is_lost(kube: Kube, name: str) -> bool:
    conditions = (await kube.node(name))["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "Unknown" for each in conditions)


async def _runs_elsewhere(muster: Muster, kube: Kube, name: str, node: str) -> Any:
    answer = await muster.job(name)
    if answer["job"]["phase"] != "Running" or answer["job"]["attempt"] < 2:
        return None
    return answer if all(rank["node"] != node for rank in answer["attempt"]["ranks"]) else None


async def _no_pods(kube: Kube) -> bool:
    return all(phase(pod) in ("Succeeded", "Failed") for pod in await kube.pods())


async def _why_contains(muster: Muster, name: str, text: str) -> Any:
    answer = await muster.why(name)
    return answer if text in str(answer) else None


async def _cordons_seen(muster: Muster, names: list[str], since: int) -> bool:
    events = (await muster.get("/v1/events", after=str(since), limit="1000"))["items"]
    infos = [event["payload"]["info"] for event in events if event["type"] == "NodeReported"]
    cordoned = {info["name"] for info in infos if "unschedulable" in str(info.get("taints", ""))}
    return cordoned >= set(names)


async def _forgets(muster: Muster, node: str) -> bool:
    try:
        await muster.post(f"/v1/nodes/{node}/forget")
    except Refusal:
        return False
    return True


async def _free(muster: Muster, name: str, gpus: int) -> bool:
    try:
        node = await muster.get(f"/v1/nodes/{name}")
    except Refusal:
        # It was given up, and has not come back yet.
        return False
    return bool(node["gpus_free"] == gpus)
