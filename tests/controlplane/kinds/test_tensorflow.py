"""TFJob, in all its versions."""

import json

import pytest

from controlplane.kinds.kind import GangContext
from controlplane.kinds.registry import kind_of, read_manifest
from controlplane.model.spec import CleanPods, DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import (
    V1ALPHA1,
    changed,
    environments_of,
    manifest,
    problems,
    replica,
    template,
    tfjob,
)

WORKER = "spec.tfReplicaSpecs[Worker]"


def listed(*entries, **more):
    return manifest("TFJob", {"replicaSpecs": list(entries), **more}, V1ALPHA1)


def entry(type=None, replicas=None, **more):
    document = {"template": template("tensorflow"), **more}
    if type is not None:
        document["tfReplicaType"] = type
    return document if replicas is None else {**document, "replicas": replicas}


def test_defaults_are_applied_and_visible():
    job = read_manifest(tfjob(worker=replica(None)))

    (worker,) = job.spec.roles
    assert (worker.name, worker.replicas, worker.restart) == ("Worker", 1, RestartRule.NEVER)
    assert job.spec.clean is CleanPods.NONE
    (container,) = worker.template["spec"]["containers"]
    assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]


def test_a_port_of_the_frameworks_name_is_kept():
    ports = [{"name": "tfjob-port", "containerPort": 9}]
    document = tfjob(Worker={"replicas": 2, "template": template("tensorflow", ports=ports)})

    config = json.loads(environments_of(document)(0).env["TF_CONFIG"])

    assert config["cluster"]["worker"][0] == "train-worker-0.team.svc:9"


@pytest.mark.parametrize(
    ("roles", "policy", "decides"),
    [
        (["Chief", "Worker"], "", DoneWhen("Chief")),
        (["Master", "Worker"], "AllWorkers", DoneWhen("Master")),
        (["PS", "Worker"], "", DoneWhen("Worker", first=True)),
        (["PS", "Worker"], "AllWorkers", DoneWhen("Worker")),
    ],
)
def test_which_ranks_decide_the_end_of_a_job(roles, policy, decides):
    document = tfjob(**{role: replica() for role in roles})
    document["spec"]["successPolicy"] = policy

    assert read_manifest(document).spec.done_when == decides


def test_every_rank_learns_of_all_others():
    document = tfjob(Worker=replica(), PS=replica(), Evaluator=replica())

    assert environments_of(document)(0).env["TF_CONFIG"] == (
        '{"cluster":{"evaluator":["train-evaluator-0.team.svc:2222"],'
        '"ps":["train-ps-0.team.svc:2222"],"worker":["train-worker-0.team.svc:2222"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )
    assert not environments_of(document)(0).all_containers


def test_the_domain_of_the_cluster_is_part_of_the_hosts():
    config = environments_of(tfjob(Worker=replica(2)), "tf.training.org")(1).env["TF_CONFIG"]

    assert "train-worker-1.team.svc.tf.training.org:2222" in config


def test_a_job_of_one_replica_gets_no_environment():
    assert environments_of(tfjob(Worker=replica()))(0).env == {}


def test_dynamic_workers_learn_only_what_never_changes():
    document = tfjob(Worker=replica(2), PS=replica(2))
    document["spec"]["enableDynamicWorker"] = True

    job = read_manifest(document)
    environment = environments_of(document)

    # Counted last, so that another worker changes no other number.
    assert [(role.name, role.optional) for role in job.spec.roles] == [
        ("PS", False),
        ("Worker", True),
    ]
    servers = ["train-ps-0.team.svc:2222", "train-ps-1.team.svc:2222"]
    assert json.loads(environment(3).env["TF_CONFIG"]) == {
        "cluster": {"worker": {"1": "train-worker-1.team.svc:2222"}, "ps": servers},
        "task": {"type": "worker", "index": 1},
    }
    assert json.loads(environment(1).env["TF_CONFIG"])["cluster"] == {
        "worker": {},
        "ps": servers[1:],
    }


@pytest.mark.parametrize(
    ("roles", "leaders"),
    [
        (["Chief", "Worker"], ["train-chief-0"]),
        (["Worker", "PS"], ["train-worker-0"]),
    ],
)
def test_one_rank_is_labelled_as_the_master(roles, leaders):
    document = tfjob(**{role: replica(1 if role == "Chief" else 2) for role in roles})
    job = read_manifest(document)
    ranks = [environments_of(document)(rank) for rank in range(job.spec.size)]

    key = "training.kubeflow.org/job-role"
    assert [rank.name for rank in ranks if rank.labels.get(key) == "master"] == leaders
    assert ranks[0].labels["training.kubeflow.org/operator-name"] == "tfjob-controller"


def test_every_rank_has_a_service_of_its_own():
    job = read_manifest(tfjob(Worker=replica(2)))
    gang = GangContext(job.namespace, job.name, job.spec)
    kind = kind_of(job.spec)

    services = kind.services(gang)

    assert [service.name for service in services] == ["train-worker-0", "train-worker-1"]
    assert services[1].selector == kind.environments(gang)(1).labels
    assert services[0].ports == (("tfjob-port", 2222),)


def test_a_container_list_that_is_empty_is_wrong_twice():
    where = f"{WORKER}.template.spec.containers"
    document = tfjob(Worker={"template": {"spec": {"containers": []}}})

    assert problems(document) == [("Required", where), ("Required", where)]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"name": "tensorflow", "image": ""}, ("Required", ".template.spec.containers[0].image")),
        ({"name": "", "image": "x"}, ("Required", ".template.spec.containers")),
        ({"image": "x"}, ("Required", ".template.spec.containers")),
        (
            {"name": "tensorflow", "image": "x", "ports": [{"containerPort": 0}]},
            ("Invalid", ".template.spec.containers[0].ports[0].containerPort"),
        ),
    ],
)
def test_a_container_must_be_whole(container, expected):
    document = tfjob(Worker={"template": {"spec": {"containers": [container]}}})

    assert problems(document) == [(expected[0], WORKER + expected[1])]


