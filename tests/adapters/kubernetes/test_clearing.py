"""Objects of finished jobs are deleted, also after a crash, and no other objects are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from adapters.kubernetes.api.errors import ServerError
from adapters.kubernetes.observe.labels import name_of
from adapters.logs.memory_log import MemoryLog
from controlplane.kinds.registry import read_manifest
from controlplane.model import commands as c
from controlplane.model.failures import Exit
from controlplane.model.spec import CleanPods
from tests.fake_kubernetes import FakeKubernetes, Fate
from tests.fake_kubernetes.control import cluster_of, control_plane
from tests.fake_kubernetes.store import Resource

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
CONFIG_MAPS = Resource("", "v1", "configmaps")
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with cluster_of(tmp_path) as api:
        yield api


@pytest.mark.parametrize("clean", [CleanPods.ALL, CleanPods.NONE])
async def test_accounts_of_a_finished_job_make_room_for_the_next_of_its_name(
    api: FakeKubernetes, clean: CleanPods
) -> None:
    """An old MPI launcher has a role of its own, which no informer watches."""
    api.kubelets.fate = lambda pod: Fate(0.05) if "launcher" in name_of(pod) else Fate()
    manifest = yaml.safe_load((EXAMPLES / "mpijob-v1.yaml").read_text())
    launched = replace(read_manifest(manifest).spec, clean=clean)
    async with control_plane(api) as plane:
        await plane.submit("train", launched)
        await plane.until(lambda: bool(api.store.all(ROLES)))
        await plane.until_phase("train", "Succeeded")
        await plane.until(lambda: not api.store.all(ROLES))


@pytest.mark.parametrize("clean", [CleanPods.ALL, CleanPods.NONE])
async def test_accounts_are_recognised_after_a_crash(api: FakeKubernetes, clean: CleanPods) -> None:
    """The first control plane dies when its job has succeeded, before any of it was removed."""
    manifest = yaml.safe_load((EXAMPLES / "mpijob-v1.yaml").read_text())
    launched = replace(read_manifest(manifest).spec, clean=clean)
    log = MemoryLog()
    async with control_plane(api, log) as plane:
        await plane.submit("train", launched)
        await plane.until_phase("train", "Running")
        await plane.cluster.connect(lambda report: None)
        plane.cluster.carry_out = _nothing  # type: ignore[method-assign]
        for report in _ends(plane):
            await plane.ask(report)
        await plane.until_phase("train", "Succeeded")
        assert api.store.all(ROLES)
    async with control_plane(api, log) as plane:
        await plane.until(lambda: not api.store.all(ROLES))
        asked = api.requests["DELETE"]
        await asyncio.sleep(1.5)
        assert api.requests["DELETE"] <= asked + 10, "what went once is not asked for again"


async def test_accounts_of_another_installation_are_left_alone(api: FakeKubernetes) -> None:
    api.kubelets.fate = lambda pod: Fate(0.05) if "launcher" in name_of(pod) else Fate()
    manifest = yaml.safe_load((EXAMPLES / "mpijob-v1.yaml").read_text())
    async with control_plane(api) as plane:
        await plane.submit("train", read_manifest(manifest).spec)
        await plane.until(lambda: bool(api.store.all(ROLES)))
        (role,) = api.store.all(ROLES)
        labels = {**role["metadata"]["labels"], "muster.dev/instance": "another"}
        metadata = {"name": "theirs", "namespace": "default", "labels": labels}
        api.store.create(ROLES, "default", {**role, "metadata": metadata})
        await plane.until_phase("train", "Succeeded")
        await plane.until(lambda: len(api.store.all(ROLES)) == 1)
        await asyncio.sleep(0.2)
        assert [name_of(each) for each in api.store.all(ROLES)] == ["theirs"]


async def test_what_reminds_of_accounts_stays_until_they_are_gone(api: FakeKubernetes) -> None:
    api.kubelets.fate = lambda pod: Fate(0.05) if "launcher" in name_of(pod) else Fate()
    manifest = yaml.safe_load((EXAMPLES / "mpijob-v1.yaml").read_text())
    log = MemoryLog()
    async with control_plane(api, log) as plane:
        _cannot_delete(plane, "roles")
        await plane.submit("train", read_manifest(manifest).spec)
        await plane.until_phase("train", "Succeeded")
        await plane.ask(c.DeleteJob(namespace="default", name="train", id="delete"))
        await plane.until(lambda: plane.job("train") is None)
        await asyncio.sleep(1.0)
        assert api.store.all(ROLES)
        assert api.store.all(CONFIG_MAPS)
    async with control_plane(api, log) as plane:
        await plane.until(lambda: not api.store.all(CONFIG_MAPS))
        assert not api.store.all(ROLES)


def _cannot_delete(plane: Any, plural: str) -> None:
    connection = plane.cluster._connection
    delete = connection.delete

    async def refusing(path: str, *args: Any, **more: Any) -> Any:
        if path.endswith(plural):
            raise ServerError("not now", status=500)
        return await delete(path, *args, **more)

    connection.delete = refusing


async def _nothing(effects: Any) -> None:
    """A control plane that is about to die does nothing more."""


def _ends(plane: Any) -> list[c.ReportRanks]:
    job = plane.job("train")
    size = job.spec.size
    ends = tuple(Exit(rank, 0) for rank in range(size))
    return [c.ReportRanks(job=job.id, attempt=1, exited=ends)]
