"""TrainJob and the runtimes it can name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kinds.trainer.runtimes import RUNTIMES
from controlplane.kinds.trainer.trainer import KIND
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.model.failures import Exit
from controlplane.model.reasons import DeadlinePassed, FailureReason
from controlplane.model.spec import DoneWhen
from tests.controlplane.kinds.reading import (
    attempt,
    contents,
    environment_of,
    form_of,
    gang_of,
    life,
    manifest,
    placed,
    problems,
    read,
    written,
)

VERSION = "trainer.kubeflow.org/v1alpha1"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def job(runtime="torch-distributed", trainer=None, **spec):
    if trainer is not None:
        spec["trainer"] = trainer
    return manifest("TrainJob", VERSION, {"runtimeRef": {"name": runtime}, **spec}, "t", "ns")


def mpi(nodes=3, runtime="deepspeed-distributed", **trainer):
    return job(runtime, {"numNodes": nodes, "command": ["mpirun", "train"], **trainer})


def resources(**limits):
    return {"limits": {name.replace("gpu", "nvidia.com/gpu"): n for name, n in limits.items()}}


# ------------------------------------------------------------------ what it means


def test_a_torch_job_is_so_many_nodes_that_must_all_succeed():
    document = job(
        trainer={"numNodes": 3, "args": ["train.py"], "resourcesPerNode": resources(gpu=4)}
    )
    spec = read(KIND, document).spec
    (node,) = spec.roles

    assert (node.name, node.replicas, node.gpus, node.args) == ("node", 3, 4, ("train.py",))
    assert node.image == RUNTIMES["torch-distributed"].image
    assert spec.done_when == DoneWhen("node")


def test_an_mpi_job_is_decided_by_its_launcher_which_is_one_of_the_nodes():
    spec = read(KIND, mpi(3, resourcesPerNode=resources(gpu=2))).spec
    node, launcher = spec.roles

    assert (node.replicas, node.gpus, node.is_server) == (2, 2, True)
    assert node.command == ("/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config")
    assert (launcher.replicas, launcher.gpus, launcher.command) == (1, 2, ("mpirun", "train"))
    assert launcher.starts_after == "node"
    assert spec.done_when == DoneWhen("launcher")


def test_one_node_is_one_pod_though_the_operator_would_start_two():
    spec = read(KIND, mpi(1)).spec

    assert [(role.name, role.replicas) for role in spec.roles] == [("node", 0), ("launcher", 1)]
    assert spec.role("launcher").starts_after == ""


def test_a_launcher_apart_from_the_nodes_holds_no_gpus():
    document = mpi(2, "mpi-launcher", image="x", resourcesPerNode=resources(gpu=2))
    submission = read(KIND, document)

    assert [(role.replicas, role.gpus) for role in submission.spec.roles] == [(2, 2), (1, 0)]
    listed = contents(KIND, submission, "hostfile")
    assert listed == "t-node-0-0.t slots=2\nt-node-0-1.t slots=2\n"


# ------------------------------------------------------------------ what is refused


def test_a_runtime_that_is_not_built_in_is_refused_with_the_list():
    with pytest.raises(Rejected) as refusal:
        read(KIND, job("my-own"))

    assert refusal.value.field == "spec.runtimeRef.name"
    for name in RUNTIMES:
        assert name in refusal.value.message


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            job(trainer={"env": [{"name": "PET_NNODES", "value": "3"}]}),
            [("Invalid", "spec.trainer.env")],
        ),
        (
            mpi(env=[{"name": "OMPI_MCA_plm_rsh_args", "value": ""}]),
            [("Invalid", "spec.trainer.env")],
        ),
        (
            job(
                "xgboost-distributed",
                {"env": [{"name": "A"}, {"name": "DMLC_TASK_ID", "value": "1"}]},
            ),
            [("Forbidden", "spec.trainer.env[1]")],
        ),
        (
            job("jax-distributed", {"env": [{"name": "JAX_PROCESS_ID", "value": "1"}]}),
            [("Invalid", "spec.trainer.env")],
        ),
        (job(trainer={"numProcPerNode": 0}), [("Invalid", "spec.trainer.numProcPerNode")]),
        (mpi(numProcPerNode="auto"), [("Invalid", "spec.trainer.numProcPerNode")]),
        (job(trainer={"numNodes": 0}), [("Invalid", "spec.trainer.numNodes")]),
        (job("mpi-distributed"), [("Required", "spec.trainer.image")]),
        (job(activeDeadlineSeconds=0), [("Invalid", "spec.activeDeadlineSeconds")]),
        (job(managedBy="me"), [("NotSupported", "spec.managedBy")]),
        (
            job(trainer={"resourcesPerNode": resources(gpu="half")}),
            [("Invalid", "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]")],
        ),
        (
            job(initializer={"dataset": {"storageUri": "somewhere"}}),
            [("Invalid", "spec.initializer.dataset.storageUri")],
        ),
    ],
)
def test_a_mistake_is_reported_with_its_sort_and_field(document, expected):
    assert problems(KIND, document) == expected


def test_a_runtime_of_another_group_is_refused():
    document = job()
    document["spec"]["runtimeRef"]["apiGroup"] = "example.com"

    assert problems(KIND, document) == [("NotSupported", "spec.runtimeRef.kind")]


def test_a_name_must_be_a_label():
    document = job()
    document["metadata"]["name"] = "1st"

    assert problems(KIND, document) == [("Invalid", "metadata.name")]


def test_an_initializer_is_kept_and_warned_about():
    sources = {"model": {"storageUri": "hf://meta/llama"}}
    submission, findings = attempt(KIND, job(initializer=sources))

    assert submission.spec.options["initializer"] == sources
    assert "no step that would fetch it" in findings.warnings[0]


def test_the_operators_own_jobs_are_ours_and_the_others_are_not():
    ours = read(KIND, job(managedBy="trainer.kubeflow.org/trainjob-controller"))
    theirs = read(KIND, job(managedBy="kueue.x-k8s.io/multikueue"))

    assert (ours.spec.managed_by, theirs.spec.managed_by) == ("", "kueue.x-k8s.io/multikueue")


def test_the_documentation_lists_every_runtime():
    page = (Path(__file__).parents[3] / "docs" / "mpi-and-trainer-jobs.md").read_text()

    assert [name for name in RUNTIMES if f"`{name}`" not in page] == []


# ------------------------------------------------------------------ patches


def patch(pod, name="node", manager="me"):
    jobs = [{"name": name, "template": {"spec": {"template": {"spec": pod}}}}]
    template = {"spec": {"replicatedJobs": jobs}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


def test_patches_change_the_pods_of_their_part():
    first = patch({"nodeSelector": {"a": "1"}, "volumes": [{"name": "v", "emptyDir": {}}]})
    second = patch({"nodeSelector": {"b": "2"}, "serviceAccountName": "sa"}, manager="kueue")
    mount = patch({"containers": [{"name": "node", "volumeMounts": [{"name": "v"}]}]}, manager="c")
    node = read(KIND, job(runtimePatches=[first, second, mount])).spec.roles[0]

    pod = node.template["spec"]
    assert pod["nodeSelector"] == {"a": "1", "b": "2"}
    assert (pod["serviceAccountName"], pod["volumes"][0]["name"]) == ("sa", "v")
    (container,) = pod["containers"]
    assert container["volumeMounts"] == [{"name": "v"}]
    assert container["image"] == RUNTIMES["torch-distributed"].image


def test_a_patch_for_another_part_changes_nothing_here():
    document = mpi(2)
    document["spec"]["runtimePatches"] = [patch({"nodeSelector": {"a": "1"}}, "launcher")]
    node, launcher = read(KIND, document).spec.roles

    assert "nodeSelector" not in node.template["spec"]
    assert launcher.template["spec"]["nodeSelector"] == {"a": "1"}


INSIDE = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"


@pytest.mark.parametrize(
    ("patches", "expected"),
    [
        ([patch({}, "launcher")], [("Invalid", f"{INSIDE}.name")]),
        ([patch({}, manager="")], [("Required", "spec.runtimePatches[0].manager")]),
        ([patch({}), patch({})], [("Duplicate", "spec.runtimePatches[1].manager")]),
        (
            [patch({"containers": [{"name": "node", "env": [{"name": "A"}]}]})],
            [("Forbidden", f"{INSIDE}.template.spec.template.spec.containers[0].env")],
        ),
        (
            [patch({"containers": [{"name": "other"}]})],
            [("Invalid", f"{INSIDE}.template.spec.template.spec.containers[0].name")],
        ),
        (
            [patch({"initContainers": [{"name": "other"}]})],
            [("Invalid", f"{INSIDE}.template.spec.template.spec.initContainers[0].name")],
        ),
        (
            [patch({}, manager=f"m{i}") for i in range(17)],
            [("Invalid", "spec.runtimePatches")],
        ),
    ],
)
def test_a_patch_that_fits_nothing_is_refused(patches, expected):
    assert problems(KIND, job(runtimePatches=patches)) == expected


# ------------------------------------------------------------------ the environment of nodes


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({"resourcesPerNode": resources(cpu=4)}, "4"),
        ({"resourcesPerNode": resources(cpu="2500m")}, "3"),
        ({"resourcesPerNode": {"requests": {"cpu": 2}, "limits": {"cpu": 8}}}, "2"),
        ({"resourcesPerNode": resources(gpu=8, cpu=4)}, "auto"),
        ({"resourcesPerNode": resources(gpu=8), "numProcPerNode": 2}, "2"),
        ({"numProcPerNode": "gpu"}, "gpu"),
        ({}, "1"),
    ],
)
def test_torchrun_gets_its_rendezvous_and_the_number_of_processes(trainer, processes):
    node = environment_of(KIND, read(KIND, job(trainer={"numNodes": 3, **trainer})), 2)

    assert node.env == {
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": processes,
        "PET_MASTER_ADDR": "t-node-0-0.t",
        "PET_MASTER_PORT": "29500",
    }
    assert node.env_from_pod == {"PET_NODE_RANK": INDEX}
    assert node.annotations == {"batch.kubernetes.io/job-completion-index": "2"}
    assert (node.name, node.hostname, node.subdomain) == ("t-node-0-2", "t-node-0-2", "t")


def test_jax_gets_its_coordinator():
    node = environment_of(KIND, read(KIND, job("jax-distributed", {"numNodes": 2})), 1)

    assert node.env == {
        "JAX_NUM_PROCESSES": "2",
        "JAX_COORDINATOR_ADDRESS": "t-node-0-0.t:29500",
    }
    assert node.env_from_pod == {"JAX_PROCESS_ID": INDEX}


@pytest.mark.parametrize(("gpus", "workers"), [(4, "8"), (0, "2")])
def test_xgboost_has_a_worker_for_each_gpu(gpus, workers):
    trainer = {"numNodes": 2, "resourcesPerNode": resources(gpu=gpus)}
    node = environment_of(KIND, read(KIND, job("xgboost-distributed", trainer)), 0)

    assert node.env == {
        "DMLC_TRACKER_URI": "t-node-0-0.t",
        "DMLC_TRACKER_PORT": "29500",
        "DMLC_NUM_WORKER": workers,
    }
    assert node.env_from_pod == {"DMLC_TASK_ID": INDEX}


def test_mpi_lists_the_nodes_and_then_the_launcher():
    submission = read(KIND, mpi(3, numProcPerNode=2))

    assert contents(KIND, submission, "hostfile") == (
        "t-node-0-0.t slots=2\nt-node-0-1.t slots=2\nt-launcher-0-0.t slots=2\n"
    )
    launcher, node = environment_of(KIND, submission, 2), environment_of(KIND, submission, 0)
    assert launcher.env == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }
    keys = {"/home/mpiuser/.ssh": "t-mpi-ssh-auth"}
    assert (node.env, node.mounts) == ({}, keys)
    assert launcher.mounts == {**keys, "/etc/mpi": "t-mpi-hostfile"}


def test_mpi_has_a_slot_for_each_gpu_by_default():
    submission = read(KIND, mpi(1, resourcesPerNode=resources(gpu=8)))

    assert contents(KIND, submission, "hostfile") == "t-launcher-0-0.t slots=8\n"


def test_one_service_leads_to_all_pods_before_they_are_ready():
    (service,) = KIND.services(gang_of(read(KIND, job())))

    assert (service.name, service.before_ready) == ("t", True)


# ------------------------------------------------------------------ back, and what became of it


@given(
    nodes=st.integers(1, 5),
    runtime=st.sampled_from(sorted(RUNTIMES)),
    gpus=st.integers(0, 8),
    processes=st.none() | st.integers(1, 4),
    suspend=st.booleans(),
    deadline=st.none() | st.integers(1, 100),
)
def test_what_is_written_is_read_as_the_same_job(
    nodes, runtime, gpus, processes, suspend, deadline
):
    trainer = {"image": "x", "numNodes": nodes, "resourcesPerNode": resources(gpu=gpus)}
    once = read(
        KIND,
        job(
            runtime,
            {**trainer, "numProcPerNode": processes},
            suspend=suspend,
            activeDeadlineSeconds=deadline,
            runtimePatches=[patch({"nodeSelector": {"a": "1"}})],
            initializer={"model": {"storageUri": "hf://a/b"}},
        ),
    )
    again = written(KIND, once)

    assert read(KIND, again) == once
    assert again["spec"]["trainer"]["numNodes"] == nodes
    assert again["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"


STATUS = form_of(KIND, VERSION).status


def conditions(job):
    shown = STATUS(job).get("conditions", [])
    return [(each["type"], each["status"], each["reason"]) for each in shown]


def test_the_conditions_of_a_trainjob():
    spec = read(KIND, job(trainer={"numNodes": 2})).spec
    running = (placed(spec), e.RanksStarted("j1", 1, (0, 1)), e.GangStarted("j1", 1))

    assert conditions(life(spec)) == []
    assert conditions(life(spec, *running)) == []
    assert conditions(life(spec, e.JobSuspended("j1"))) == [("Suspended", "True", "Suspended")]
    resumed = (e.JobSuspended("j1"), e.JobResumed("j1"))
    assert conditions(life(spec, *resumed)) == [("Suspended", "False", "Resumed")]
    assert conditions(life(spec, *running, e.JobSucceeded("j1"))) == [
        ("Complete", "True", "AllJobsCompleted")
    ]
    late = e.JobFailed("j1", FailureReason.DEADLINE_EXCEEDED, facts=DeadlinePassed(60.0))
    assert conditions(life(spec, *running, late)) == [("Failed", "True", "DeadlineExceeded")]
    cancelled = life(spec, e.JobCancelled("j1"))
    assert conditions(cancelled) == [("Failed", "True", "Cancelled")]
    failed = e.JobFailed("j1", FailureReason.RETRIES_EXHAUSTED)
    assert conditions(life(spec, *running, failed)) == [("Failed", "True", "FailedJobs")]


def test_each_part_of_a_runtime_is_one_job():
    spec = read(KIND, mpi(2)).spec
    running = (placed(spec), e.RanksStarted("j1", 1, (0, 1)), e.GangStarted("j1", 1))

    def jobs(*events):
        return {each.pop("name"): each for each in STATUS(life(spec, *events))["jobsStatus"]}

    idle = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    assert jobs(placed(spec)) == {name: {**idle, "active": 1} for name in ("node", "launcher")}
    assert jobs(*running)["launcher"] == {**idle, "active": 1, "ready": 1}
    done = (e.RanksExited("j1", 1, (Exit(1, 0),)), e.JobSucceeded("j1"))
    assert jobs(*running, *done) == {"node": idle, "launcher": {**idle, "succeeded": 1}}