def test_role_names_are_checked():
    assert problems(tfjob(Foo=replica())) == [("NotSupported", "spec.tfReplicaSpecs[Foo]")]
    assert problems(tfjob(Chief=replica(), Master=replica())) == [
        ("Forbidden", "spec.tfReplicaSpecs")
    ]


# ------------------------------------------------------------------ 2018 and 2019


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha2"])
def test_the_run_policy_may_stand_in_the_spec_itself(version):
    document = tfjob(f"kubeflow.org/{version}", Worker=replica())
    document["spec"].update(ttlSecondsAfterFinished=5, backoffLimit=2, activeDeadlineSeconds=9)

    spec = read_manifest(document).spec

    assert (spec.ttl_s, spec.restart.limit, spec.active_deadline_s) == (5, 2, 9)
    assert spec.clean is (CleanPods.NONE if version == "v1" else CleanPods.RUNNING)


def test_two_run_policies_may_not_contradict_each_other():
    document = tfjob(Worker=replica())
    document["spec"].update(backoffLimit=2, runPolicy={"backoffLimit": 2})
    assert read_manifest(document).spec.restart.limit == 2

    document["spec"]["backoffLimit"] = 3
    assert problems(document) == [("Forbidden", "spec.backoffLimit")]


def test_a_flat_run_policy_is_checked_where_it_stands():
    document = tfjob("kubeflow.org/v1beta1", Worker=replica())
    document["spec"].update(backoffLimit=-1, cleanPodPolicy="Some")

    assert problems(document) == [
        ("Invalid", "spec.backoffLimit"),
        ("NotSupported", "spec.cleanPodPolicy"),
    ]


def test_the_list_style_has_the_defaults_of_2018():
    spec = read_manifest(listed(entry())).spec

    assert [(role.name, role.replicas) for role in spec.roles] == [("Master", 1)]
    assert spec.options["tfImage"] == "tensorflow/tensorflow:1.3.0"
    assert spec.options["terminationPolicy"] == {
        "chief": {"replicaName": "MASTER", "replicaIndex": 0}
    }
    assert spec.done_when == DoneWhen("Master", first=True)


def test_in_the_list_style_only_the_chief_decides():
    roles = read_manifest(listed(entry("MASTER"), entry("WORKER", 2), entry("PS"))).spec.roles

    assert [(role.name, role.restart.value, role.optional) for role in roles] == [
        ("Master", "ExitCode", False),
        ("PS", "Always", True),
        ("Worker", "Always", True),
    ]


def test_the_list_style_names_its_ranks_as_in_2018():
    document = listed(entry("MASTER"), entry("WORKER", 2, tfPort=2223), RuntimeId="ab12")
    document["metadata"]["name"] = "j"

    rank = environments_of(document)(1)

    assert rank.name == "j-worker-ab12-0"
    assert rank.labels == {
        "kubeflow.org": "",
        "job_type": "WORKER",
        "runtime_id": "ab12",
        "tf_job_name": "j",
        "task_index": "0",
    }
    assert json.loads(rank.env["TF_CONFIG"]) == {
        "cluster": {
            "master": ["j-master-ab12-0:2222"],
            "worker": ["j-worker-ab12-0:2223", "j-worker-ab12-1:2223"],
        },
        "task": {"type": "worker", "index": 0},
        "environment": "cloud",
    }


def test_a_long_name_is_cut_in_the_list_style():
    document = changed(listed(entry("MASTER")), ("metadata", "name"), "x" * 50)

    assert environments_of(document)(0).name.startswith("x" * 40 + "-master-")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (listed(), ("Required", "spec.replicaSpecs")),
        (listed({"tfReplicaType": "MASTER"}), ("Required", "spec.replicaSpecs[0].template")),
        (
            listed({"template": template("not-tensorflow")}),
            ("Required", "spec.replicaSpecs[0].template.spec.containers"),
        ),
        (listed(entry("MASTER", 2)), ("Forbidden", "spec.replicaSpecs[0].replicas")),
        (listed(entry("WORKER")), ("Required", "spec.replicaSpecs")),
        (
            listed(entry("MASTER"), entry("BOSS")),
            ("NotSupported", "spec.replicaSpecs[1].tfReplicaType"),
        ),
        (
            listed(entry("MASTER"), entry("MASTER")),
            ("Duplicate", "spec.replicaSpecs[1].tfReplicaType"),
        ),
        (
            listed(entry("MASTER"), terminationPolicy={}),
            ("Required", "spec.terminationPolicy.chief"),
        ),
        (
            listed(entry("MASTER"), terminationPolicy={"chief": {"replicaIndex": 1}}),
            ("NotSupported", "spec.terminationPolicy.chief.replicaIndex"),
        ),
        (listed(entry("MASTER", tfPort=0)), ("Invalid", "spec.replicaSpecs[0].tfPort")),
        (listed(entry("MASTER"), RuntimeId="A/B"), ("Invalid", "spec.RuntimeId")),
    ],
)
def test_the_list_style_is_checked_too(document, expected):
    assert expected in problems(document)
    assert len(problems(document)) <= 2
