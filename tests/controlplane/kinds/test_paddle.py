"""PaddleJob: collective, or with parameter servers."""

import pytest

from controlplane.kinds.registry import read_manifest
from controlplane.model.spec import DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import environments_of, manifest, problems, template


def paddlejob(spec=None, port=None, **roles):
    ports = {} if port is None else {"ports": [{"name": "master", "containerPort": port}]}
    replicas = {
        name: {"replicas": count, "template": template("paddle", **ports)}
        for name, count in roles.items()
    }
    return manifest("PaddleJob", {"paddleReplicaSpecs": replicas, **(spec or {})})


@pytest.mark.parametrize(
    ("document", "decides"),
    [
        (paddlejob(Master=1, Worker=1), DoneWhen("Master")),
        (paddlejob(Worker=2), DoneWhen("Worker")),
    ],
)
def test_which_ranks_decide_the_end_of_a_job(document, decides):
    spec = read_manifest(document).spec

    assert spec.done_when == decides
    assert {role.restart for role in spec.roles} == {RestartRule.ON_FAILURE}


def test_equal_workers_meet_at_the_first_one_which_knows_its_own_address():
    environment = environments_of(paddlejob(Worker=2))

    assert environment(0).env == {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": "train",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "$(POD_IP_DUMMY):36543",
    }
    assert environment(0).env_from_pod == {"POD_IP_DUMMY": "status.podIP"}
    assert environment(1).env["PADDLE_MASTER"] == "train-worker-0:36543"
    assert environment(1).env_from_pod == {}
    assert "training.kubeflow.org/job-role" not in environment(0).labels


def test_with_servers_they_meet_at_the_first_master():
    environment = environments_of(paddlejob(port=8080, Master=1, Worker=1))

    assert environment(0).env["PADDLE_SERVER_NUM"] == "1"
    assert environment(1).env == {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": "train",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "train-master-0:8080",
        "PADDLE_TRAINER_NUM": "1",
    }


def test_its_elastic_policy_has_no_effect_and_gives_a_warning():
    job = read_manifest(paddlejob({"elasticPolicy": {}}, Worker=2))

    assert job.spec.options["elasticPolicy"] == {"minReplicas": 2, "maxReplicas": 2}
    assert job.spec.roles[0].min_replicas is None
    assert len(job.warnings) == 1


def test_role_names_are_checked():
    assert problems(paddlejob(PS=1)) == [("NotSupported", "spec.paddleReplicaSpecs[PS]")]
