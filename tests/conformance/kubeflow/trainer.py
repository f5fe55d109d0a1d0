"""Scenarios of the Kubeflow Trainer's TrainJob."""

from collections.abc import Callable, Mapping
from typing import Any

from adapters.kubernetes.reconcile.plan import Ref
from adapters.kubernetes.render.site import Site
from controlplane.model import commands as c
from controlplane.model.failures import Exit
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.cluster import Bench
from tests.conformance.kubeflow.expecting import require_known, require_word
from tests.conformance.kubeflow.lives import begun, nothing_runs
from tests.conformance.kubeflow.reconcile import status_of
from tests.conformance.kubeflow.shorthand import env_of, rendering

Scenario = Mapping[str, Any]
VERSION = "trainer.kubeflow.org/v1alpha1"
INDEX_FIELD = "fieldRef:metadata.annotations['batch.kubernetes.io/job-completion-index']"
# The runtimes that come with the trainer, by the policy that a scenario names.
RUNTIMES = {
    "torch": "torch-distributed",
    "jax": "jax-distributed",
    "xgboost": "xgboost-distributed",
    "mpi": "mpi-distributed",
}


def document(given: Mapping[str, Any]) -> dict[str, Any]:
    policy = given.get("runtime", "torch")
    runtime = RUNTIMES[policy]
    if policy == "mpi" and given.get("runLauncherAsNode") is False:
        runtime = "mpi-launcher"
    limits = {}
    if given.get("gpu"):
        limits["nvidia.com/gpu"] = given["gpu"]
    if given.get("cpu_per_node"):
        limits["cpu"] = str(given["cpu_per_node"])
    trainer: dict[str, Any] = {"image": "x", "numNodes": _nodes(given)}
    if limits:
        trainer["resourcesPerNode"] = {"limits": limits}
    if given.get("numProcPerNode") is not None:
        trainer["numProcPerNode"] = given["numProcPerNode"]
    spec: dict[str, Any] = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    for name in ("activeDeadlineSeconds", "suspend"):
        if isinstance(given.get(name), int):
            spec[name] = given[name]
    return {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": {"name": given.get("job", "t"), "annotations": manifests.RANK_SCOPE},
        "spec": spec,
    }


def _nodes(given: Mapping[str, Any]) -> int:
    nodes = given.get("numNodes", 1)
    return nodes if isinstance(nodes, int) else 2


def environment(scenario: Scenario) -> None:
    given = {"runtime": scenario["when"].split()[0], **scenario["given"]}
    rendered = rendering(document(given))
    # Under MPI the launcher, the last rank, gets the addresses of the others.
    rank = rendered.job.spec.size - 1 if given["runtime"] == "mpi" else 0
    ours = env_of(rendered.pod(rank)["spec"]["containers"][0])
    for name, value in scenario["expect"].items():
        theirs = INDEX_FIELD if value == "fieldRef job-completion-index" else str(value)
        assert ours.get(name) == theirs, name


def hostfile(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("node_pods", "hostfile"))
    rendered = rendering(document(scenario["given"]))
    data = {k: v for each in rendered.config_maps([]) for k, v in each["data"].items()}
    assert data["hostfile"] == scenario["expect"]["hostfile"]
    if "node_pods" in scenario["expect"]:
        assert len(rendered.job.spec.ranks_of("node")) == scenario["expect"]["node_pods"]


# ---------------------------------------------------------------------- reconcile


def reconcile(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    for key, reader in GIVEN.items():
        if key in given:
            reader(scenario, given, expect)
            return
    raise AssertionError(f"there is no reader for a TrainJob that is given {sorted(given)}")


def _conditions(bench: Bench) -> list[str]:
    assert bench.job is not None
    conditions = status_of(bench.job).get("conditions", [])
    return [f"{each['type']}={each['status']}/{each['reason']}" for each in conditions]


def _deadline(scenario: Scenario, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    require_known(expect, ("condition", "jobset"))
    bench = begun(document(given))
    bench.reconcile()
    bench.pass_time(float(given["created_s_ago"]))
    assert expect["condition"] in _conditions(bench)
    if "jobset" in expect:
        require_word("jobset", expect["jobset"], ("deleted",))
        nothing_runs(bench)


def _suspend(scenario: Scenario, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    require_known(expect, ("condition",))
    if isinstance(given["suspend"], bool):
        bench = begun(document(given))
        bench.reconcile()
        assert expect["condition"] in _conditions(bench), _conditions(bench)
        return
    suspends = given["suspend"].endswith("true")
    bench = begun(document({**given, "suspend": not suspends}))
    bench.reconcile()
    command = c.SuspendJob if suspends else c.ResumeJob
    bench.ask(command(namespace="default", name="t"))
    bench.reconcile()
    assert expect["condition"] in _conditions(bench), _conditions(bench)


def _pod_group(scenario: Scenario, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    """While a job runs its pod group stays as it is."""
    require_known(expect, ("podgroup_updated",))
    bench = begun(document(given), site=Site(gang="scheduler-plugins"))
    bench.reconcile()
    before = bench.store.objects[Ref("PodGroup", "t")]
    bench.ask(c.ScaleJob(namespace="default", name="t", role="node", replicas=3))
    changed = bench.store.objects[Ref("PodGroup", "t")] != before
    assert changed == expect["podgroup_updated"]


def _creation_fails(
    scenario: Scenario, given: Mapping[str, Any], expect: Mapping[str, Any]
) -> None:
    """What cannot be created is reported with the reason where people look for it."""
    assert scenario["recommended"] == "condition with the error", scenario["recommended"]
    bench = begun(document(given))
    bench.store.put({"kind": "Service", "metadata": {"name": "t"}})
    done = bench.reconcile()
    assert [each.name for each in done.conflicts] == ["t"]
    assert bench.job is not None
    (condition,) = status_of(bench.job)["conditions"]
    assert done.conflicts[0].message in condition["message"]


def _job_set(scenario: Scenario, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    """A job set that has ended is a gang whose nodes have."""
    require_known(expect, ("condition",))
    bench = begun(document(given))
    code = 0 if given["jobset"].startswith("Complete") else 1
    for _ in range(20):
        if bench.job is None or bench.job.finished:
            break
        bench.report(started=[0], exited=[Exit(0, code)])
        bench.pass_time(400.0, step_s=100.0)
    assert expect["condition"] in _conditions(bench), _conditions(bench)


GIVEN: dict[str, Callable[[Scenario, Mapping[str, Any], Mapping[str, Any]], None]] = {
    "activeDeadlineSeconds": _deadline,
    "podgroup": _pod_group,
    "suspend": _suspend,
    "jobset_apply": _creation_fails,
    "jobset": _job_set,
}
