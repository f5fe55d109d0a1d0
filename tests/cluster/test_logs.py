"""What containers wrote, all of them, while their pods are there and after they are gone."""

from typing import Any

import pytest

from tests.cluster.control import Muster, Refusal
from tests.cluster.kube import Kube, until
from tests.cluster.manifests import job, shell

BUSYBOX = "localhost/busybox:1"


def several() -> dict[str, Any]:
    """A rank of three containers: one that prepares, a sidecar, and the main one."""
    pod = {
        "initContainers": [
            {"name": "prepare", "image": BUSYBOX, "command": shell("echo from prepare")}
        ],
        "containers": [
            {"name": "worker", "image": BUSYBOX, "command": shell("echo from worker; sleep 1")},
            {"name": "sidecar", "image": BUSYBOX, "command": shell("echo from sidecar")},
        ],
    }
    manifest = job("several", [], clean="All")
    manifest["spec"]["roles"] = [{"name": "worker", "template": {"spec": pod}}]
    return manifest


async def test_the_lines_of_every_container_outlive_their_pod(muster: Muster, kube: Kube) -> None:
    await muster.submit(several())
    await muster.until_phase("several", "Succeeded")

    async def gone() -> bool:
        return not await kube.pods()

    await until(gone, 30, "the pods to go")
    path = "/v1/jobs/default/several/logs"
    assert (await muster.get(path))["lines"] == ["from worker"]
    for name in ("prepare", "worker", "sidecar"):
        logs = await muster.get(path, container=name)
        assert logs["lines"] == [f"from {name}"]
    with pytest.raises(Refusal, match="prepare, worker, sidecar"):
        await muster.get(path, container="other")
