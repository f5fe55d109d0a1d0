"""A real distributed training in pods on two nodes."""

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.testcluster.images import PYTHON
from tests.cluster.control import Muster
from tests.cluster.kube import Kube, node_of

PROGRAM = (Path(__file__).parent / "train.py").read_text()
GPUS = 8


def replica(replicas: int, gpus: int, program: str = PROGRAM) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": PYTHON,
        "command": ["python3", "-c", program],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    return {"replicas": replicas, "restartPolicy": "Never", "template": template}


def pytorch_job(name: str, *, workers: int, gpus: int, **policy: Any) -> dict[str, Any]:
    specs = {"Master": replica(1, gpus), "Worker": replica(workers, gpus)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": specs, "runPolicy": {"cleanPodPolicy": "None", **policy}},
    }


@pytest.mark.parametrize(("workers", "gpus", "nodes"), [(1, GPUS, 2), (3, GPUS // 2, 2)])
async def test_ranks_on_two_nodes_find_each_other_and_train(
    muster: Muster, kube: Kube, workers: int, gpus: int, nodes: int
) -> None:
    await muster.submit(pytorch_job("trains", workers=workers, gpus=gpus))
    await muster.until_phase("trains", "Succeeded", seconds=120)
    pods = await kube.pods()
    assert len({node_of(pod) for pod in pods}) == nodes
    logs = [await kube.log(pod["metadata"]["name"]) for pod in pods]
    ends = [re.search(r"trained rank=(\d+) of=(\d+) .*error=([\d.]+)", text) for text in logs]
    assert all(ends), logs
    assert sorted(int(end[1]) for end in ends if end) == list(range(workers + 1))
    assert {int(end[2]) for end in ends if end} == {workers + 1}
    # They computed the same, so they did it together.
    assert len({end[3] for end in ends if end}) == 1


async def test_what_the_ranks_wrote_is_read_through_muster(muster: Muster, kube: Kube) -> None:
    await muster.submit(pytorch_job("speaks", workers=1, gpus=1))
    await muster.until_phase("speaks", "Succeeded", seconds=120)
    for rank in (0, 1):
        lines = await muster.logs("speaks", rank)
        assert any(f"trained rank={rank} of=2" in line for line in lines), lines
