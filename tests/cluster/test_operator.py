"""Kubeflow's jobs as people apply them with kubectl, on a real cluster and with real pods."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deploy.testcluster.images import BUSYBOX
from tests.cluster.control import Muster
from tests.cluster.kube import Kube, TestBed, until
from tests.cluster.kubectl import Failed, Kubectl
from tests.cluster.manifests import example, shell

# The other examples want images that the test cluster does not have.
KINDS = {
    "tfjob": "tfjob-ps-workers.yaml",
    "tfjobs.v1beta1.kubeflow.org": "tfjob-v1beta1.yaml",
    "tfjobs.v1alpha1.kubeflow.org": "tfjob-v1alpha1.yaml",
    "pytorchjob": "pytorchjob.yaml",
    "pytorchjobs.v1.kubeflow.org": "pytorchjob-elastic.yaml",
    "mpijob": "mpijob.yaml",
    "mxjob": "mxjob.yaml",
    "xgboostjobs.kubeflow.org": "xgboostjob.yaml",
    "paddlejob": "paddlejob-collective.yaml",
    "jaxjob": "jaxjob.yaml",
    "trainjob": "trainjob-torch.yaml",
    "hostfilejob": "hostfilejob-cntk.yaml",
    "jobs.muster.dev": "native.yaml",
}


# In the image that the Kubeflow operator uses for it no rank waits here: no registry is reached.
OPTIONS = ("--operator", "--waiting-image", BUSYBOX)

_HAVE_DEFINITIONS: set[TestBed] = set()


@pytest.fixture
async def kubectl(bed: TestBed) -> AsyncIterator[Kubectl]:
    kubectl = Kubectl(bed)
    if bed not in _HAVE_DEFINITIONS:
        await kubectl.install_definitions()
        await kubectl.clear()
        _HAVE_DEFINITIONS.add(bed)
    yield kubectl
    await kubectl.clear()


@pytest.fixture
async def operator(
    bed: TestBed, kube: Kube, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[Muster]:
    async with Muster(bed.kubeconfig, tmp_path, *OPTIONS) as muster:
        yield muster


def workers(name: str, command: str, replicas: int = 2, **policy: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": BUSYBOX, "command": shell(command)}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    worker = {"replicas": replicas, "restartPolicy": "Never", "template": {"spec": pod}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}, "runPolicy": policy},
    }


FOR_EVER = "trap 'exit 0' TERM; while :; do sleep 0.2; done"


@pytest.mark.parametrize("kind", KINDS)
async def test_apply_watch_describe_and_delete(
    operator: Muster, kubectl: Kubectl, kube: Kube, kind: str
) -> None:
    manifest = example(KINDS[kind])
    if kind == "mxjob":
        # Its end is the job's.
        scheduler = manifest["spec"]["mxReplicaSpecs"]["Scheduler"]["template"]["spec"]
        scheduler["containers"][0]["command"] = shell("sleep 1")
    name, word = manifest["metadata"]["name"], manifest["kind"]
    watching = await kubectl.start("get", kind, "-w", "--no-headers")
    assert "created" in await kubectl.apply(manifest)
    pods = await until(kube.pods, 60, "the first pod")
    await kubectl.until_state(kind, name, "Succeeded")
    watching.terminate()
    output, _ = await watching.communicate()
    states = [line.split()[1] for line in output.decode().splitlines() if len(line.split()) > 3]
    assert states[-1] == "Succeeded", output.decode()
    assert set(states) & {"Starting", "Running"}, output.decode()

    described = await kubectl("describe", kind, name)
    for expected in ("SuccessfulCreatePod", f"{word}Succeeded"):
        assert expected in described

    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods} == {word}
    assert "deleted" in await kubectl("delete", kind, name)
    await kubectl.until_gone(kind, name)
    await until(lambda: _no_pods(kube), 60, "the pods to go")
    await until(lambda: _no_jobs(operator), 30, "Muster to forget the job")


async def _no_pods(kube: Kube) -> bool:
    return not await kube.pods()


async def _no_jobs(muster: Muster) -> bool:
    return not (await muster.get("/v1/jobs"))["items"]


async def test_a_failure_is_reported_with_the_exit_code(operator: Muster, kubectl: Kubectl) -> None:
    await kubectl.apply(workers("fails", "exit 3", 1, backoffLimit=0))
    await kubectl("wait", "--for=condition=Failed", "--timeout=60s", "pytorchjob/fails")
    described = await kubectl("describe", "pytorchjob", "fails")
    assert "worker-0 exited with code 3" in described
    assert "PyTorchJobFailed" in described


async def test_a_problem_is_shown_where_people_look(operator: Muster, kubectl: Kubectl) -> None:
    wrong = workers("wrong", "true")
    wrong["spec"]["runPolicy"] = {"backofLimit": 1}
    await kubectl.apply(wrong)
    await kubectl.until_state("pytorchjob", "wrong", "Refused")
    problem = "spec.runPolicy.backofLimit: there is no such field; did you mean backoffLimit?"
    assert problem in await kubectl("describe", "pytorchjob", "wrong")
    assert problem in await kubectl("get", "pytorchjob", "wrong", "-o", "wide")
    # What has the wrong type does not even get in.
    wrong["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "two"
    with pytest.raises(Failed, match=r"Worker\.replicas.*must be of type integer"):
        await kubectl.apply(wrong)

    await kubectl.apply(workers("wrong", "true"))
    await kubectl.until_state("pytorchjob", "wrong", "Succeeded")


async def test_edits_suspension_and_scale(operator: Muster, kubectl: Kubectl, kube: Kube) -> None:
    manifest = workers("edited", FOR_EVER)
    manifest["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    await kubectl.apply(manifest)
    await kubectl.until_state("pytorchjob", "edited", "Running")

    await kubectl("scale", "pytorchjob", "edited", "--replicas=3")
    await until(lambda: _ready(kubectl, "edited", "3/3"), 60, "three workers")

    await _patch(kubectl, "edited", '{"spec":{"runPolicy":{"suspend":true}}}')
    await kubectl.until_state("pytorchjob", "edited", "Suspended")
    await until(lambda: _no_pods(kube), 60, "the pods to go")
    await _patch(kubectl, "edited", '{"spec":{"runPolicy":{"suspend":false}}}')
    await kubectl.until_state("pytorchjob", "edited", "Running")

    body = '{"spec":{"runPolicy":{"schedulingPolicy":{"queue":"other"}}}}'
    await _patch(kubectl, "edited", body)

    async def is_reported() -> bool:
        return "NotApplied" in await kubectl("describe", "pytorchjob", "edited")

    await until(is_reported, 30, "the report that the queue stays")


async def _patch(kubectl: Kubectl, name: str, body: str) -> None:
    await kubectl("patch", "pytorchjob", name, "--type=merge", "-p", body)


async def _ready(kubectl: Kubectl, name: str, ready: str) -> bool:
    document = await kubectl.get("pytorchjob", name)
    return document is not None and document["status"]["muster"]["ready"] == ready


async def test_a_time_to_live_deletes_the_resource(
    operator: Muster, kubectl: Kubectl, kube: Kube
) -> None:
    await kubectl.apply(workers("brief", "true", ttlSecondsAfterFinished=3))
    await kubectl.until_gone("pytorchjob", "brief")
    await until(lambda: _no_pods(kube), 60, "the pods to go")


async def test_what_happened_while_muster_was_down_is_noticed(
    operator: Muster, kubectl: Kubectl, kube: Kube
) -> None:
    for name in ("stays", "goes"):
        await kubectl.apply(workers(name, FOR_EVER, 1))
    for name in ("stays", "goes"):
        await kubectl.until_state("pytorchjob", name, "Running")
    stays = [
        pod["metadata"]["uid"] for pod in await kube.pods() if "stays" in pod["metadata"]["name"]
    ]
    operator.kill()

    await kubectl("delete", "pytorchjob", "goes")
    await kubectl.apply(workers("comes", FOR_EVER, 1))
    await operator.start()
    await kubectl.until_state("pytorchjob", "comes", "Running")

    async def only_these() -> bool:
        uids = (await operator.get("/v1/jobs"))["items"]
        return sorted(each["name"] for each in uids) == ["comes", "stays"]

    await until(only_these, 60, "the job whose resource went to go")
    assert await kubectl.state("pytorchjob", "stays") == "Running"

    async def only_theirs() -> bool:
        uids = {pod["metadata"]["uid"] for pod in await kube.pods()}
        assert set(stays) <= uids
        return len(uids) == 2

    # An old kubelet takes its time to let a pod go whose containers have ended.
    await until(only_theirs, 60, "the pods of the job that went to go")


async def test_another_replica_goes_on_where_the_leader_was_killed(
    bed: TestBed, kube: Kube, kubectl: Kubectl, tmp_path: Path
) -> None:
    shared = (*OPTIONS, "--standby", "--db", str(tmp_path / "shared.db"))
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    manifest = workers("lasts", FOR_EVER)
    manifest["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    async with (
        Muster(bed.kubeconfig, folders[0], *shared) as first,
        Muster(bed.kubeconfig, folders[1], *shared) as second,
    ):
        await kubectl.apply(manifest)
        await kubectl.until_state("pytorchjob", "lasts", "Running")
        before = {pod["metadata"]["uid"] for pod in await kube.pods()}
        first.kill()

        await kubectl("scale", "pytorchjob", "lasts", "--replicas=3")
        await until(lambda: _ready(kubectl, "lasts", "3/3"), 60, "the third worker")
        after = {pod["metadata"]["uid"] for pod in await kube.pods()}
        assert before < after, "a rank was started again"
        await kubectl("delete", "pytorchjob", "lasts")
        await until(lambda: _no_jobs(second), 60, "Muster to forget the job")
