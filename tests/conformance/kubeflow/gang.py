"""Scenarios of gang scheduling: the content of a pod group, and that it is written only when it changes."""

from collections.abc import Callable, Mapping
from typing import Any

from adapters.kubernetes.reconcile.plan import Ref
from adapters.kubernetes.render.pod_group import PLUGINS, VOLCANO
from adapters.kubernetes.render.site import Site
from controlplane.kinds.kind import GangContext
from controlplane.kinds.manifest.pod_group import PodGroup, pod_group
from controlplane.model.failures import Exit
from controlplane.model.quantities import parse
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.expecting import require_known
from tests.conformance.kubeflow.lives import begun
from tests.conformance.kubeflow.shorthand import ROLES

Scenario = Mapping[str, Any]
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
GROUP = Ref("PodGroup", "job")


def group_of(scenario: Scenario, **more: Any) -> PodGroup:
    given = scenario["given"]
    kind = "MPIJob" if scenario["kind"] == "MPIJob" else "TFJob"
    submission = manifests.understood(_document(kind, scenario["api"], given))
    gang = GangContext(submission.namespace, submission.name, submission.spec)
    classes = given.get("priorityClasses")
    return pod_group(gang, classes if isinstance(classes, dict) else None, **more)


def _document(kind: str, version: str, given: Mapping[str, Any]) -> dict[str, Any]:
    roles = {}
    for key, role in ROLES.items():
        entry = given.get(key)
        if isinstance(entry, dict):
            roles[role] = _replica(kind, entry)
        elif (key == "launcher" and kind == "MPIJob") or isinstance(entry, str):
            roles[role] = _replica(kind, {"priorityClassName": entry} if entry else {})
    scheduling = dict(given.get("schedulingPolicy") or {})
    for name in ("minAvailable", "minMember"):
        if given.get(name) is not None:
            scheduling["minAvailable"] = given[name]
    queue = given.get("annotation_queue")
    fields = {"runLauncherAsWorker": True} if given.get("runLauncherAsWorker") else {}
    return manifests.job(
        kind,
        roles,
        version=version,
        annotations={QUEUE_ANNOTATION: queue} if queue else {},
        runPolicy={"schedulingPolicy": scheduling} if scheduling else {},
        **fields,
    )


