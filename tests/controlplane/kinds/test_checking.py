"""Rules for every job: its names, and which controller runs it."""

import pytest

from controlplane.kinds.kind import GangContext
from controlplane.kinds.manifest.checking import is_external
from controlplane.kinds.manifest.pod_group import pod_group
from controlplane.kinds.registry import read_manifest, write_manifest
from tests.controlplane.kinds.manifests import changed, problems, replica, tfjob

TFJOB = tfjob(Worker=replica(1000))
POLICY = ("spec", "runPolicy")
LIMIT = "muster.dev/restart-limit"


@pytest.mark.parametrize(
    ("managed_by", "external"),
    [
        (None, False),
        ("", True),
        ("muster.dev/muster", False),
        ("kubeflow.org/training-operator", False),
        ("kubeflow.org/mpi-operator", False),
        ("kueue.x-k8s.io/multikueue", True),
        ("other-job-controller", True),
    ],
)
def test_jobs_of_others_are_left_alone(managed_by, external):
    assert is_external(managed_by) is external


def test_only_known_controllers_may_be_named():
    document = changed(TFJOB, POLICY, {"managedBy": "kueue.x-k8s.io/multikueue"})
    assert read_manifest(document).spec.managed_by == "kueue.x-k8s.io/multikueue"

    for name in ("other-job-controller", "kubeflow.org/mpi-operator", ""):
        document = changed(TFJOB, POLICY, {"managedBy": name})
        assert problems(document) == [("NotSupported", "spec.runPolicy.managedBy")]


@pytest.mark.parametrize(("length", "fits"), [(52, True), (53, False)])
def test_the_longest_name_of_a_rank_must_fit(length, fits):
    document = changed(TFJOB, ("metadata", "name"), "x" * length)
    if fits:
        assert read_manifest(document)
    else:
        assert problems(document) == [("Invalid", "metadata.name")]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"ttlSecondsAfterFinished": -1}, ("Invalid", "ttlSecondsAfterFinished")),
        ({"activeDeadlineSeconds": -1}, ("Invalid", "activeDeadlineSeconds")),
        ({"backoffLimit": -1}, ("Invalid", "backoffLimit")),
        ({"cleanPodPolicy": "unknown"}, ("NotSupported", "cleanPodPolicy")),
        ({"schedulingPolicy": {"minAvailable": -1}}, ("Invalid", "schedulingPolicy.minAvailable")),
        (
            {"schedulingPolicy": {"scheduleTimeoutSeconds": -1}},
            ("Invalid", "schedulingPolicy.scheduleTimeoutSeconds"),
        ),
    ],
)
def test_every_number_of_the_run_policy_is_checked(policy, expected):
    assert problems(changed(TFJOB, POLICY, policy)) == [
        (expected[0], f"spec.runPolicy.{expected[1]}")
    ]


def test_a_limit_of_restarts_that_is_given_twice_must_be_the_same():
    twice = changed(TFJOB, POLICY, {"backoffLimit": 3})
    same = changed(twice, ("metadata", "annotations"), {LIMIT: "3"})
    other = changed(twice, ("metadata", "annotations"), {LIMIT: "4"})
    assert read_manifest(same).spec.restart.limit == 3
    assert problems(other) == [("Invalid", f"metadata.annotations[{LIMIT}]")]


def test_annotations_are_checked_too():
    annotations = {
        "muster.dev/priority": "9999999999",
        "muster.dev/restart-scope": "pod",
        "muster.dev/restart-limit": "-1",
        "muster.dev/image-timeout-seconds": "soon",
        "sim.muster.dev/exit-rank": "1000",
        "sim.muster.dev/duration-seconds": "nan",
    }
    document = changed(TFJOB, ("metadata", "annotations"), annotations)

    assert {field for _, field in problems(document)} == {
        f"metadata.annotations[{name}]" for name in annotations
    }


@pytest.mark.parametrize("name", ["vip", "system-node-critical", "a.b-c"])
def test_a_priority_class_may_have_any_name_and_is_kept(name):
    policy = {"schedulingPolicy": {"priorityClass": name}}
    job = read_manifest(changed(TFJOB, POLICY, policy))

    assert job.spec.priority == 0
    assert len(job.warnings) == 1
    assert name in job.warnings[0]
    written = write_manifest(job)
    assert written["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"] == name
    gang = GangContext(job.namespace, job.name, job.spec)
    assert pod_group(gang).priority_class == name


def test_a_number_in_an_annotation_gives_any_class_its_value():
    document = changed(TFJOB, POLICY, {"schedulingPolicy": {"priorityClass": "vip"}})
    document["metadata"]["annotations"] = {"muster.dev/priority": "70"}
    job = read_manifest(document)

    assert (job.spec.priority, job.warnings) == (70, ())
