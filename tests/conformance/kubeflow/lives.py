"""Scenarios of a job's life beyond one look: reconciles and syncs in shorter words.

Each brings a real job to where the scenario begins, lets the control plane look, and compares what
the scenario speaks of.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adapters.kubernetes.reconcile.desired_pods import is_over
from adapters.kubernetes.render.site import Site
from controlplane.model import commands as c
from controlplane.model.errors import Rejected
from controlplane.model.policy import Queue
from tests.conformance.kubeflow import manifests, mpi
from tests.conformance.kubeflow.cluster import JOB, Bench
from tests.conformance.kubeflow.expecting import require_known, require_word
from tests.conformance.kubeflow.reconcile import (
    PATIENCE_S,
    conditions,
    counts,
    pod_status,
    status_of,
)

Scenario = Mapping[str, Any]


def begun(
    document: Mapping[str, Any], *, site: Site | None = None, queue: str = "default"
) -> Bench:
    """A bench on which the manifest was submitted, with all the patience that a start may need."""
    patient = dict(document)
    spec = dict(patient["spec"])
    policy = dict(spec.get("runPolicy") or {})
    if "mpiReplicaSpecs" in spec or "runPolicy" in spec:
        scheduling = {"scheduleTimeoutSeconds": PATIENCE_S}
        spec["runPolicy"] = {"schedulingPolicy": scheduling, **policy}
    bench = Bench(0.0, site)
    bench.ask(c.DefineQueue(queue=Queue(queue)))
    answer = bench.submit(manifests.understood({**patient, "spec": spec}))
    assert not isinstance(answer, Rejected), answer.message
    return bench


def entry_of(phase: str) -> dict[str, Any]:
    """The pod that `Failed exit 137` and the like describe."""
    entry: dict[str, Any] = {"phase": phase.split()[0].rstrip(",")}
    if match := re.search(r"exit (\d+)", phase):
        entry["exitCode"] = int(match[1])
    if match := re.search(r"reason (\w+)", phase):
        entry["podReason"] = match[1]
    if "Evicted" in phase:
        entry["podReason"] = "Evicted"
    if "Ready condition" in phase:
        entry["ready"] = True
    return entry


def put(bench: Bench, role: str, entry: Mapping[str, Any], ranks: Iterable[int]) -> None:
    """Pods of a role as they were made for the current attempt, in a state."""
    rendering = bench.rendering()
    job = rendering.job
    container = (job.spec.role(role) or job.spec.roles[0]).container or "mpi"
    for rank in ranks:
        status = pod_status(entry, container)
        if entry.get("ready"):
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        bench.store.put({**rendering.pod(rank), "status": status})


def put_shared(bench: Bench) -> None:
    """Everything besides the pods, as it was made before."""
    rendering = bench.rendering()
    for document in (
        *rendering.services(),
        *rendering.config_maps([]),
        *rendering.accounts(),
        *(rendering.secret(name, lambda: ("", "")) for name in rendering.secrets()),
    ):
        bench.store.put(document)


def ranks_of(bench: Bench, role: str) -> list[int]:
    job = bench.look()
    assert job is not None
    return list(job.spec.ranks_of(role))


def compare_counts(bench: Bench, expected: Mapping[str, Mapping[str, int]]) -> None:
    """A scenario names only the counts that are not 0."""
    assert bench.job is not None
    ours = counts(status_of(bench.job))
    theirs = {
        role: {name: entry.get(name, 0) for name in ("active", "succeeded", "failed")}
        for role, entry in expected.items()
    }
    assert {role: ours[role] for role in theirs} == theirs


def compare_conditions(bench: Bench, expected: Iterable[str]) -> None:
    """Conditions written as `Type=Status/Reason`; the reason may be left out."""
    assert bench.job is not None
    ours = conditions(status_of(bench.job), [("Created",)])
    theirs = [re.fullmatch(r"(\w+)=(\w+)(?:/(\w+))?", text) for text in expected]
    expected_conditions = [tuple(match.groups()) for match in theirs if match]
    assert len(expected_conditions) == len(theirs), expected
    if not any(each[0] == "Created" for each in expected_conditions):
        ours = [each for each in ours if each[0] != "Created"]
    short = [
        (name, status, reason if theirs_reason else None)
        for (name, status, reason), (_, _, theirs_reason) in zip(
            ours, expected_conditions, strict=False
        )
    ]
    assert len(ours) == len(expected_conditions), (ours, expected_conditions)
    assert sorted(short, key=str) == sorted(expected_conditions, key=str), (
        ours,
        expected_conditions,
    )


def nothing_runs(bench: Bench) -> None:
    """Kubelets need a moment to end the pods that are being deleted."""
    bench.pass_time(3.0)
    assert all(is_over(pod) for pod in bench.store.pods().values()), "something still runs"


def holds(bench: Bench, condition: str) -> bool:
    assert bench.job is not None
    return any(each[:2] == (condition, "True") for each in conditions(status_of(bench.job)))


# ---------------------------------------------------------------------- MPIJob v1


def mpi_v1(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    known = ("replicaStatuses", "condition", "created", "pods_deleted")
    require_known(expect, (*known, "serviceaccount_created", "launcher_uses"))
    bench = begun(mpi.document_of(scenario["api"], given))
    put_shared(bench)
    if "launcher_serviceAccountName" in given:
        bench.store.objects.clear()
    if "launcher_phase" in given:
        put(bench, "Launcher", entry_of(given["launcher_phase"]), ranks_of(bench, "Launcher"))
    if "worker_phase" in given:
        put(bench, "Worker", entry_of(given["worker_phase"]), ranks_of(bench, "Worker"))
    done = bench.reconcile()
    if "recommended" in scenario:
        _mpi_v1_recommended(scenario["recommended"], bench)
        return
    if "replicaStatuses" in expect:
        compare_counts(bench, expect["replicaStatuses"])
    if "condition" in expect:
        assert holds(bench, expect["condition"]), status_of(bench.job)  # type: ignore[arg-type]
    if "created" in expect:
        theirs = [name.replace("<job>", "job") for name in expect["created"]]
        assert done.created_names("Pod") == theirs
    if "serviceaccount_created" in expect:
        made = bool(done.created_names("ServiceAccount"))
        assert made == expect["serviceaccount_created"]
    if "launcher_uses" in expect:
        pod = bench.store.pods()["job-launcher"]
        assert pod["spec"]["serviceAccountName"] == expect["launcher_uses"]


def _mpi_v1_recommended(recommended: str, bench: Bench) -> None:
    assert recommended == "failed worker replaced", f"there is no reader for {recommended!r}"
    before = set(bench.done.deleted_names("Pod"))
    assert before, "no failed worker was removed"
    bench.pass_time(60.0)
    assert before <= set(bench.done.created_names("Pod"))


def scale_down(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    name = expect["deleted"][0].split("-")[0]
    bench = begun(mpi.document_of(scenario["api"], {**given, "job_name": name}))
    bench.reconcile()
    all_run(bench)
    bench.done.created.clear()
    bench.ask(c.ScaleJob(namespace="default", name=name, role="Worker", replicas=given["then"]))
    done = bench.reconcile()
    assert done.deleted_names("Pod") == expect["deleted"]
    assert done.created_names("Pod") == []
    if "note" in expect:
        require_word("note", expect["note"], ("by replica-index label",))


def all_run(bench: Bench) -> None:
    for rank, pod in enumerate(bench.rendering().names):
        document = bench.store.pods()[pod]
        role = bench.rendering().job.spec.role_of(rank)[0]
        status = pod_status({"phase": "Running"}, role.container or "mpi")
        bench.store.put({**document, "status": status})
    bench.reconcile()


# ---------------------------------------------------------------------- time


def waits(scenario: Scenario, seconds: float) -> None:
    """Time passes and nothing else happens."""
    given = scenario["given"]
    finished = bool(given.get("finished"))
    document = (
        mpi.document_of(scenario["api"], given)
        if scenario["kind"] == "MPIJob"
        else _plain(scenario["kind"].split("/")[0], given)
    )
    bench = begun(document)
    bench.reconcile()
    all_run(bench)
    if finished:
        rank = bench.job.spec.ranks_of(bench.job.spec.done_when.role)[0]  # type: ignore[union-attr]
        put(bench, bench.job.spec.roles[0].name, {"phase": "Succeeded", "exitCode": 0}, [rank])  # type: ignore[union-attr]
        bench.reconcile()
    bench.pass_time(seconds + 1.0)
    _recommended_in_time(bench, scenario["recommended"], seconds)


def _plain(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    policy = {"activeDeadlineSeconds": given["activeDeadlineSeconds"]}
    return manifests.job(kind, {"Worker": manifests.replica(kind)}, runPolicy=policy)


def _recommended_in_time(bench: Bench, recommended: str, seconds: float) -> None:
    job = bench.job
    assert job is not None
    if recommended.startswith("Failed within 1 s"):
        assert job.phase.value == "Failed"
        assert job.finished_at is not None
        assert job.finished_at <= (job.active_at or 0.0) + (job.spec.active_deadline_s or 0.0) + 1.0
    elif recommended.endswith("deleted"):
        assert JOB not in bench.engine.world.jobs
        assert not bench.store.objects, "something is left of it"
    elif "released" in recommended:
        assert job.phase.value == "Failed"
        nothing_runs(bench)
    else:
        raise AssertionError(f"there is no reader for the recommendation {recommended!r}")


READERS: dict[str, Callable[[Scenario], None]] = {
    "scale down": scale_down,
}
