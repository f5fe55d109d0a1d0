"""Scenarios of the list style of 2018: labels, who decides, and phases."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.lifecycle.job import Job, begin, evolve
from controlplane.model import events as e
from tests.conformance.kubeflow import manifests, mpi
from tests.conformance.kubeflow.cluster import Bench
from tests.conformance.kubeflow.expecting import require_known
from tests.conformance.kubeflow.lives import begun, entry_of, put, ranks_of
from tests.conformance.kubeflow.reconcile import of_job, status_of
from tests.conformance.kubeflow.shorthand import rendering

Scenario = Mapping[str, Any]
CHIEF = "Master"


def document(version: str, *, name: str = "j", runtime_id: str = "ab12") -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "x"}
    template = {"spec": {"containers": [container]}}
    entries = [{"tfReplicaType": sort, "template": template} for sort in ("MASTER", "WORKER")]
    return {
        "apiVersion": version,
        "kind": "TFJob",
        "metadata": {"name": name, "annotations": manifests.RANK_SCOPE},
        "spec": {"replicaSpecs": entries, "RuntimeId": runtime_id},
    }


def labels(scenario: Scenario) -> None:
    assert scenario["given"]["labels_of"] == "pod", scenario["given"]
    expect = scenario["expect"]
    rendered = rendering(document(scenario["api"]))
    rank = rendered.job.spec.ranks_of(expect["job_type"].capitalize())[int(expect["task_index"])]
    assert expect.items() <= rendered.pod(rank)["metadata"]["labels"].items()


def chief_state(scenario: Scenario) -> None:
    """The state of the job's chief decides the state of the job."""
    require_known(scenario["expect"], ("state",))
    bench = begun(document(scenario["api"]))
    container = scenario["given"]["chief_container"]
    if container != "no pod yet":
        status = {"phase": PHASES[container.split()[0].rstrip(",")], **_container(container)}
        _put(bench, status)
    bench.reconcile()
    assert _state(bench) == scenario["expect"]["state"]


PHASES = {"running": "Running", "terminated": "Failed", "waiting": "Pending"}


def _container(text: str) -> dict[str, Any]:
    """A container's status, from words such as `running, last termination exit 1`."""
    entry: dict[str, Any] = {"name": "tensorflow", "state": {}}
    code = re.search(r"exit (\d+)", text)
    ended = {"exitCode": int(code[1])} if code else {}
    if "OOMKilled" in text:
        ended["reason"] = "OOMKilled"
    if text.startswith("terminated"):
        entry["state"] = {"terminated": ended}
    elif text.startswith("running"):
        entry["state"] = {"running": {}}
        if "last termination" in text:
            entry["lastState"] = {"terminated": ended}
            entry["restartCount"] = 1
    else:
        entry["state"] = {"waiting": {"reason": "ContainerCreating"}}
    phase = {"phase": "Succeeded"} if ended.get("exitCode") == 0 and "terminated" in text else {}
    return {"containerStatuses": [entry], **phase}


def _put(bench: Bench, status: Mapping[str, Any]) -> None:
    rendered = bench.rendering()
    for rank in ranks_of(bench, CHIEF):
        bench.store.put({**rendered.pod(rank), "status": dict(status)})


def _state(bench: Bench) -> str:
    assert bench.job is not None
    state: str = status_of(bench.job)["state"]
    return state


def reconcile(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("phase", "state", "then"))
    bench = begun(document(scenario["api"]))
    for role, phase in given.items():
        entry = entry_of(phase)
        if entry["phase"] == "Succeeded":
            entry["exitCode"] = 0
        name = CHIEF if role == "chief" else role.capitalize()
        put(bench, name, entry, ranks_of(bench, name))
    bench.reconcile()
    assert bench.job is not None
    assert _state(bench) == expect["state"]
    if "then" in expect:
        bench.pass_time(10.0)
        assert expect["then"] == "resources deleted, phase Done", expect["then"]
        assert status_of(bench.job)["phase"] == "Done"
        assert not bench.store.pods()
    if "phase" in expect:
        assert expect["phase"] in phases(bench)
    if given.get("worker", "").startswith("Failed"):
        bench.pass_time(60.0)
        assert "j-worker-ab12-0" in bench.done.created_names("Pod"), "a failed worker is replaced"


def phases(bench: Bench) -> list[str]:
    """Every phase that the job was ever in, read off its whole life."""
    shown: list[str] = []
    job: Job | None = None
    for recorded in of_job(bench.recorded()):
        first = isinstance(recorded.event, e.JobSubmitted)
        job = begin(recorded) if first else evolve(job, recorded)
        shown.append(status_of(job)["phase"])
    return shown


def mpi_launcher(scenario: Scenario) -> None:
    """The launcher of 2018 was made only when every worker was ready."""
    given = scenario["given"]
    bench = begun(mpi.document_of_2018({"replicas": given["workers"], "gpu_limit": 1}))
    bench.reconcile()
    ready = ranks_of(bench, "Worker")[: given["workers_ready"]]
    put(bench, "Worker", {"phase": "Running", "ready": True}, ready)
    bench.reconcile()
    made = "j-launcher" in bench.done.created_names("Pod")
    assert made == scenario["expect"]["launcher_created"]


READERS: dict[str, Callable[[Scenario], None]] = {
    "labels": labels,
    "chief state": chief_state,
    "MPIJob launcher": mpi_launcher,
}
