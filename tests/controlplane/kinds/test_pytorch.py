"""PyTorchJob, in all its versions."""

import pytest

from controlplane.kinds.registry import read_manifest, write_manifest
from controlplane.model.spec import DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import (
    V1ALPHA1,
    environments_of,
    manifest,
    problems,
    template,
    torch,
)

SPECS = "spec.pytorchReplicaSpecs"


def pytorchjob(spec=None, **roles):
    return manifest("PyTorchJob", {"pytorchReplicaSpecs": roles, **(spec or {})})


def on_port(replicas, port):
    ports = [{"name": "pytorchjob-port", "containerPort": port}]
    return {"replicas": replicas, "template": template("pytorch", ports=ports)}


def test_defaults():
    spec = read_manifest(pytorchjob(worker=torch(None))).spec

    (worker,) = spec.roles
    assert (worker.name, worker.replicas, worker.restart) == ("Worker", 1, RestartRule.ON_FAILURE)
    assert spec.options["nprocPerNode"] == "auto"


@pytest.mark.parametrize(
    ("elastic", "limits"),
    [
        ({}, (2, 2)),
        ({"maxReplicas": 4}, (4, 4)),
        ({"minReplicas": 1}, (1, 1)),
        ({"minReplicas": 1, "maxReplicas": 3}, (1, 3)),
    ],
)
def test_elastic_limits_that_are_missing(elastic, limits):
    spec = read_manifest(pytorchjob({"elasticPolicy": elastic}, Worker=torch(2))).spec

    (worker,) = spec.roles
    assert (worker.min_replicas, worker.max_replicas) == limits
    policy = spec.options["elasticPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"]) == limits


@pytest.mark.parametrize(
    ("document", "decides"),
    [
        (pytorchjob(Master=torch(), Worker=torch()), DoneWhen("Master")),
        (pytorchjob(Worker=torch(2)), DoneWhen("Worker")),
        (pytorchjob({"elasticPolicy": {}}, Worker=torch(2)), DoneWhen("Worker", any=True)),
        (pytorchjob({"elasticPolicy": {}}, Master=torch(), Worker=torch()), DoneWhen("Master")),
    ],
)
def test_which_ranks_decide_the_end_of_a_job(document, decides):
    assert read_manifest(document).spec.done_when == decides


def test_ranks_meet_at_the_master():
    document = pytorchjob({"nprocPerNode": "4"}, Master=on_port(1, 8080), Worker=on_port(2, 8080))
    rank = environments_of(document)(1)

    assert rank.env == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "8080",
        "PET_MASTER_PORT": "8080",
        "MASTER_ADDR": "train-master-0",
        "PET_MASTER_ADDR": "train-master-0",
        "WORLD_SIZE": "12",
        "PET_NPROC_PER_NODE": "4",
        "PET_NNODES": "3",
        "RANK": "1",
        "PET_NODE_RANK": "1",
    }
    assert rank.all_containers
    assert rank.waits_for_host == "train-master-0"
    assert environments_of(document)(0).waits_for_host == ""


def test_processes_that_are_not_a_number_count_as_one():
    document = pytorchjob({"nprocPerNode": "gpu"}, Master=torch(), Worker=torch(3))

    assert environments_of(document)(0).env["WORLD_SIZE"] == "4"


def test_elastic_ranks_meet_at_the_given_rendezvous():
    elastic = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "rdzvBackend": "etcd",
        "rdzvPort": 1234,
        "rdzvHost": "localhost",
        "rdzvId": "id",
        "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
        "standalone": True,
        "maxRestarts": 3,
    }
    assert environments_of(pytorchjob({"elasticPolicy": elastic}, Worker=torch()))(0).env == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_MAX_RESTARTS": "3",
        "PET_RDZV_BACKEND": "etcd",
        "PET_RDZV_ENDPOINT": "localhost:1234",
        "PET_RDZV_ID": "id",
        "PET_RDZV_CONF": "a=1,b=2",
        "PET_NNODES": "1:3",
        "PET_STANDALONE": "",
    }


def test_elastic_ranks_meet_at_the_first_worker_by_default():
    document = pytorchjob({"elasticPolicy": {"maxReplicas": 3}}, Worker=on_port(1, 8080))
    env = environments_of(document)(0).env

    assert env["PET_RDZV_ENDPOINT"] == "train-worker-0:8080"
    assert env["PET_RDZV_BACKEND"] == "c10d"
    assert "MASTER_ADDR" not in env


def test_without_a_master_the_first_worker_is_labelled_as_one():
    environment = environments_of(pytorchjob(Worker=torch(2)))

    key = "training.kubeflow.org/job-role"
    assert (environment(0).labels.get(key), environment(1).labels.get(key)) == ("master", None)


