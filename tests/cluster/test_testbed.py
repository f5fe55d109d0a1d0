"""The test cluster itself: what the other suites take for granted."""

import asyncio
from typing import Any

import pytest

from deploy.testcluster import nodes, oldest
from deploy.testcluster.images import BUSYBOX, PYTHON
from deploy.testcluster.places import Place, node_name
from tests.cluster.kube import NAMESPACE, OURS, Kube, phase, until

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"


def pod(name: str, command: str, node: str, *, image: str = BUSYBOX, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "command": ["/bin/sh", "-c", command]}
    return {
        "metadata": {"name": name, "labels": {OURS: "testbed", "app": name}},
        "spec": {"restartPolicy": "Never", "nodeName": node, "containers": [container], **spec},
    }


async def ended(kube: Kube, name: str, seconds: float = 40) -> str:
    async def reached() -> str:
        now = phase(await kube.pod(name))
        return now if now in ("Succeeded", "Failed") else ""

    return str(await until(reached, seconds, f"{name} to end"))


async def test_a_pod_runs_and_its_exit_code_and_log_are_kept(place: Place, kube: Kube) -> None:
    await kube.api.create(PODS, pod("speaks", "echo hello; exit 5", node_name(1)))
    assert await ended(kube, "speaks") == "Failed"
    finished = await kube.pod("speaks")
    assert finished is not None
    assert finished["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    assert await kube.log("speaks") == "hello\n"


async def test_pods_on_two_nodes_reach_each_other_by_address_and_by_name(
    place: Place, kube: Kube
) -> None:
    if oldest.is_wanted(place):
        pytest.skip("busybox' nc does not end on the oldest one; the trainings show names there")
    service = {
        "metadata": {"name": "listens", "labels": {OURS: "testbed"}},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": "listens"},
            "ports": [{"port": 7000}],
            "publishNotReadyAddresses": True,
        },
    }
    await kube.api.create(SERVICES, service)
    await kube.api.create(PODS, pod("listens", "echo answer | nc -l -p 7000", node_name(1)))
    ask = "for i in $(seq 50); do nc listens 7000 </dev/null 2>/dev/null && exit 0; sleep 0.2; done; exit 1"
    await kube.api.create(PODS, pod("asks", ask, node_name(2)))
    assert await ended(kube, "asks") == "Succeeded", await kube.log("asks")
    assert await kube.log("asks") == "answer\n"


async def test_python_in_a_pod_has_numpy_and_reaches_the_api_server(
    place: Place, kube: Kube
) -> None:
    # Without DNS the server has the address in the environment of pods.
    server = f"{place.api}:443" if oldest.is_wanted(place) else "kubernetes.default.svc"
    script = (
        "import numpy, ssl, urllib.request, os; print(numpy.linalg.norm(numpy.ones(16)));"
        "t = ssl.create_default_context(cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt');"
        f"print(urllib.request.urlopen('https://{server}/version', context=t).status)"
    )
    await kube.api.create(PODS, pod("counts", f'python3 -c "{script}"', node_name(2), image=PYTHON))
    assert await ended(kube, "counts") == "Succeeded", await kube.log("counts")
    assert await kube.log("counts") == "4.0\n200\n"


async def test_devices_are_handed_out_and_can_fall_sick(place: Place, kube: Kube) -> None:
    asked = pod("sees", "echo $NVIDIA_VISIBLE_DEVICES", node_name(1))
    asked["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "3"}}
    await kube.api.create(PODS, asked)
    assert await ended(kube, "sees") == "Succeeded"
    assert len((await kube.log("sees")).split(",")) == 3
    nodes.sicken(place, 1, "GPU-2")
    await until(lambda: _has(kube, 1, "7"), 20, "the sick device to be taken out")
    nodes.sicken(place, 1)
    await until(lambda: _has(kube, 1, "8"), 20, "the device to be well")


async def test_a_node_that_loses_power_is_noticed_and_comes_back(place: Place, kube: Kube) -> None:
    nodes.off(place, 3)
    await until(lambda: _is_ready(kube, 3, "Unknown"), 40, "the node to be missed")
    nodes.up(place, 3)
    await until(lambda: _is_ready(kube, 3, "True"), 40, "the node to be back")


async def test_a_pod_lives_on_when_its_kubelet_dies(place: Place, kube: Kube) -> None:
    await kube.api.create(PODS, pod("lives", "while :; do date +%s; sleep 0.2; done", node_name(4)))
    await until(lambda: _runs(kube, "lives"), 60, "the pod to run")
    nodes.kill(place, 4, "kubelet")
    await until(lambda: _is_ready(kube, 4, "Unknown"), 40, "the node to be missed")
    assert nodes.inside(place, 4, ["pgrep", "-f", "sleep 0.2"]).returncode == 0
    nodes.start(place, 4, "kubelet")
    await until(lambda: _is_ready(kube, 4, "True"), 40, "the node to be back")


async def test_memory_beyond_the_limit_is_an_oom_kill(place: Place, kube: Kube) -> None:
    hungry = pod("hungry", "python3 -c 'x = bytes([1]) * (200 << 20)'", node_name(2), image=PYTHON)
    hungry["spec"]["containers"][0]["resources"] = {"limits": {"memory": "40Mi"}}
    await kube.api.create(PODS, hungry)
    assert await ended(kube, "hungry") == "Failed"
    killed = await kube.pod("hungry")
    assert killed is not None
    assert killed["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"


async def test_made_up_nodes_run_every_pod_that_is_bound_to_them(made_up: int, kube: Kube) -> None:
    for index in range(20):
        made = pod(f"made-up-{index}", "unheard of", f"made-up-{index % 4}", image="no/such:1")
        made["metadata"]["annotations"] = {
            "made-up/seconds": "1",
            "made-up/exit-code": str(index % 2),
        }
        await kube.api.create(PODS, made)
    ends = await asyncio.gather(*(ended(kube, f"made-up-{index}") for index in range(20)))
    assert list(ends) == ["Succeeded", "Failed"] * 10


async def _has(kube: Kube, node: int, gpus: str) -> bool:
    answer = await kube.node(node_name(node))
    return bool(answer["status"]["allocatable"]["nvidia.com/gpu"] == gpus)


async def _is_ready(kube: Kube, node: int, status: str) -> bool:
    conditions = (await kube.node(node_name(node)))["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == status for each in conditions)


async def _runs(kube: Kube, name: str) -> bool:
    return phase(await kube.pod(name)) == "Running"
