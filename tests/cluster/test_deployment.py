"""From an empty cluster to the first job, as in docs/kubernetes.md: the control plane in pods."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.testcluster import more_images, nodes
from deploy.testcluster.images import BUSYBOX
from deploy.testcluster.places import Place
from tests.cluster.kube import Kube, ignoring, until
from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests import example, job, shell

OVERLAYS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "overlays"
TRIAL, OLDEST = OVERLAYS / "trial", OVERLAYS / "oldest"
HOME = "muster-system"
# The control plane's pods go to these; the image is large.
HOSTS = (1, 2)
VOLUME = "postgres-of-the-trial"
TOKEN = ("-n", HOME, "get", "secret", "muster-token", "-o", "go-template={{.data.token | base64decode}}")  # fmt: skip


def overlay(folder: Path, *, oldest: bool) -> Path:
    """The overlay to try Muster with, on images that the test cluster has.

    With `oldest`, changed as the overlay for Kubernetes 1.20 changes the base.
    """
    waiting = {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": f"--waiting-image={BUSYBOX}"}  # fmt: skip
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(TRIAL, folder.resolve())],
        "images": [
            _instead("registry.example/muster", more_images.MUSTER),
            _instead("postgres", more_images.POSTGRES),
        ],
        "patches": [
            {"target": {"kind": "Deployment", "name": "muster"}, "patch": yaml.safe_dump([waiting])}
        ],
    }
    if oldest:
        kustomization["patches"] += yaml.safe_load((OLDEST / "kustomization.yaml").read_text())[
            "patches"
        ]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return folder


def render(folder: Path) -> Path:
    """As a file: kubectl of Kubernetes 1.20 cannot read today's kustomizations."""
    newer = shutil.which("kubectl")
    if newer is None:
        pytest.skip(
            "no kubectl on the PATH that is newer than the cluster's; "
            "`make cluster-up` builds one and prints its path"
        )
    done = subprocess.run([newer, "kustomize", str(folder)], capture_output=True, check=True)
    rendered = folder / "rendered.yaml"
    rendered.write_bytes(done.stdout)
    return rendered


def _instead(name: str, image: str) -> dict[str, str]:
    new, _, tag = image.rpartition(":")
    return {"name": name, "newName": new, "newTag": tag}


def volume(place: Place) -> dict[str, Any]:
    """The test cluster makes no volumes of its own accord."""
    folder = place.state / "postgres"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chown(folder, 999, 999)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": HOME, "name": "data-postgres-0"},
            "hostPath": {"path": str(folder)},
        },
    }


@pytest.fixture
async def deployed(
    place: Place, kube: Kube, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Kubectl]:
    for archive, name in (
        (more_images.postgres(place), more_images.POSTGRES),
        (more_images.muster(place), more_images.MUSTER),
    ):
        for node in HOSTS:
            more_images.load(place, node, archive, name)
    for node in set(nodes.known(place)) - set(HOSTS):
        await kube.cordon(f"node-{node}")
    is_old = await kube.minor() < 21
    folder = overlay(tmp_path, oldest=is_old)
    what = ("-f", str(render(folder))) if is_old else ("-k", str(folder))
    await kubectl.apply(volume(place))
    await kubectl("apply", *what)
    yield kubectl
    await kubectl("delete", *what, "--ignore-not-found", "--wait=false")
    await ignoring(404, kube.api.delete(f"/api/v1/persistentvolumes/{VOLUME}"))
    await until(lambda: _is_gone(kubectl), 90, f"the namespace {HOME} to go")


@pytest.fixture
def kubectl(bed: Any) -> Kubectl:
    return Kubectl(bed)


@pytest.mark.timeout(600, func_only=True)
async def test_from_an_empty_cluster_to_the_first_job(
    deployed: Kubectl, kube: Kube, tmp_path: Path
) -> None:
    await until(lambda: _ready(deployed), 240, "both replicas to be ready", every_s=1)
    await deployed("-n", HOME, "rollout", "status", "deployment/muster", "--timeout=30s")
    manifest = tmp_path / "pytorchjob.yaml"
    manifest.write_text(yaml.safe_dump(example("pytorchjob.yaml")))
    name = example("pytorchjob.yaml")["metadata"]["name"]
    async with forwarded(deployed) as url:
        env = {"MUSTER_URL": url, "MUSTER_TOKEN": await deployed(*TOKEN)}
        assert "node-1" in await muster(env, "top", "node")
        output = await muster(env, "submit", str(manifest), "--wait")
        assert name in output
        assert "Succeeded" in await muster(env, "get", name)
        speaks = tmp_path / "speaks.yaml"
        document = job("speaks", shell("echo for the next leader"), clean="All")
        speaks.write_text(yaml.safe_dump(document))
        await muster(env, "submit", str(speaks), "--wait")
        await until(lambda: _has_no_pod(deployed, "speaks"), 60, "the pods of speaks to go")
        leader = await _leader(deployed)
    await deployed("-n", HOME, "delete", "pod", leader, "--wait=false")
    await until(lambda: _led_by_another(deployed, leader), 60, "the other replica to lead")
    await until(lambda: _ready(deployed), 120, "both replicas to be ready again", every_s=1)
    async with forwarded(deployed) as url:
        # Whichever replica answers, the job is known, and another one runs.
        env["MUSTER_URL"] = url
        assert "Succeeded" in await muster(env, "get", name)
        assert "for the next leader" in await muster(env, "logs", "speaks")
        await muster(env, "delete", name)
        await muster(env, "submit", str(manifest), "--wait")


@asynccontextmanager
async def forwarded(kubectl: Kubectl) -> AsyncIterator[str]:
    """`kubectl port-forward service/muster`, and where that leads."""
    process = await kubectl.start("-n", HOME, "port-forward", "service/muster", ":80")
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
    match = re.search(r"127\.0\.0\.1:(\d+)", line)
    assert match, line
    try:
        yield f"http://127.0.0.1:{match.group(1)}"
    finally:
        process.terminate()
        await process.wait()


async def muster(env: dict[str, str], *words: str) -> str:
    """The command, as a person runs it on a machine of his own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", *words,
        env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 180)
    assert process.returncode == 0, f"muster {' '.join(words)}: {out.decode()}"
    return out.decode()


async def _ready(kubectl: Kubectl) -> bool:
    template = (
        "go-template={{.status.readyReplicas}}/{{.status.updatedReplicas}}/{{.status.replicas}}"
    )
    return await kubectl("-n", HOME, "get", "deployment", "muster", "-o", template) == "2/2/2"


async def _leader(kubectl: Kubectl) -> str:
    """The pod that holds the lease."""
    holder = await kubectl("-n", HOME, "get", "lease", "muster", "-o", "go-template={{.spec.holderIdentity}}")  # fmt: skip
    pods = (await kubectl("-n", HOME, "get", "pods", "-o", "name")).split()
    names = [pod.removeprefix("pod/") for pod in pods]
    return next((name for name in names if name in holder), "")


async def _led_by_another(kubectl: Kubectl, before: str) -> bool:
    now = await _leader(kubectl)
    return bool(now) and now != before


async def _has_no_pod(kubectl: Kubectl, job: str) -> bool:
    pods = (await kubectl("get", "pods", "-o", "name")).split()
    return not any(pod.startswith(f"pod/{job}-") for pod in pods)


async def _is_gone(kubectl: Kubectl) -> bool:
    return await kubectl.get("namespace", HOME) is None
