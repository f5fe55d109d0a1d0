"""Scenarios of the MPI operator's sync: MPIJob v2beta1, whose launcher it wraps in a batch Job."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from adapters.kubernetes.observe.labels import name_of
from adapters.kubernetes.reconcile.plan import CONFLICT_REASON, Ref
from controlplane.kinds.registry import read_manifest
from controlplane.model import commands as c
from controlplane.model.errors import Rejected
from tests.conformance.kubeflow import mpi, recommended
from tests.conformance.kubeflow.admission import refused_for_good
from tests.conformance.kubeflow.cluster import Bench
from tests.conformance.kubeflow.expecting import require_distinct, require_known, require_word
from tests.conformance.kubeflow.lives import (
    all_run,
    begun,
    compare_conditions,
    compare_counts,
    entry_of,
    put,
    put_shared,
    ranks_of,
)
from tests.conformance.kubeflow.reconcile import Outcome, start_all, status_of

Scenario = Mapping[str, Any]


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
    """What is refused at submission leads to nothing, and is not tried again."""
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
    refused_for_good(scenario)
    if "actions" in scenario["expect"]:
        assert scenario["expect"]["actions"] == []


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
    assert scenario["expect"]["error"] is True
    for named in scenario["given"]["foreign_owner_of"].split(" | "):
        bench = begun(mpi.document_of(scenario["api"], {"workers": 1}))
        ref = FOREIGN[named]
        theirs = {"kind": ref.kind, "metadata": {"name": ref.name}}
        bench.store.put(theirs)
        done = bench.reconcile()
        assert [Ref(each.kind, each.name) for each in done.conflicts] == [ref], named
        assert {each.reason for each in done.conflicts} == {scenario["expect"]["event_reason"]}
        assert bench.store.objects[ref] is theirs, "objects of another owner are not changed"
    assert scenario["expect"]["event_reason"] == CONFLICT_REASON


def _looks_once(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    more = {} if "workers" in given else {"workers": 2}
    if match := re.search(r"BackoffLimitExceeded.*failed=(\d+)", str(given.get("launcher_job"))):
        more["backoffLimit"] = int(match[1]) - 1
    bench = begun(mpi.document_of(scenario["api"], {**given, **more}))
    if bench.look().attempt is not None:  # type: ignore[union-attr]
        put_shared(bench)
        _history(bench, given)
        _put_mpi_pods(bench, given)
    done = bench.reconcile()
    if "recommended" in scenario:
        outcome = Outcome(bench, {}, 0, done)
        match = recommended.problems(outcome, scenario["recommended"])
        assert not match, match
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
    """The launcher fails as often as in the scenario, the last time with its last reason."""
    match = re.search(r"failed=(\d+)", given["launcher_job"])
    times = int(match[1]) if match else 1
    for turn in range(times):
        last = turn == times - 1
        ended = given.get("last_failed_pod" if last else "earlier_failed_pod", {})
        rank = ranks_of(bench, "Launcher")
        put(bench, "Launcher", {"phase": "Failed", "exitCode": 1}, rank)
        for name in bench.store.pods():
            if name.endswith("-launcher"):
                pod = bench.store.objects[Ref("Pod", name)]
                pod["status"]["containerStatuses"][0]["state"]["terminated"].update(ended)
        if not last:
            bench.pass_time(60.0)


CONDITION_TYPES = ("Created", "Running", "Restarting", "Succeeded", "Suspended", "Failed")
# What the compared conditions express already, in other words.
NOTES = ("Running is not re-asserted; its transition time is kept",)


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
    absent = expect.get("conditions_absent", ())
    require_distinct("conditions", absent)
    for condition in absent:
        require_word("condition", condition, CONDITION_TYPES)
        assert condition not in [each["type"] for each in status["conditions"]]
    if "failed_reason" in expect:
        failed = next(each for each in status["conditions"] if each["type"] == "Failed")
        assert failed["reason"] == expect["failed_reason"]
        assert failed["message"].endswith(expect.get("message_suffix", ""))
    if "extra" in expect:
        conditions = [f"{each['type']}={each['status']}" for each in status["conditions"]]
        added = re.fullmatch(r"(\w+=\w+) added", expect["extra"])
        assert added is not None, expect["extra"]
        assert added[1] in conditions
    if "note" in expect:
        require_word("note", expect["note"], NOTES)
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
        all_run(bench)
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
        counts = expect["replicaStatuses"]
        require_known(counts, ("Launcher", "Worker"))
        # The operator leaves the launcher's end to its Job; ours stops with the workers.
        gone = dict.fromkeys(counts["Launcher"], 0) if suspends else counts["Launcher"]
        assert not suspends or counts["Launcher"] == {"active": 1}
        compare_counts(bench, {"Launcher": gone, "Worker": counts["Worker"]})


def _made_from(template: Mapping[str, Any], pod: Mapping[str, Any], parts: Iterable[str]) -> None:
    """A launcher that is made when the job is resumed has everything of its present template."""
    require_distinct("parts", parts)
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
    made = [each["kind"] for each in done.created if "worker" not in name_of(each)]
    theirs = [kind.replace("Job (suspended)", "Pod") for kind in expect["created"]]
    assert sorted(made) == sorted(theirs)


READERS: dict[str, Callable[[Scenario], None]] = {"sync": sync, "first sync": first_sync}
