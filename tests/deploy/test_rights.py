"""The rights in the manifests against what the control plane asks of an API server that keeps to them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiohttp import web

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.leader_election.election import LeaseElection
from adapters.kubernetes.leader_election.lease_api import ApiLeases
from adapters.kubernetes.render import pod_group
from controlplane.kinds.registry import read_manifest
from controlplane.model import commands as c
from controlplane.ports import RankLogArchive
from tests.deploy.kustomize import MANIFESTS
from tests.fake_kubernetes import FakeKubernetes, Fate
from tests.fake_kubernetes.control import control_plane
from tests.fake_kubernetes.server import Asked, _asked
from tests.fake_kubernetes.store import Problem

EXAMPLES = Path(__file__).parents[2] / "examples"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Right(NamedTuple):
    verb: str
    group: str
    resource: str


def granted(folder: str = "base") -> set[Right]:
    """What the roles of a folder's manifests allow, names of objects left aside."""
    rights: set[Right] = set()
    for document in yaml.safe_load_all((MANIFESTS / folder / "rights.yaml").read_text()):
        for rule in document.get("rules", ()):
            rights |= {
                Right(verb, group, resource)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            }
    return rights


def right_of(request: web.Request, asked: Asked, watching: bool) -> Right:
    """As an API server names what is asked of it."""
    resource = asked.resource
    named = resource.plural + (f"/{asked.sub}" if asked.sub else "")
    match request.method:
        case "GET":
            verb = "watch" if watching else "get" if asked.name else "list"
        case "DELETE":
            verb = "delete" if asked.name else "deletecollection"
        case method:
            verb = VERBS[method]
    return Right(verb, resource.group, named)


class Strict(FakeKubernetes):
    """Refuses whatever the manifests do not allow, and keeps what was asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.allowed = granted()
        self.used: set[Right] = set()
        self.refused: set[Right] = set()

    async def _answer(self, request: web.Request, watching: bool) -> web.StreamResponse:
        right = right_of(request, _asked(request.path), watching)
        if right not in self.allowed:
            self.refused.add(right)
            raise Problem(403, "Forbidden", f"{right} is not granted")
        self.used.add(right)
        return await super()._answer(request, watching)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Strict]:
    async with Strict(tmp_path) as api:
        for i in range(2):
            api.kubelets.add_node(f"node-{i}", 8)
        yield api


def example(name: str, **changes: Any) -> Any:
    document = yaml.safe_load((EXAMPLES / name).read_text())
    document["metadata"]["namespace"] = "default"
    document["metadata"].update(changes)
    return read_manifest(document).spec


SHOWN = {
    "apiVersion": "muster.dev/v1",
    "kind": "Job",
    "metadata": {"name": "shown"},
    "spec": {
        "roles": [{"name": "worker", "image": "train:1"}],
        "supplies": {
            "data": [{"claim": "results", "path": "/results"}],
            "tensorboard": {"log_dir": "/results"},
        },
    },
}
# Granted, and not asked for by this test, each for a reason.
ELSEWHERE = {
    # So that it can be given to launchers.
    Right("create", "", "pods/exec"),
    # What still runs of a finished job whose pods are to be kept is given its last seconds.
    Right("patch", "", "pods"),
    # A list of hosts, unless all ranks came up between two looks.
    Right("patch", "", "configmaps"),
    # Objects that a user changed by hand, or that a scaled job outgrew.
    Right("patch", "", "services"),
    Right("patch", "rbac.authorization.k8s.io", "roles"),
    # After an answer that was lost: is it there?
    Right("get", "", "pods"),
    Right("get", "", "services"),
    Right("get", "", "configmaps"),
    # When a job is deleted while it is tended, its TensorBoard goes by name.
    Right("delete", "apps", "deployments"),
}


async def test_what_is_granted_is_enough_and_is_all_asked_for(
    api: Strict, tmp_path: Path, rank_logs: RankLogArchive
):
    api.kubelets.fate = lambda pod: Fate(0.1, 0)
    async with control_plane(api, archive=rank_logs) as plane:
        await plane.submit("ssh", example("mpijob.yaml"))
        await plane.submit("exec", example("mpijob-v1.yaml"))
        await plane.submit("shown", read_manifest(SHOWN).spec)
        for name in ("ssh", "exec", "shown"):
            await plane.until_phase(name, "Succeeded")
        for name in ("ssh", "exec", "shown"):
            await plane.ask(c.DeleteJob(namespace="default", name=name))
        await plane.until(lambda: not plane.pods)
        swept = {right for right in api.allowed if right.verb == "deletecollection"}
        await plane.until(lambda: swept <= api.used)
    connection = await Connection.open(Access(kubeconfig=api.kubeconfig))
    election = LeaseElection(ApiLeases(connection, "muster"), "muster", "me", clock=AsyncioClock())
    await election.won()
    await election.resign()
    await connection.close()

    assert api.refused == set()
    assert api.used <= api.allowed
    assert api.allowed - api.used <= ELSEWHERE, "an unused right should not be granted"


@pytest.mark.parametrize(
    ("overlay", "gang"),
    [("volcano", pod_group.VOLCANO), ("scheduler-plugins", pod_group.PLUGINS)],
)
async def test_an_overlay_grants_what_a_gang_scheduler_needs(
    api: Strict, overlay: str, gang: str
) -> None:
    more = granted(f"overlays/{overlay}")
    api.allowed |= more
    for i in range(2, 4):
        api.kubelets.add_node(f"node-{i}", 8)
    async with control_plane(api, gang=gang, binds_itself=False) as plane:
        await plane.submit("gang", example("pytorchjob.yaml"))
        await plane.until(lambda: _let_in(api) and bool(plane.pods))
        await plane.ask(c.DeleteJob(namespace="default", name="gang"))
        await plane.until(lambda: not plane.pods and not _let_in(api))

    assert api.refused == set()
    # A group is looked up after an answer that was lost, changed after an edit by hand, and asked
    # for its priority classes if the job names some.
    rare = {(right.verb, right.resource) for right in more - api.used}
    assert rare <= {("get", "podgroups"), ("patch", "podgroups"), ("get", "priorityclasses")}


def _let_in(api: Strict) -> bool:
    """Does as Volcano does: looks at a group, and lets its pods in."""
    groups = [
        (resource, each)
        for resource, objects in api.store.objects.items()
        if resource.plural == "podgroups"
        for each in objects.values()
    ]
    for resource, group in groups:
        metadata = group["metadata"]
        if "status" not in group:
            status = {"status": {"phase": "Inqueue"}}
            api.store.merge(resource, metadata["namespace"], metadata["name"], status)
    return bool(groups)
