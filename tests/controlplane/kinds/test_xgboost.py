"""XGBoostJob: a master that decides, and workers."""

import pytest

from controlplane.kinds.registry import read_manifest
from controlplane.model.spec import CleanPods, DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import V1, environments_of, manifest, problems, replica


def xgboostjob(version=V1, **roles):
    replicas = {name: replica(count, name="xgboost") for name, count in roles.items()}
    return manifest("XGBoostJob", {"xgbReplicaSpecs": replicas}, version)


def test_the_master_decides():
    spec = read_manifest(xgboostjob(Master=1, worker=2)).spec

    assert spec.done_when == DoneWhen("Master")
    assert {role.restart for role in spec.roles} == {RestartRule.NEVER}


def test_the_environment_of_ranks():
    environment = environments_of(xgboostjob(Master=1, Worker=2))

    assert environment(2).env == {
        "MASTER_PORT": "9999",
        "MASTER_ADDR": "train-master-0",
        "WORLD_SIZE": "3",
        "PYTHONUNBUFFERED": "1",
        "WORKER_PORT": "9999",
        "WORKER_ADDRS": "train-worker-0,train-worker-1",
        "RANK": "2",
    }


@pytest.mark.parametrize("roles", [{"Master": 1}, {"Master": 1, "Worker": 0}])
def test_a_master_alone_knows_of_no_workers(roles):
    env = environments_of(xgboostjob(**roles))(0).env

    assert "WORKER_PORT" not in env
    assert "WORKER_ADDRS" not in env


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (xgboostjob(Worker=1), [("Required", "spec.xgbReplicaSpecs[Master]")]),
        (xgboostjob(Master=2), [("Forbidden", "spec.xgbReplicaSpecs[Master].replicas")]),
        (xgboostjob(Master=None), [("Forbidden", "spec.xgbReplicaSpecs[Master].replicas")]),
        (xgboostjob(Master=1, Chief=1), [("NotSupported", "spec.xgbReplicaSpecs[Chief]")]),
        (xgboostjob(), [("Required", "spec.xgbReplicaSpecs[Master]")]),
        (
            manifest("XGBoostJob", {}),
            [("Required", "spec.xgbReplicaSpecs"), ("Required", "spec.xgbReplicaSpecs[Master]")],
        ),
    ],
)
def test_what_is_refused(document, expected):
    assert problems(document) == expected


def test_the_group_of_its_own_operator_is_known():
    document = xgboostjob("xgboostjob.kubeflow.org/v1alpha1", Master=1)
    document["spec"]["schedulingPolicy"] = {"queue": "gold"}

    spec = read_manifest(document).spec

    assert (spec.clean, spec.queue) == (CleanPods.ALL, "gold")
