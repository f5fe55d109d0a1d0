"""What each kind of manifest means as a job."""

import copy

import pytest

from adapters.simulated_cluster.workload import workload_of
from controlplane.kinds.registry import read_manifest
from controlplane.model.errors import Rejected
from controlplane.model.spec import DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import changed, manifest, replica, tfjob, torch

TFJOB = tfjob(PS=replica(2), Worker=replica(4, 1))
PYTORCH = manifest(
    "PyTorchJob",
    {"pytorchReplicaSpecs": {"Master": torch(1, 8), "Worker": torch(3, 8)}},
)
MPI = manifest(
    "MPIJob",
    {
        "slotsPerWorker": 8,
        "mpiReplicaSpecs": {"Launcher": replica(1), "Worker": replica(2, 8)},
    },
)
NATIVE = manifest(
    "Job",
    {"roles": [{"name": "worker", "replicas": 2, "gpus": 4}], "workload": {"duration_s": 30}},
    version="muster.dev/v1",
)


def test_a_tfjob_becomes_roles_of_which_the_first_worker_decides():
    job = read_manifest(TFJOB)

    assert (job.namespace, job.name) == ("team", "train")
    assert [(r.name, r.replicas, r.gpus, r.is_server) for r in job.spec.roles] == [
        ("Worker", 4, 1, False),
        ("PS", 2, 0, True),
    ]
    assert job.spec.done_when == DoneWhen("Worker", first=True)
    assert job.spec.roles[0].restart is RestartRule.NEVER
    assert job.spec.roles[0].command == ("python", "train.py")


def test_a_chief_decides_its_tfjob():
    job = read_manifest(tfjob(Chief=replica(), Worker=replica(2)))

    assert job.spec.done_when == DoneWhen("Chief")


def test_all_workers_may_be_asked_to_decide():
    document = tfjob(Worker=replica(2))
    document["spec"]["successPolicy"] = "AllWorkers"

    assert read_manifest(document).spec.done_when == DoneWhen("Worker")


def test_a_pytorchjob_is_decided_by_its_master():
    job = read_manifest(PYTORCH)

    assert job.spec.gpus == 32
    assert job.spec.done_when == DoneWhen("Master")
    assert job.spec.roles[1].restart is RestartRule.ON_FAILURE


def test_an_mpijob_is_decided_by_its_launcher():
    job = read_manifest(MPI)

    assert job.spec.done_when == DoneWhen("Launcher")
    assert [role.is_server for role in job.spec.roles] == [False, True]


def test_the_native_form_is_decided_by_its_first_role():
    job = read_manifest(NATIVE)

    assert job.spec.done_when == DoneWhen("worker")
    assert workload_of(job.spec).duration_s == 30


def test_role_names_may_be_spelt_in_any_case():
    assert read_manifest(tfjob(worker=replica())).spec.roles[0].name == "Worker"


def test_the_run_policy_is_taken_over():
    document = copy.deepcopy(TFJOB)
    document["spec"]["runPolicy"] = {
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 3600,
        "backoffLimit": 2,
        "suspend": True,
        "schedulingPolicy": {"queue": "gold", "priorityClass": "high"},
    }

    job = read_manifest(document)

    assert job.suspended
    assert (job.spec.ttl_s, job.spec.active_deadline_s) == (60, 3600)
    assert (job.spec.restart.limit, job.spec.queue, job.spec.priority) == (2, "gold", 1_000)


def test_annotations_direct_the_simulator():
    annotations = {
        "sim.muster.dev/duration-seconds": "12.5",
        "sim.muster.dev/exit-code": "137",
        "sim.muster.dev/failing-attempts": "1",
        "muster.dev/priority": "7",
    }
    job = read_manifest({**TFJOB, "metadata": {"name": "train", "annotations": annotations}})

    work = workload_of(job.spec)
    assert (work.duration_s, work.exit_code, work.failing_attempts) == (12.5, 137, 1)
    assert job.spec.priority == 7


def test_annotations_set_the_model_to_train_and_how_often_to_evaluate():
    annotations = {
        "sim.muster.dev/model": "resnet50",
        "sim.muster.dev/scheme": "hierarchical",
        "sim.muster.dev/evaluate-steps": "500",
        "sim.muster.dev/evaluate-seconds": "40",
    }
    job = read_manifest({**TFJOB, "metadata": {"name": "train", "annotations": annotations}})

    training = workload_of(job.spec).training
    assert training is not None
    assert (training.scheme, training.evaluate_steps, training.evaluate_s) == (
        "hierarchical",
        500,
        40.0,
    )


