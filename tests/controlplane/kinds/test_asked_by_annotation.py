"""What a Kubeflow manifest asks of the scheduler by annotations and labels, ours and others'."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kinds.manifest.annotations import annotations_for, scheduling_of
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.registry import convert_manifest
from controlplane.kinds.registry import read_manifest as parse
from controlplane.model.errors import Rejected
from controlplane.model.spec import PLAIN_SCHEDULING, Repair, Scheduling, TopologyAsk


def manifest(annotations=None, labels=None, pod_annotations=None):
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "example/tf:1"}]}}
    if pod_annotations:
        template["metadata"] = {"annotations": pod_annotations}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4, "template": template}}},
    }


def spec_of(**given):
    return parse(manifest(**given)).spec


def test_our_annotations_are_the_fields_of_the_native_form():
    scheduling = spec_of(
        annotations={
            "muster.dev/topology-required": "block",
            "muster.dev/topology-preferred": "rack",
            "muster.dev/slice-level": "rack",
            "muster.dev/slice-size": "2",
            "muster.dev/node-selector": "zone=a,disk=ssd",
            "muster.dev/tolerates": "spot, whale",
            "muster.dev/flavors": "h100,a100",
            "muster.dev/preemptible": "false",
            "muster.dev/estimate-seconds": "7200",
            "muster.dev/repair": "replace",
        }
    ).scheduling
    assert scheduling == Scheduling(
        topology=TopologyAsk(required="block", preferred="rack", slice_level="rack", slice_size=2),
        selector={"zone": "a", "disk": "ssd"},
        tolerates=("spot", "whale"),
        flavors=("h100", "a100"),
        preemptible=False,
        estimate_s=7200.0,
        repair=Repair.REPLACE,
    )


def test_what_others_read_is_understood_too():
    spec = spec_of(
        labels={
            "kueue.x-k8s.io/queue-name": "research",
            "kueue.x-k8s.io/priority-class": "high",
            "kueue.x-k8s.io/max-exec-time-seconds": "600",
        },
        annotations={"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"},
    )
    assert (spec.queue, spec.priority) == ("research", 1_000)
    assert spec.scheduling.topology.required == "node"
    assert spec.scheduling.estimate_s == 600.0
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    near = spec_of(annotations=exclusive).scheduling.topology
    assert (near.required, near.exclusive) == ("rack", True)


def test_ours_go_before_theirs():
    spec = spec_of(
        labels={"kai.scheduler/queue": "theirs"},
        annotations={
            "muster.dev/queue": "ours",
            "muster.dev/topology-required": "rack",
            "kai.scheduler/topology-required-placement": "block",
        },
    )
    assert (spec.queue, spec.scheduling.topology.required) == ("ours", "rack")


@pytest.mark.parametrize(
    ("annotations", "share", "mib"),
    [({"gpu-fraction": "0.25"}, 250, 0), ({"gpu-memory": "8192"}, 0, 8192)],
)
def test_pods_may_ask_for_a_part_of_a_device(annotations, share, mib):
    role = spec_of(pod_annotations=annotations).roles[0]
    assert (role.gpus, role.gpu_share, role.gpu_memory_mib) == (0, share, mib)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("preemptible", "perhaps"),
        ("estimate-seconds", "-1"),
        ("estimate-seconds", "soon"),
        ("slice-size", "2.5"),
        ("node-selector", "zone"),
        ("repair", "glue"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_name(name, text):
    with pytest.raises(Rejected) as refused:
        parse(manifest(annotations={f"muster.dev/{name}": text}))
    assert f"metadata.annotations[muster.dev/{name}]" in str(refused.value)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(Rejected, match="slice_level and slice_size go together"):
        parse(manifest(annotations={"muster.dev/slice-size": "2"}))
    with pytest.raises(Rejected, match="gpu-fraction"):
        parse(manifest(pod_annotations={"gpu-fraction": "2"}))


def test_a_plain_manifest_asks_for_nothing():
    assert spec_of().scheduling is PLAIN_SCHEDULING


words = st.text("abcz-", min_size=1, max_size=5)
asked = st.builds(
    Scheduling,
    topology=st.builds(TopologyAsk, required=words, preferred=words, exclusive=st.booleans()),
    selector=st.dictionaries(words, words, max_size=2),
    tolerates=st.lists(words, max_size=2).map(tuple),
    flavors=st.lists(words, max_size=2).map(tuple),
    preemptible=st.booleans(),
    away_priority=st.none() | st.integers(-5, 5),
    group=words,
    group_size=st.integers(0, 9),
    estimate_s=st.none() | st.integers(0, 10_000).map(float),
    checkpoint_every_s=st.none() | st.integers(0, 10_000).map(float),
    repair=st.sampled_from(Repair),
    recovery_timeout_s=st.integers(0, 10_000).map(float),
)


@given(asked)
def test_every_request_can_be_written_as_annotations_and_read_back(asks):
    findings = Findings()
    assert scheduling_of({}, annotations_for(asks), findings) == asks
    assert not findings.problems


def test_a_native_field_becomes_an_annotation_of_the_job_s_own_kind():
    native, _ = convert_manifest(manifest(), "native")
    native["spec"]["scheduling"] = {"topology": {"required": "rack"}, "flavors": ["h100"]}

    back, _ = convert_manifest(native, "own")

    assert back["metadata"]["annotations"] == {
        "muster.dev/topology-required": "rack",
        "muster.dev/flavors": "h100",
    }
    assert parse(back).spec.scheduling == parse(native).spec.scheduling
