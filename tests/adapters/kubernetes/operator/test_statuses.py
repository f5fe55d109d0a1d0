"""Statuses: only what differs is written, and what is written makes them what they should be."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.kubernetes.operator.reconcile import (
    KnownJob,
    LeaveAlone,
    Refuse,
    Remove,
    Submit,
    Sync,
    decide,
)
from adapters.kubernetes.operator.status import OURS, refused_status, status_of, status_patch
from controlplane.lifecycle.job import begin, evolve
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.model.obstacle import Obstacle
from controlplane.model.spec import DoneWhen, JobSpec, Role
from tests.adapters.kubernetes.operator.bench import example
from tests.fake_kubernetes.store import merged

NAMES = st.sampled_from([*OURS[:4], "theirs"])
LEAVES = st.one_of(st.integers(0, 3), st.text(max_size=2), st.lists(st.integers(0, 2), max_size=2))
DOCUMENTS = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3),
    lambda inner: st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=3),
    max_leaves=6,
)


@given(observed=DOCUMENTS, wanted=DOCUMENTS)
def test_a_patch_makes_of_a_status_what_it_should_be_and_leaves_what_is_not_ours(
    observed: dict[str, Any], wanted: dict[str, Any]
) -> None:
    wanted.pop("theirs", None)
    after = merged(observed, status_patch(observed, wanted))
    assert {k: v for k, v in after.items() if k in OURS} == wanted
    assert after.get("theirs") == observed.get("theirs")
    assert status_patch(after, wanted) == {}


def resource(**more: Any) -> dict[str, Any]:
    document = example("pytorchjob")
    document["metadata"] |= {"uid": "u-1", "namespace": "default", "generation": 1}
    return {**document, **more}


UNKNOWN = KnownJob(None, was_submitted=False)


def test_a_refusal_that_stands_is_not_written_again() -> None:
    refusal = Rejected("invalid_manifest", "spec: bad")
    document = resource()
    first = refused_status(document, refusal, now=100.0)
    again = refused_status({**document, "status": first}, refusal, now=900.0)
    assert status_patch(first, again) == {}
    # One that may pass is no failure.
    passing = refused_status(document, Rejected("name_taken", "taken"), now=100.0)
    assert [(c["type"], c["status"]) for c in passing["conditions"]] == [("Created", "False")]


def test_what_was_over_before_is_not_run_again_but_what_we_refused_is_looked_at() -> None:
    over: list[dict[str, Any]] = [
        {"conditions": [{"type": "Failed", "status": "True"}]},
        {"conditions": [{"type": "Complete", "status": "True"}]},
        {"state": "Succeeded", "phase": "Done"},
    ]
    for status in over:
        assert isinstance(decide(resource(status=status), UNKNOWN), LeaveAlone)
    refused = refused_status(resource(), Rejected("invalid_manifest", "bad"), now=1.0)
    assert isinstance(decide(resource(status=refused), UNKNOWN), Submit)
    running = {"conditions": [{"type": "Running", "status": "True"}]}
    assert isinstance(decide(resource(status=running), UNKNOWN), Submit)


def test_what_was_a_job_and_is_none_any_more_goes() -> None:
    assert isinstance(decide(resource(), KnownJob(None, was_submitted=True)), Remove)


def test_a_requirement_that_muster_would_bind_past_is_refused() -> None:
    asking = resource()
    (replica,) = list(asking["spec"]["pytorchReplicaSpecs"].values())[:1]
    replica["template"]["spec"]["resourceClaims"] = [{"name": "gpu"}]
    verdict = decide(asking, UNKNOWN)
    assert isinstance(verdict, Refuse)
    assert "resourceClaims" in verdict.refusal.message
    assert isinstance(decide(asking, UNKNOWN, binds_itself=False), Submit)


def test_what_makes_no_job_is_refused() -> None:
    verdict = decide(resource(spec={"nonsense": 1}), UNKNOWN)
    assert isinstance(verdict, Refuse)
    assert "spec.nonsense: there is no such field" in verdict.refusal.message


def test_what_is_being_deleted_is_not_submitted() -> None:
    document = resource()
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide(document, UNKNOWN) == LeaveAlone()
    assert not isinstance(decide(document, UNKNOWN), Sync)


def test_a_job_that_is_set_aside_has_a_condition_with_the_reason() -> None:
    obstacle = Obstacle(code="no_matching_node", selector=(("zone", "z"),))
    spec = JobSpec(
        roles=(Role(name="Worker", gpus=1),),
        done_when=DoneWhen("Worker"),
        kind="PyTorchJob",
        version="kubeflow.org/v1",
    )
    submitted = e.JobSubmitted("j", "default", "train", spec)
    job = begin(e.Recorded(1, 60.0, submitted))
    before = status_of(job, generation=1, position=1)
    aside = evolve(job, e.Recorded(2, 120.0, e.JobUnschedulable("j", obstacle)))
    status = status_of(aside, generation=1, position=2)
    condition = status["conditions"][-1]
    assert (condition["type"], condition["status"]) == ("Unschedulable", "True")
    assert condition["reason"] == "NoMatchingNode"
    assert "zone=z" in condition["message"]
    assert condition["lastTransitionTime"] == "1970-01-01T00:02:00Z"
    assert status["muster"]["state"] == "Unschedulable"
    assert "zone=z" in status["muster"]["message"]
    back = evolve(aside, e.Recorded(3, 180.0, e.JobSchedulable("j")))
    assert status_of(back, generation=1, position=3)["conditions"] == before["conditions"]
