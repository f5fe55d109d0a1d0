"""Scenarios of the operators' inner rules, seen from outside: conditions, slices, expectations."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from adapters.kubernetes.reconcile.plan import Plan, Ref, plan
from controlplane.model import commands as c
from controlplane.model.failures import Exit
from tests.adapters.kubernetes.jobs import is_empty
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.cluster import JOB, Bench
from tests.conformance.kubeflow.expecting import require_known, require_word
from tests.conformance.kubeflow.lives import begun
from tests.conformance.kubeflow.reconcile import conditions, fail_once, start_all, status_of

Scenario = Mapping[str, Any]

# ---------------------------------------------------------------------- conditions


def _job(bench: Bench) -> Any:
    job = bench.look()
    assert job is not None
    return job


def _finish(bench: Bench, code: int) -> None:
    bench.report(started=[0], exited=[Exit(0, code)])


def _suspend(bench: Bench) -> None:
    bench.ask(c.SuspendJob(namespace="default", name="job"))


def _resume(bench: Bench) -> None:
    bench.ask(c.ResumeJob(namespace="default", name="job"))


# What must happen to a job of one worker so that its operator sets a condition.
HAPPENINGS: dict[str, Callable[[Bench], None]] = {
    "Created=True": lambda bench: None,
    "Running=True": start_all,
    "Restarting=True": lambda bench: (start_all(bench), fail_once(bench))[0],
    "Succeeded=True": lambda bench: _finish(bench, 0),
    "Failed=True": lambda bench: _finish(bench, 1),
    "Suspended=True": _suspend,
    "Suspended=False": _resume,
}


def with_conditions(names: list[str]) -> Bench:
    replica = manifests.replica("TFJob", {"restartPolicy": "ExitCode"})
    bench = begun(manifests.job("TFJob", {"Worker": replica}))
    for name in names:
        happen(bench, name)
    return bench


def happen(bench: Bench, condition: str) -> None:
    assert condition in HAPPENINGS, f"no known events lead a job to {condition}"
    HAPPENINGS[condition](bench)
    # Long enough for a rank to come back from its back-off.
    bench.env.run(until=bench.env.now + 30.0)


def shown_conditions(bench: Bench) -> list[str]:
    shown = conditions(status_of(_job(bench)))
    return [f"{name}={status}" for name, status, _ in shown]


def set_condition(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("conditions", "changed"))
    named = re.findall(r"\w+=\w+", given["existing"]) if "existing" in given else None
    bench = with_conditions(named or given["conditions"])
    before = status_of(_job(bench))
    happen(bench, re.findall(r"\w+=\w+", given["set"])[0])
    if "conditions" in expect:
        assert sorted(shown_conditions(bench)) == sorted(expect["conditions"])
    if "changed" in expect:
        assert (status_of(_job(bench)) != before) == expect["changed"]


def is_finished(scenario: Scenario) -> None:
    bench = with_conditions(scenario["given"]["conditions"])
    assert _job(bench).finished == scenario["expect"]["finished"]


# ---------------------------------------------------------------------- pods


def slice_size(scenario: Scenario) -> None:
    """Every pod of a role is looked at, those above its size too, and no gap above it is filled."""
    given = scenario["given"]
    replica = manifests.replica("TFJob", {"replicas": given["replicas"]})
    bench = begun(manifests.job("TFJob", {"Worker": replica}))
    rendering = bench.rendering()
    like = rendering.pod(0)
    for index in given["pod_indices"]:
        metadata = {**like["metadata"], "name": f"job-worker-{index}"}
        bench.store.put({**like, "metadata": metadata, "status": {"phase": "Pending"}})
    done = bench.reconcile()
    looked_at = {*given["pod_indices"], *_indices(done.created_names("Pod")), given["replicas"] - 1}
    assert max(looked_at) + 1 == scenario["expect"]["size"]
    left = _indices(list(bench.store.pods()))
    assert left == list(range(given["replicas"])), "each replica once, and no others"


def _indices(names: list[str]) -> list[int]:
    return sorted(int(name.rpartition("-")[2]) for name in names)


def gate(scenario: Scenario) -> None:
    """Nothing is counted and expected here; a look at stale objects asks for the same names again,
    of which there can be only one."""
    require_known(scenario["expect"], ("reconcile",))
    if "recommended" in scenario:
        known = ("all keys must be satisfied",)
        require_word("recommendation", scenario["recommended"], known)
    else:
        assert scenario["expect"]["reconcile"] is True, "ours always looks"
    bench = begun(manifests.job("TFJob", {"Worker": manifests.replica("TFJob", {"replicas": 2})}))
    stale = dict(bench.store.objects)
    first = _planned(bench, stale)
    again = _planned(bench, stale)
    assert _refs(first) == _refs(again)
    assert len(set(_refs(again))) == len(again.create)
    bench.reconcile()
    assert is_empty(_planned(bench, bench.store.objects))


def _planned(bench: Bench, observed: Mapping[Ref, Any]) -> Plan:
    return plan(bench.rendering(), observed, lambda: ("", ""))


def _refs(planned: Plan) -> list[Ref]:
    return [Ref(each["kind"], each["metadata"]["name"]) for each in planned.create]


def create_pod(scenario: Scenario) -> None:
    """A pod that could not be made is asked for again at the next look."""
    require_known(scenario["given"], ("create_error",))
    require_known(scenario["expect"], ("expectation", "reconcile_error"))
    require_word("expectation", scenario["expect"]["expectation"], ("lowered again",))
    assert scenario["expect"]["reconcile_error"] is True
    bench = begun(manifests.job("TFJob", {"Worker": manifests.replica("TFJob")}))
    asked = _refs(_planned(bench, bench.store.objects))
    assert Ref("Pod", "job-worker-0") in asked
    assert _refs(_planned(bench, bench.store.objects)) == asked
    assert JOB in bench.engine.world.jobs


READERS: dict[str, Callable[[Scenario], None]] = {
    "set condition": set_condition,
    "is finished": is_finished,
    "slice size": slice_size,
    "gate": gate,
    "create pod": create_pod,
}
