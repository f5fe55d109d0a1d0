"""PaddleJob: collective, or with parameter servers."""

import pytest

from controlplane.kinds.registry import read_manifest
from controlplane.model import DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import manifest, problems, template, told


def paddlejob(spec=None, port=None, **roles):
    ports = {} if port is None else {"ports": [{"name": "master", "containerPort": port}]}
    found = {
        name: {"replicas": count, "template": template("paddle", **ports)}
        for name, count in roles.items()
    }
    return manifest("PaddleJob", {"paddleReplicaSpecs": found, **(spec or {})})


@pytest.mark.parametrize(
    ("document", "decides"),
    [
        (paddlejob(Master=1, Worker=1), DoneWhen("Master")),
        (paddlejob(Worker=2), DoneWhen("Worker")),
    ],
)
def test_who_decides(document, decides):
    spec = read_manifest(document).spec

    assert spec.done_when == decides
    assert {role.restart for role in spec.roles} == {RestartRule.ON_FAILURE}


def test_equals_meet_at_the_first_worker_who_knows_its_own_address():
    tell = told(paddlejob(Worker=2))

    assert tell(0).env == {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": "train",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "$(POD_IP_DUMMY):36543",
    }
    assert tell(0).env_from_pod == {"POD_IP_DUMMY": "status.podIP"}
    assert tell(1).env["PADDLE_MASTER"] == "train-worker-0:36543"
    assert tell(1).env_from_pod == {}
    assert "training.kubeflow.org/job-role" not in tell(0).labels


def test_with_servers_they_meet_at_the_first_master():
    tell = told(paddlejob(port=8080, Master=1, Worker=1))

    assert tell(0).env["PADDLE_SERVER_NUM"] == "1"
    assert tell(1).env == {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": "train",
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "train-master-0:8080",
        "PADDLE_TRAINER_NUM": "1",
    }


def test_its_elastic_policy_has_no_effect_and_says_so():
    job = read_manifest(paddlejob({"elasticPolicy": {}}, Worker=2))

    assert job.spec.options["elasticPolicy"] == {"minReplicas": 2, "maxReplicas": 2}
    assert job.spec.roles[0].min_replicas is None
    assert len(job.warnings) == 1


def test_role_names_are_checked():
    assert problems(paddlejob(PS=1)) == [("NotSupported", "spec.paddleReplicaSpecs[PS]")]
