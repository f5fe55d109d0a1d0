"""Statuses: only what differs is written, and what is written makes them what they should be."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.kubernetes.operator.judging import (
    Follow,
    LeaveAlone,
    Refuse,
    Remove,
    Seen,
    Submit,
    judge,
)
from adapters.kubernetes.operator.statuses import OURS, refused_status, status_of, status_patch
from controlplane import events as e
from controlplane.errors import Rejected
from controlplane.job_life import begin, evolve
from controlplane.model import DoneWhen, JobSpec, Obstacle, Role
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


UNKNOWN = Seen(None, was_submitted=False)


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
        assert isinstance(judge(resource(status=status), UNKNOWN), LeaveAlone)
    refused = refused_status(resource(), Rejected("invalid_manifest", "bad"), now=1.0)
    assert isinstance(judge(resource(status=refused), UNKNOWN), Submit)
    running = {"conditions": [{"type": "Running", "status": "True"}]}
    assert isinstance(judge(resource(status=running), UNKNOWN), Submit)


def test_what_was_a_job_and_is_none_any_more_goes() -> None:
    assert isinstance(judge(resource(), Seen(None, was_submitted=True)), Remove)


def test_a_requirement_that_muster_would_bind_past_is_refused() -> None:
    asking = resource()
    (replica,) = list(asking["spec"]["pytorchReplicaSpecs"].values())[:1]
    replica["template"]["spec"]["resourceClaims"] = [{"name": "gpu"}]
    verdict = judge(asking, UNKNOWN)
    assert isinstance(verdict, Refuse)
    assert "resourceClaims" in verdict.refusal.message
    assert isinstance(judge(asking, UNKNOWN, binds_itself=False), Submit)


def test_what_makes_no_job_is_refused() -> None:
    verdict = judge(resource(spec={"nonsense": 1}), UNKNOWN)
    assert isinstance(verdict, Refuse)
    assert "spec.nonsense: there is no such field" in verdict.refusal.message


def test_what_is_being_deleted_is_not_submitted() -> None:
    document = resource()
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert judge(document, UNKNOWN) == LeaveAlone()
    assert not isinstance(judge(document, UNKNOWN), Follow)


def test_a_job_that_is_set_aside_has_a_condition_that_says_why() -> None:
    obstacle = Obstacle(code="no_matching_node", selector=(("zone", "z"),))
    spec = JobSpec(
        roles=(Role(name="Worker", gpus=1),),
        done_when=DoneWhen("Worker"),
        kind="PyTorchJob",
        version="kubeflow.org/v1",
    )
    submitted = e.JobSubmitted("j", "default", "train", spec)
    job = begin(e.Recorded(1, 60.0, submitted), submitted)
    before = status_of(job, generation=1, position=1)
    aside = evolve(job, e.Recorded(2, 120.0, e.JobUnschedulable("j", obstacle)))
    found = status_of(aside, generation=1, position=2)
    condition = found["conditions"][-1]
    assert (condition["type"], condition["status"]) == ("Unschedulable", "True")
    assert condition["reason"] == "NoMatchingNode"
    assert "zone=z" in condition["message"]
    assert condition["lastTransitionTime"] == "1970-01-01T00:02:00Z"
    assert found["muster"]["state"] == "Unschedulable"
    assert "zone=z" in found["muster"]["message"]
    back = evolve(aside, e.Recorded(3, 180.0, e.JobSchedulable("j")))
    assert status_of(back, generation=1, position=3)["conditions"] == before["conditions"]
