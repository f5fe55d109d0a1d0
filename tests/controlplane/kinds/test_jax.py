"""JAXJob: processes that meet at the first of them."""

from controlplane.kinds.registry import read_manifest
from controlplane.model.spec import DoneWhen, RestartRule
from tests.controlplane.kinds.manifests import environments_of, manifest, problems, replica


def jaxjob(**roles):
    replicas = {name: replica(count, name="jax") for name, count in roles.items()}
    return manifest("JAXJob", {"jaxReplicaSpecs": replicas})


def test_all_workers_decide():
    spec = read_manifest(jaxjob(worker=None)).spec

    assert spec.done_when == DoneWhen("Worker")
    assert spec.roles[0].restart is RestartRule.NEVER


def test_the_environment_of_ranks():
    environment = environments_of(jaxjob(Worker=2))

    assert environment(1).env == {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_PORT": "6666",
        "COORDINATOR_ADDRESS": "train-worker-0",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }
    assert environment(0).labels["training.kubeflow.org/job-role"] == "master"


def test_the_managing_controller_is_checked_as_for_all_others():
    document = jaxjob(Worker=1)
    document["spec"]["runPolicy"] = {"managedBy": "other"}

    assert problems(document) == [("NotSupported", "spec.runPolicy.managedBy")]
    assert problems(jaxjob(Master=1)) == [("NotSupported", "spec.jaxReplicaSpecs[Master]")]