def test_the_old_place_of_processes_is_warned_about():
    document = pytorchjob({"elasticPolicy": {"nProcPerNode": 2}}, Master=torch(), Worker=torch())
    job = read_manifest(document)

    assert len(job.warnings) == 1
    assert "nprocPerNode" not in job.spec.options
    assert environments_of(document)(0).env["PET_NPROC_PER_NODE"] == "2"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            pytorchjob(
                {"nprocPerNode": "1", "elasticPolicy": {"nProcPerNode": 1}},
                Master=torch(),
                Worker=torch(),
            ),
            ("Forbidden", "spec.elasticPolicy.nProcPerNode"),
        ),
        (pytorchjob({"elasticPolicy": {}}, Master=torch()), ("Required", f"{SPECS}[Worker]")),
        (
            pytorchjob({"elasticPolicy": {}}, Worker=torch(0)),
            ("Forbidden", f"{SPECS}[Worker].replicas"),
        ),
        (pytorchjob(Chief=torch()), ("NotSupported", f"{SPECS}[Chief]")),
        (pytorchjob(Master=torch(2)), ("Forbidden", f"{SPECS}[Master].replicas")),
        (pytorchjob(Master=torch(None)), ("Forbidden", f"{SPECS}[Master].replicas")),
        (pytorchjob({"nprocPerNode": "many"}, Worker=torch()), ("NotSupported", "spec.nprocPerNode")),
        (
            pytorchjob({"elasticPolicy": {"minReplicas": 4, "maxReplicas": 2}}, Worker=torch(2)),
            ("Invalid", "spec.elasticPolicy.minReplicas"),
        ),
        (
            pytorchjob({"elasticPolicy": {"rdzvBackend": "zk"}}, Worker=torch(2)),
            ("NotSupported", "spec.elasticPolicy.rdzvBackend"),
        ),
        (manifest("PyTorchJob", {}), ("Required", SPECS)),
    ],
)  # fmt: skip
def test_what_is_refused(document, expected):
    assert problems(document) == [expected]


# ------------------------------------------------------------------ the list style of 2018


def listed(*entries, **more):
    return manifest("PyTorchJob", {"replicaSpecs": list(entries), **more}, V1ALPHA1)


def entry(type=None, **more):
    document = {"template": template("pytorch"), **more}
    return document if type is None else {"replicaType": type, **document}


def test_the_list_style_has_the_defaults_of_2018():
    spec = read_manifest(listed(entry(), backend="gloo")).spec

    assert [(role.name, role.replicas) for role in spec.roles] == [("Master", 1)]
    assert spec.options["pytorchImage"] == "pytorch/pytorch:v0.2"
    assert spec.options["backend"] == "gloo"
    assert spec.options["terminationPolicy"] == {
        "master": {"replicaName": "MASTER", "replicaRank": 0}
    }


def test_in_the_list_style_ranks_are_named_by_their_rank():
    document = listed(entry("MASTER", masterPort=99), entry("WORKER", replicas=2), RuntimeId="ab12")
    environment = environments_of(document)

    assert [environment(rank).name for rank in range(3)] == [
        "train-master-ab12-0",
        "train-worker-ab12-1",
        "train-worker-ab12-2",
    ]
    assert environment(0).env == {
        "MASTER_PORT": "99",
        "MASTER_ADDR": "localhost",
        "WORLD_SIZE": "3",
        "RANK": "0",
    }
    assert environment(2).env["MASTER_ADDR"] == "train-master-ab12-0"
    assert environment(2).labels["task_index"] == "2"


def printed(port=None, own=None, **spec):
    """A manifest in the list style, as the operator's first talk printed it."""
    if port is not None:
        spec["masterPort"] = port
    entries = [
        {"replicas": n, "replicaType": sort, "template": template("pytorch")}
        for n, sort in ((1, "MASTER"), (2, "WORKER"))
    ]
    if own is not None:
        entries[0]["masterPort"] = own
    return manifest("PyTorchJob", {"replicaSpecs": entries, **spec}, V1ALPHA1)


@pytest.mark.parametrize(
    ("port", "own", "meets_at"),
    [
        ("23457", None, "23457"),
        (23458, None, "23458"),
        ("23457", 9999, "9999"),
        (None, None, "23456"),
    ],
)
def test_the_port_may_stand_in_the_spec_itself_and_be_text(port, own, meets_at):
    document = printed(port, own, backend="tcp")

    assert [environments_of(document)(rank).env["MASTER_PORT"] for rank in range(3)] == [
        meets_at
    ] * 3
    again = write_manifest(read_manifest(document))
    assert read_manifest(again) == read_manifest(document)


@pytest.mark.parametrize(
    "port", ["", "port", "-1", "0", "70000", 0, 70000, "9" * 30, "\u0662\u0663"]
)
def test_a_port_that_is_none_is_refused(port):
    assert problems(printed(port)) == [("Invalid", "spec.masterPort")]


def test_a_scheduler_named_for_the_whole_job_is_that_of_its_pods():
    document = printed(schedulerName="volcano")
    document["spec"]["replicaSpecs"][1]["template"]["spec"]["schedulerName"] = "mine"
    job = read_manifest(document)

    named = [role.template["spec"]["schedulerName"] for role in job.spec.roles]
    assert named == ["volcano", "mine"]
    assert read_manifest(write_manifest(job)) == job