def _replica(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    amounts = given.get("containers", [_amounts(given)])
    names = [manifests.FIELDS[kind][1], *(f"c{i}" for i in range(1, len(amounts)))]
    containers = [
        {"name": names[i], "image": "x", "resources": {"requests": _texts(each)}}
        for i, each in enumerate(amounts)
    ]
    pod: dict[str, Any] = {"containers": containers}
    if given.get("priorityClassName"):
        pod["priorityClassName"] = given["priorityClassName"]
    return {"replicas": given.get("n", 1), "template": {"spec": pod}}


def _amounts(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in given if name not in ("n", "priorityClassName")}


def _texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def same_amounts(ours: Mapping[str, str] | None, theirs: Mapping[str, Any]) -> None:
    """Amounts may be written in several ways: 1Gi is 1024Mi."""
    amounts = {name: _number(text) for name, text in (ours or {}).items()}
    assert amounts == {name: _number(text) for name, text in theirs.items()}, (ours, theirs)


def _number(text: Any) -> Any:
    parsed = parse(str(text))
    assert parsed is not None, text
    return parsed.amount


def pod_group_of(scenario: Scenario) -> None:
    group, expect = group_of(scenario), scenario["expect"]
    require_known(expect, ("volcano", "scheduler_plugins", *CHECKS))
    for part in (expect.get("volcano", {}), expect.get("scheduler_plugins", {}), expect):
        require_known(part, ("volcano", "scheduler_plugins", *CHECKS))
        for name, value in part.items():
            if name in CHECKS:
                CHECKS[name](group, value)


def _is(ours: object, theirs: object) -> None:
    assert ours == theirs


CHECKS: dict[str, Callable[[PodGroup, Any], None]] = {
    "minMember": lambda group, value: _is(group.min_member, value),
    "queue": lambda group, value: _is(group.queue, value),
    "priorityClassName": lambda group, value: _is(group.priority_class, value),
    "scheduleTimeoutSeconds": lambda group, value: _is(group.schedule_timeout_s, value),
    "minResources": lambda group, value: same_amounts(group.min_resources, value),
}


def min_resources(scenario: Scenario) -> None:
    group = group_of(scenario)
    same_amounts(group.min_resources, scenario["expect"])


def pod_resources(scenario: Scenario) -> None:
    """What one pod is counted as, seen in a gang of one."""
    resources = {
        name: _texts(scenario["given"][name])
        for name in ("requests", "limits")
        if name in scenario["given"]
    }
    container = {"name": "mpi", "image": "x", "resources": resources}
    roles = {"Launcher": {"template": {"spec": {"containers": [container]}}}}
    submission = manifests.understood(manifests.job("MPIJob", roles, version=scenario["api"]))
    group = pod_group(GangContext("default", "job", submission.spec))
    same_amounts(group.min_resources, scenario["expect"])


def update_pod_group(scenario: Scenario) -> None:
    given = scenario["given"]
    policy = {"schedulingPolicy": given["schedulingPolicy"]}
    bench = begun(_plain(policy), site=Site(gang=VOLCANO), queue=given["schedulingPolicy"]["queue"])
    before = bench.rendering().pod_group(None)
    spec = {**before["spec"], "queue": given["existing_podgroup_queue"]}
    bench.store.put({**before, "spec": spec, "status": {"phase": "Inqueue"}})
    bench.reconcile()
    assert bench.store.objects[GROUP]["spec"]["queue"] == scenario["expect"]["queue"]


def _plain(policy: Mapping[str, Any]) -> dict[str, Any]:
    return manifests.job("TFJob", {"Worker": manifests.replica("TFJob")}, runPolicy=dict(policy))


def reconcile(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    scheduler = {"volcano": VOLCANO, "scheduler-plugins": PLUGINS}.get(
        given.get("scheduler", "volcano"), VOLCANO
    )
    bench = begun(_plain({}), site=Site(gang=scheduler))
    if given.get("podgroup") == "unchanged":
        _no_write(scenario, bench)
        return
    require_known(expect, ("pods_created",))
    group = bench.rendering().pod_group(None)
    phase = given["podgroup_phase"]
    status = {} if phase == "any" else {"status": {"phase": phase}}
    bench.store.put({**group, **status})
    done = bench.reconcile()
    made = {"all": ["job-worker-0"], "none": [], 0: []}[expect["pods_created"] or "none"]
    assert done.created_names("Pod") == made


def _no_write(scenario: Scenario, bench: Any) -> None:
    assert "no write" in scenario["recommended"]
    bench.reconcile()
    before = dict(bench.store.objects)
    bench.done = type(bench.done)()
    done = bench.reconcile()
    assert (done.created, done.deleted, done.patched) == ([], [], [])
    assert bench.store.objects == before


def each_reconcile(scenario: Scenario) -> None:
    """The deletion of a pod group is reported once, however often it is reconciled."""
    assert scenario["recommended"] == "one event per real deletion", scenario["recommended"]
    bench = begun(_plain({}), site=Site(gang=VOLCANO))
    bench.reconcile()
    bench.report(started=[0])
    bench.report(exited=[Exit(0, 0)])
    for _ in range(3):
        bench.reconcile()
    assert bench.done.deleted_names("PodGroup") == ["job"]
    reasons = [notice.reason for notice in bench.notices]
    assert reasons.count("SuccessfulDeletePodGroup") == 1


READERS: dict[str, Callable[[Scenario], None]] = {
    "PodGroup": pod_group_of,
    "PodGroup priorityClass": pod_group_of,
    "minResources": min_resources,
    "pod resources counted": pod_resources,
    "update PodGroup": update_pod_group,
    "each reconcile": each_reconcile,
}
