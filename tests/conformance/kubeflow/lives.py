"""Scenarios of a job's life beyond one look: reconciles and syncs told in shorter words.

Each brings a real job to where the scenario begins, lets the control plane look, and compares what
the scenario speaks of. Table by table: what is given (GIVEN), then what is expected (EXPECTED).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from adapters.kubernetes.marks import name_of
from adapters.kubernetes.plan import CONFLICT_REASON, Ref, is_over
from adapters.kubernetes.site import Site
from controlplane import commands as c
from controlplane.errors import Rejected
from controlplane.kinds.registry import read_manifest
from controlplane.model import Queue
from tests.conformance.kubeflow import manifests, mpi, recommended
from tests.conformance.kubeflow.cluster import JOB, Bench
from tests.conformance.kubeflow.reconcile import (
    PATIENCE_S,
    Outcome,
    conditions,
    counts,
    pod_status,
    start_all,
    status_of,
)
from tests.conformance.kubeflow.shorthand import require_known

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
    """A pod as `Failed exit 137` and the like tell of it."""
    entry: dict[str, Any] = {"phase": phase.split()[0].rstrip(",")}
    if found := re.search(r"exit (\d+)", phase):
        entry["exitCode"] = int(found[1])
    if found := re.search(r"reason (\w+)", phase):
        entry["podReason"] = found[1]
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
    """Everything beside the pods, as it was made before."""
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
        role: {name: told.get(name, 0) for name in ("active", "succeeded", "failed")}
        for role, told in expected.items()
    }
    assert {role: ours[role] for role in theirs} == theirs


def compare_conditions(bench: Bench, expected: Iterable[str]) -> None:
    """Conditions written as `Type=Status/Reason`; the reason may be left out."""
    assert bench.job is not None
    ours = conditions(status_of(bench.job), [("Created",)])
    theirs = [re.fullmatch(r"(\w+)=(\w+)(?:/(\w+))?", text) for text in expected]
    told = [tuple(match.groups()) for match in theirs if match]
    assert len(told) == len(theirs), expected
    if not any(each[0] == "Created" for each in told):
        ours = [each for each in ours if each[0] != "Created"]
    short = [
        (name, status, reason if theirs_reason else None)
        for (name, status, reason), (_, _, theirs_reason) in zip(ours, told, strict=False)
    ]
    assert len(ours) == len(told), (ours, told)
    assert sorted(short, key=str) == sorted(told, key=str), (ours, told)


def nothing_runs(bench: Bench) -> None:
    """Kubelets need a moment to end what was told to end."""
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
    assert recommended == "failed worker replaced", f"nobody reads {recommended!r}"
    before = set(bench.done.deleted_names("Pod"))
    assert before, "no failed worker was removed"
    bench.pass_time(60.0)
    assert before <= set(bench.done.created_names("Pod"))


def scale_down(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    name = expect["deleted"][0].split("-")[0]
    bench = begun(mpi.document_of(scenario["api"], {**given, "job_name": name}))
    bench.reconcile()
    _all_run(bench)
    bench.done.created.clear()
    bench.ask(c.ScaleJob(namespace="default", name=name, role="Worker", replicas=given["then"]))
    done = bench.reconcile()
    assert done.deleted_names("Pod") == expect["deleted"]
    assert done.created_names("Pod") == []


def _all_run(bench: Bench) -> None:
    for rank, pod in enumerate(bench.rendering().names):
        document = bench.store.pods()[pod]
        role = bench.rendering().job.spec.role_of(rank)[0]
        status = pod_status({"phase": "Running"}, role.container or "mpi")
        bench.store.put({**document, "status": status})
    bench.reconcile()


# ---------------------------------------------------------------------- MPIJob v2beta1


def sync(scenario: Scenario) -> None:
    given = scenario["given"]
    if given.get("spec") == "empty":
        _refused(scenario)
    elif "foreign_owner_of" in given:
        _foreign(scenario)
    elif "->" in str(given.get("suspend", "")):
        _changes_its_mind(scenario)
    else:
        _looks_once(scenario)


def _refused(scenario: Scenario) -> None:
    """What is refused at the door leads to nothing, and nobody tries it again."""
    require_known(scenario["expect"], ("actions", "event_reason", "requeued"))
    document = {
        "apiVersion": scenario["api"],
        "kind": "MPIJob",
        "metadata": {"name": "job"},
        "spec": {},
    }
    with pytest.raises(Rejected) as refusal:
        read_manifest(document)
    assert refusal.value.problems


# What a scenario calls an object, and ours of that name.
FOREIGN = {
    "launcher Job": Ref("Pod", "job-launcher"),
    "worker pod": Ref("Pod", "job-worker-0"),
    "ConfigMap": Ref("ConfigMap", "job-config"),
    "Service": Ref("Service", "job"),
    "Secret": Ref("Secret", "job-ssh"),
}


def _foreign(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("error", "event_reason"))
    for named in scenario["given"]["foreign_owner_of"].split(" | "):
        bench = begun(mpi.document_of(scenario["api"], {"workers": 1}))
        ref = FOREIGN[named]
        theirs = {"kind": ref.kind, "metadata": {"name": ref.name}}
        bench.store.put(theirs)
        done = bench.reconcile()
        assert [Ref(each.kind, each.name) for each in done.conflicts] == [ref], named
        assert {each.reason for each in done.conflicts} == {scenario["expect"]["event_reason"]}
        assert bench.store.objects[ref] is theirs, "what is somebody else's is not touched"
    assert scenario["expect"]["event_reason"] == CONFLICT_REASON


def _looks_once(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    more = {} if "workers" in given else {"workers": 2}
    if found := re.search(r"BackoffLimitExceeded.*failed=(\d+)", str(given.get("launcher_job"))):
        more["backoffLimit"] = int(found[1]) - 1
    bench = begun(mpi.document_of(scenario["api"], {**given, **more}))
    if bench.look().attempt is not None:  # type: ignore[union-attr]
        put_shared(bench)
        _history(bench, given)
        _put_mpi_pods(bench, given)
    done = bench.reconcile()
    if "recommended" in scenario:
        outcome = Outcome(bench, {}, 0, done)
        found = recommended.problems(outcome, scenario["recommended"])
        assert not found, found
        return
    _compare_sync(bench, expect)
    if "actions" in expect:
        assert not done.created
        assert not done.deleted
        assert expect["actions"] == []


def _history(bench: Bench, given: Mapping[str, Any]) -> None:
    if "Running=True" in given.get("conditions", []) or "deleted_pod" in given:
        start_all(bench)


def _put_mpi_pods(bench: Bench, given: Mapping[str, Any]) -> None:
    workers, launcher = ranks_of(bench, "Worker"), ranks_of(bench, "Launcher")
    phase = given.get("worker_phase")
    if "deleted_pod" in given:
        phase = "Running"
        gone = int(given["deleted_pod"].rpartition("-")[2])
        workers = [rank for rank in workers if rank != workers[gone]]
        put(bench, "Launcher", entry_of("Running"), launcher)
    if given.get("launcher_pod", "").startswith("Failed once"):
        phase = "Running"
    if phase:
        put(bench, "Worker", entry_of(phase), workers)
    if str(given.get("launcher_job", "")).startswith("Complete"):
        put(bench, "Launcher", {"phase": "Succeeded", "exitCode": 0}, launcher)
    elif str(given.get("launcher_job", "")).startswith("Failed"):
        _fail_launcher(bench, given)
    elif "launcher_pod" in given:
        entry = entry_of(given["launcher_pod"])
        more = {"exitCode": 1} if entry["phase"] == "Failed" else {}
        put(bench, "Launcher", {**more, **entry}, launcher)


def _fail_launcher(bench: Bench, given: Mapping[str, Any]) -> None:
    """The launcher fails as often as the scenario says, the last time with its last reason."""
    found = re.search(r"failed=(\d+)", given["launcher_job"])
    times = int(found[1]) if found else 1
    for turn in range(times):
        last = turn == times - 1
        told = given.get("last_failed_pod" if last else "earlier_failed_pod", {})
        rank = ranks_of(bench, "Launcher")
        put(bench, "Launcher", {"phase": "Failed", "exitCode": 1}, rank)
        for name in bench.store.pods():
            if name.endswith("-launcher"):
                pod = bench.store.objects[Ref("Pod", name)]
                pod["status"]["containerStatuses"][0]["state"]["terminated"].update(told)
        if not last:
            bench.pass_time(60.0)


def _compare_sync(bench: Bench, expect: Mapping[str, Any]) -> None:
    known = ("conditions", "replicaStatuses", "note", "failed_reason", "message_suffix", "extra")
    more = ("launcher_created", "conditions_absent", "created", "actions", "startTime_set")
    require_known(expect, (*known, *more))
    job = bench.job
    assert job is not None
    status = status_of(job)
    if "conditions" in expect:
        compare_conditions(bench, expect["conditions"])
    if "replicaStatuses" in expect:
        compare_counts(bench, expect["replicaStatuses"])
    for condition in expect.get("conditions_absent", ()):
        assert condition not in [each["type"] for each in status["conditions"]]
    if "failed_reason" in expect:
        failed = next(each for each in status["conditions"] if each["type"] == "Failed")
        assert failed["reason"] == expect["failed_reason"]
        assert failed["message"].endswith(expect.get("message_suffix", ""))
    if "extra" in expect:
        told = [f"{each['type']}={each['status']}" for each in status["conditions"]]
        assert expect["extra"].split()[0] in told
    if "startTime_set" in expect:
        assert ("startTime" in status) == expect["startTime_set"]
    if "launcher_created" in expect:
        made = "job-launcher" in bench.done.created_names("Pod")
        assert made == expect["launcher_created"]
    if "created" in expect:
        theirs = [re.sub(r"^w-", "job-worker-", name) for name in expect["created"]]
        assert bench.done.created_names("Pod") == theirs


def _changes_its_mind(scenario: Scenario) -> None:
    """A running job is suspended, or a suspended one resumed."""
    given, expect = scenario["given"], scenario["expect"]
    suspends = given["suspend"].endswith("true")
    document = mpi.document_of(scenario["api"], {**given, "suspend": not suspends})
    template = document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    template["metadata"] = {"labels": {"l": "1"}, "annotations": {"a": "1"}}
    template["spec"].update(nodeSelector={"n": "1"}, tolerations=[{"key": "t"}])
    template["spec"]["schedulingGates"] = [{"name": "g"}]
    bench = begun(document)
    bench.reconcile()
    if suspends:
        _all_run(bench)
    bench.env.run(until=100.0)
    bench.done = type(bench.done)()
    command = c.SuspendJob if suspends else c.ResumeJob
    bench.ask(command(namespace="default", name="job"))
    done = bench.reconcile()
    known = ("launcher_job_suspend", "deleted_workers", "conditions", "replicaStatuses")
    more = ("created_workers", "launcher_template_synced", "startTime")
    require_known(expect, (*known, *more))
    compare_conditions(bench, expect["conditions"])
    # Without a Job around it, a suspended launcher is a launcher without a pod.
    assert ("job-launcher" not in bench.store.pods()) == expect["launcher_job_suspend"]
    if "deleted_workers" in expect:
        assert len(_workers(done.deleted_names("Pod"))) == expect["deleted_workers"]
    if "created_workers" in expect:
        assert len(_workers(done.created_names("Pod"))) == expect["created_workers"]
    if "launcher_template_synced" in expect:
        _made_from(template, bench.store.pods()["job-launcher"], expect["launcher_template_synced"])
    if "startTime" in expect:
        assert expect["startTime"] == "now"
        assert status_of(bench.job)["startTime"] == "1970-01-01T00:01:40Z"  # type: ignore[arg-type]
    if "replicaStatuses" in expect:
        compare_counts(bench, {"Worker": expect["replicaStatuses"]["Worker"]})


def _made_from(template: Mapping[str, Any], pod: Mapping[str, Any], parts: Iterable[str]) -> None:
    """A launcher that is made when the job is resumed has everything that its template says now."""
    for part in parts:
        name = part.removesuffix("(merge)")
        if name in ("labels", "annotations"):
            assert template["metadata"][name].items() <= pod["metadata"][name].items(), name
        else:
            assert pod["spec"][name] == template["spec"][name], name


def _workers(names: list[str]) -> list[str]:
    return [name for name in names if "-worker-" in name]


def first_sync(scenario: Scenario) -> None:
    """A job that is submitted suspended has no pods. What it needs is made when it is resumed."""
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("created", "worker_pods", "conditions", "startTime_set"))
    bench = begun(mpi.document_of(scenario["api"], given))
    bench.reconcile()
    assert len(bench.store.pods()) == expect["worker_pods"]
    compare_conditions(bench, expect["conditions"])
    assert ("startTime" in status_of(bench.job)) == expect["startTime_set"]  # type: ignore[arg-type]
    bench.ask(c.ResumeJob(namespace="default", name="job"))
    done = bench.reconcile()
    made = {each["kind"] for each in done.created if "worker" not in name_of(each)}
    assert made == {kind.replace("Job (suspended)", "Pod") for kind in expect["created"]}


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
    _all_run(bench)
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
        raise AssertionError(f"nobody reads the recommendation {recommended!r}")


READERS: dict[str, Callable[[Scenario], None]] = {
    "sync": sync,
    "first sync": first_sync,
    "scale down": scale_down,
}
PATTERNS: tuple[tuple[str, Callable[[Scenario, float], None]], ...] = (
    (r"(?:wait|after) (\d+) s", waits),
)