def test_the_pod_template_is_kept_as_it_came():
    document = tfjob(Worker=replica())
    pod = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    pod["containers"][0]["env"] = [
        {"name": "A", "value": "1"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]

    role = read_manifest(document).spec.roles[0]

    # The framework's port is a default, and defaults are visible.
    pod["containers"][0]["ports"] = [{"name": "tfjob-port", "containerPort": 2222}]
    assert role.template["spec"] == pod
    assert role.env == {"A": "1"}


WORKER = ("spec", "tfReplicaSpecs", "Worker")
CONTAINER = (*WORKER, "template", "spec", "containers", 0)


@pytest.mark.parametrize(
    ("document", "code", "message"),
    [
        (None, "invalid_manifest", "mapping"),
        ([], "invalid_manifest", "mapping"),
        ({}, "invalid_manifest", "apiVersion"),
        ({**TFJOB, "kind": 7}, "invalid_manifest", "kind"),
        ({**TFJOB, "kind": "CronJob"}, "unknown_kind", "CronJob"),
        ({**TFJOB, "apiVersion": "kubeflow.org/v9"}, "unknown_kind", "kubeflow.org/v9"),
        ({**TFJOB, "extra": 1}, "invalid_manifest", "extra"),
        (changed(TFJOB, ("metadata",), {}), "invalid_manifest", "metadata"),
        (changed(TFJOB, ("spec", "tfReplicaSpec"), {}), "invalid_manifest", "tfReplicaSpec"),
        (changed(TFJOB, ("spec", "tfReplicaSpecs"), {}), "invalid_manifest", "at least one role"),
        (changed(TFJOB, (*WORKER, "replicas"), "two"), "invalid_manifest", "Worker"),
        (changed(TFJOB, (*WORKER, "restartPolicy"), "Sometimes"), "invalid_manifest", "restartPol"),
        (changed(TFJOB, (*CONTAINER, "imag"), "x"), "invalid_manifest", "imag"),
        (changed(TFJOB, (*CONTAINER, "image"), ""), "invalid_manifest", "image"),
        (changed(TFJOB, CONTAINER[:-1], []), "invalid_manifest", "container"),
        (
            changed(TFJOB, (*CONTAINER, "resources"), {"limits": {"nvidia.com/gpu": "many"}}),
            "invalid_manifest",
            "whole number of GPUs",
        ),
        (
            changed(TFJOB, (*CONTAINER, "resources"), {"limits": {"nvidia.com/gpu": None}}),
            "invalid_manifest",
            "whole number of GPUs",
        ),
        (tfjob(Chief=replica(), Master=replica()), "invalid_manifest", "same role"),
        (tfjob(PS=replica()), "invalid_manifest", "decide"),
        (tfjob(Boss=replica()), "invalid_manifest", "no such role"),
        (tfjob(worker=replica(), Worker=replica()), "invalid_manifest", "given twice"),
        (
            changed(PYTORCH, ("spec", "pytorchReplicaSpecs", "Master", "replicas"), 2),
            "invalid_manifest",
            "must be 1",
        ),
        (changed(MPI, ("spec", "mpiReplicaSpecs"), {"Worker": replica()}), "invalid_manifest", "launcher"),
        (changed(MPI, ("spec", "slotsPerWorker"), 0), "invalid_manifest", "slotsPerWorker"),
        (changed(NATIVE, ("spec", "roles"), []), "invalid_manifest", "role"),
        (
            changed(TFJOB, ("metadata", "annotations"), {"sim.muster.dev/exit-code": "x"}),
            "invalid_manifest",
            "whole number",
        ),
        (
            changed(TFJOB, ("metadata", "annotations"), {"sim.muster.dev/exitcode": "1"}),
            "invalid_manifest",
            "known are",
        ),
        (
            changed(TFJOB, ("spec", "runPolicy"), {"cleanPodPolicy": "Some"}),
            "invalid_manifest",
            "cleanPodPolicy",
        ),
    ],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_refused_with_the_reason(document, code, message):
    with pytest.raises(Rejected) as refusal:
        read_manifest(document)
    assert refusal.value.code == code
    assert message in refusal.value.message


def test_annotations_name_a_training_for_the_simulator():
    annotations = {
        "sim.muster.dev/model": "resnet50",
        "sim.muster.dev/steps": "500",
        "sim.muster.dev/batch": "64",
        "sim.muster.dev/scheme": "ps",
        "sim.muster.dev/checkpoint-seconds": "600",
    }
    job = read_manifest({**TFJOB, "metadata": {"name": "train", "annotations": annotations}})
    training = workload_of(job.spec).training
    assert training is not None
    assert (training.model, training.steps, training.batch) == ("resnet50", 500, 64)
    assert (training.scheme, training.checkpoint_s) == ("ps", 600.0)
    with pytest.raises(Rejected, match=r"sim\.muster\.dev/model"):
        read_manifest(
            {**TFJOB, "metadata": {"name": "t", "annotations": {"sim.muster.dev/steps": "5"}}}
        )
