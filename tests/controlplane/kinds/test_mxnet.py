"""MXJob: scheduler, servers, workers; and the tuners."""

import json

import pytest

from controlplane.kinds.registry import read_manifest
from controlplane.model.spec import CleanPods, DoneWhen
from tests.controlplane.kinds.manifests import (
    V1,
    V1ALPHA1,
    environments_of,
    manifest,
    problems,
    replica,
    template,
)


def mxjob(spec=None, version=V1, **roles):
    replicas = {name: replica(count, name="mxnet") for name, count in roles.items()}
    return manifest("MXJob", {"mxReplicaSpecs": replicas, **(spec or {})}, version)


WHOLE = mxjob(Scheduler=1, Server=1, Worker=2)


@pytest.mark.parametrize(
    ("document", "decides"),
    [
        (WHOLE, DoneWhen("Scheduler")),
        (mxjob(Worker=1), DoneWhen("Worker")),
        (mxjob({"jobMode": "MXTune"}, Tuner=1, TunerServer=2, TunerTracker=1), DoneWhen("Tuner")),
    ],
)
def test_which_ranks_decide_the_end_of_a_job(document, decides):
    assert read_manifest(document).spec.done_when == decides


def test_the_environment_of_ranks():
    rank = environments_of(WHOLE)(3)

    config = rank.env.pop("MX_CONFIG")
    assert rank.env == {
        "DMLC_PS_ROOT_PORT": "9091",
        "DMLC_PS_ROOT_URI": "train-scheduler-0",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "2",
        "DMLC_USE_KUBERNETES": "1",
        "DMLC_ROLE": "worker",
        "DMLC_WORKER_ID": "1",
    }
    assert config == (
        '{"cluster":{"scheduler":[{"url":"train-scheduler-0","port":9091}],'
        '"server":[{"url":"train-server-0","port":9091}],'
        '"worker":[{"url":"train-worker-0","port":9091},{"url":"train-worker-1","port":9091}]},'
        '"labels":{"scheduler":"","server":"","worker":""},"task":{"type":"worker","index":1}}'
    )
    assert "DMLC_WORKER_ID" not in environments_of(WHOLE)(1).env


def test_a_worker_alone_has_no_scheduler_to_go_to():
    env = environments_of(mxjob(Worker=1))(0).env

    assert (env["DMLC_PS_ROOT_PORT"], env["DMLC_PS_ROOT_URI"]) == ("0", "")


def test_the_servers_are_labelled_as_masters():
    environment = environments_of(WHOLE)

    leaders = [
        rank for rank in range(4) if "training.kubeflow.org/job-role" in environment(rank).labels
    ]
    assert leaders == [1]


def test_a_tuner_learns_the_keys_of_the_servers():
    document = mxjob({"jobMode": "MXTune"}, Tuner=1, TunerServer=1)
    pod = document["spec"]["mxReplicaSpecs"]["TunerServer"]["template"]
    pod["metadata"] = {"annotations": {"tuner-server-key": "2080ti"}}

    config = json.loads(environments_of(document)(1).env["MX_CONFIG"])

    assert config["labels"] == {"tuner": "", "tunerserver": "2080ti"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (mxjob(Scheduler=2), ("Forbidden", "spec.mxReplicaSpecs[Scheduler].replicas")),
        (mxjob(Server=1), ("Required", "spec.mxReplicaSpecs")),
        (mxjob({"jobMode": "MXTune"}, Worker=1), ("Required", "spec.mxReplicaSpecs")),
        (mxjob({"jobMode": "MXRun"}, Worker=1), ("NotSupported", "spec.jobMode")),
        (mxjob(Boss=1), ("NotSupported", "spec.mxReplicaSpecs[Boss]")),
    ],
)
def test_what_is_refused(document, expected):
    assert problems(document) == [expected]


def test_its_first_releases_cleaned_up_after_themselves():
    assert (
        read_manifest(mxjob(version="kubeflow.org/v1beta1", Worker=1)).spec.clean is CleanPods.ALL
    )


def test_the_list_style():
    entries = [
        {"mxReplicaType": "SCHEDULER", "PsRootPort": 7, "template": template("mxnet")},
        {"mxReplicaType": "SERVER", "template": template("mxnet")},
        {"replicas": 2, "template": template("mxnet")},
    ]
    document = manifest("MXJob", {"replicaSpecs": entries, "RuntimeId": "ab12"}, V1ALPHA1)
    spec = read_manifest(document).spec

    assert spec.done_when == DoneWhen("Worker", first=True)
    assert [role.optional for role in spec.roles] == [True, True, False]
    assert spec.options["mxImage"] == "mxjob/mxnet:gpu"
    rank = environments_of(document)(3)
    assert rank.name == "train-worker-ab12-1"
    assert rank.env["DMLC_PS_ROOT_URI"] == "train-scheduler-ab12-0"
    assert rank.env["DMLC_PS_ROOT_PORT"] == "7"
    assert rank.all_containers


def test_how_the_list_style_cleans_up_is_checked():
    entry = {"template": template("mxnet")}
    spec = {"replicaSpecs": [entry], "cleanupPodPolicy": "Running"}
    assert read_manifest(manifest("MXJob", spec, V1ALPHA1)).spec.clean is CleanPods.RUNNING

    spec["cleanupPodPolicy"] = "Some"
    assert problems(manifest("MXJob", spec, V1ALPHA1)) == [
        ("NotSupported", "spec.cleanupPodPolicy")
    ]
