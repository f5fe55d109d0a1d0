"""The older MPIJobs, whose launcher uses `kubectl exec`: v1, v1alpha2 and v1alpha1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kinds.mpi.mpi import KIND
from controlplane.model import events as e
from controlplane.model.spec import DoneWhen, RestartRule
from tests.controlplane.kinds.reading import (
    contents,
    environment_of,
    form_of,
    gang_of,
    life,
    manifest,
    placed,
    problems,
    read,
    replica,
    written,
)

WHERE = "spec.mpiReplicaSpecs"
NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


def v1(workers=2, launcher=None, worker=None, version="kubeflow.org/v1", **spec):
    roles = {"Launcher": launcher or replica(), "Worker": worker or replica(workers)}
    return manifest("MPIJob", version, {"mpiReplicaSpecs": roles, **spec}, "m", "ns")


def v1alpha2(**spec):
    return v1(version="kubeflow.org/v1alpha2", **spec)


def v1alpha1(limits=None, command=("mpirun", "train"), pod=None, **spec):
    template = replica(limits=limits, command=list(command), pod=pod)["template"]
    return manifest("MPIJob", "kubeflow.org/v1alpha1", {"template": template, **spec}, "j", "ns")


# ------------------------------------------------------------------ v1


def test_defaults_of_v1():
    submission = read(KIND, v1(launcher=replica(), worker=replica()))
    launcher, worker = submission.spec.roles

    assert (launcher.replicas, launcher.restart) == (1, RestartRule.NEVER)
    assert (worker.replicas, worker.restart) == (0, RestartRule.NEVER)
    assert submission.spec.clean == "None"
    assert submission.spec.options == {"slotsPerWorker": 1, "mainContainer": ""}
    assert submission.spec.done_when == DoneWhen("Launcher")


def test_both_places_of_the_clean_up_policy_are_read_and_written():
    outside = read(KIND, v1(cleanPodPolicy="Running"))
    both = read(KIND, v1(cleanPodPolicy="All", runPolicy={"cleanPodPolicy": "Running"}))

    for submission in (outside, both):
        assert submission.spec.clean == "Running"
        spec = written(KIND, submission)["spec"]
        assert (spec["cleanPodPolicy"], spec["runPolicy"]["cleanPodPolicy"]) == (
            "Running",
            "Running",
        )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (manifest("MPIJob", "kubeflow.org/v1", {"mpiReplicaSpecs": None}), [("Required", WHERE)]),
        (
            v1(launcher={"template": {"spec": {"containers": []}}}),
            [("Required", f"{WHERE}[Launcher].template.spec.containers")],
        ),
        (
            v1(launcher=replica(image="")),
            [("Required", f"{WHERE}[Launcher].template.spec.containers[0].image")],
        ),
        (
            v1(worker=replica(1, name="")),
            [("Required", f"{WHERE}[Worker].template.spec.containers[0].name")],
        ),
        (v1(launcher=replica(2)), [("Invalid", f"{WHERE}[Launcher].replicas")]),
        (v1(mainContainer="other"), [("Invalid", "spec.mainContainer")]),
        (v1(slotsPerWorker=-2), [("Invalid", "spec.slotsPerWorker")]),
        (v1alpha2(mpiDistribution="lam"), [("NotSupported", "spec.mpiDistribution")]),
    ],
)
def test_a_mistake_is_reported_with_its_sort_and_field(document, expected):
    assert problems(KIND, document) == expected


def test_a_launcher_is_needed():
    document = manifest("MPIJob", "kubeflow.org/v1", {"mpiReplicaSpecs": {"Worker": replica(1)}})

    assert problems(KIND, document) == [("Required", f"{WHERE}[Launcher]")]


def test_the_launcher_gets_the_addresses_of_the_workers():
    launcher = environment_of(KIND, read(KIND, v1()), 0)

    assert launcher.name == "m-launcher"
    assert launcher.env == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        **NO_GPUS,
    }
    # A person who has set one of these is heard.
    assert launcher.env_if_unset == {
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
    }
    assert launcher.mounts == {"/etc/mpi": "m-config"}
    assert launcher.scratch == {"/opt/kube": "mpi-job-kubectl"}
    assert (launcher.account, launcher.may_exec_in) == (
        "m-launcher",
        ("m-worker-0", "m-worker-1"),
    )
    assert launcher.labels == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "m",
        "training.kubeflow.org/replica-type": "launcher",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }


def test_kubectl_is_delivered_by_a_small_init_container():
    (delivery,) = environment_of(KIND, read(KIND, v1()), 0).init_containers

    small = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    assert delivery["name"] == "kubectl-delivery"
    assert delivery["resources"] == {"limits": small, "requests": small}
    assert {each["name"]: each["value"] for each in delivery["env"]} == {
        "TARGET_DIR": "/opt/kube",
        "NAMESPACE": "ns",
    }


def test_an_account_that_the_person_names_is_used():
    launcher = replica(pod={"serviceAccountName": "user-sa"})

    assert environment_of(KIND, read(KIND, v1(launcher=launcher)), 0).account == "user-sa"


def test_a_worker_sleeps():
    worker = environment_of(KIND, read(KIND, v1()), 2)

    assert (worker.name, worker.command) == ("m-worker-1", ("sleep", "365d"))
    assert worker.mounts == {"/etc/mpi": "m-config"}
    assert worker.labels["training.kubeflow.org/replica-index"] == "1"
    assert worker.init_containers == ()


@pytest.mark.parametrize(
    ("resource", "is_gpu"),
    [
        ("nvidia.com/gpu", True),
        ("vendor-domain/gpu", True),
        ("example.com/gpu-memory", True),
        ("vendor-domain/resourcetype", False),
        ("cpu", False),
    ],
)
def test_a_launcher_with_a_gpu_is_a_host_and_sees_its_gpus(resource, is_gpu):
    submission = read(KIND, v1(1, launcher=replica(limits={resource: 1}), slotsPerWorker=4))

    launcher = "m-launcher slots=4\n" if is_gpu else ""
    assert contents(KIND, submission, "hostfile") == f"{launcher}m-worker-0 slots=4\n"
    assert (NO_GPUS.keys() <= environment_of(KIND, submission, 0).env.keys()) is not is_gpu
    script = contents(KIND, submission, "discover_hosts.sh", running=[1])
    assert ("echo m-launcher:4\n" in script) is is_gpu


def test_elastic_horovod_discovers_workers_with_their_slots():
    submission = read(KIND, v1(3, slotsPerWorker=2))

    script = contents(KIND, submission, "discover_hosts.sh", running=[0, 3, 1])
    assert script == "#!/bin/sh\necho m-worker-0:2\necho m-worker-2:2\n"


def test_commands_run_in_the_main_container():
    plain = contents(KIND, read(KIND, v1()), "kubexec.sh")
    chosen = contents(KIND, read(KIND, v1(mainContainer="mpi")), "kubexec.sh")

    line = '/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"\n'
    assert plain.endswith(line)
    assert chosen.endswith(line.replace(" --", " --container mpi --", 1))
    modes = KIND.files(gang_of(read(KIND, v1())), ())[0].modes
    assert modes == {"hostfile": 0o444, "kubexec.sh": 0o555, "discover_hosts.sh": 0o555}


def test_no_rank_needs_a_name_so_there_is_no_service():
    assert list(KIND.services(gang_of(read(KIND, v1())))) == []


@given(
    workers=st.integers(0, 20),
    slots=st.none() | st.integers(1, 8),
    main=st.sampled_from(["", "mpi"]),
    clean=st.none() | st.sampled_from(["None", "Running", "All"]),
    restart=st.none() | st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"]),
    version=st.sampled_from(["kubeflow.org/v1", "kubeflow.org/v1alpha2"]),
)
def test_what_is_written_is_read_as_the_same_job(workers, slots, main, clean, restart, version):
    once = read(
        KIND,
        v1(
            launcher=replica(restart=restart),
            worker=replica(workers, limits={"nvidia.com/gpu": 1}),
            version=version,
            slotsPerWorker=slots,
            mainContainer=main,
            cleanPodPolicy=clean,
            runPolicy={"suspend": True, "backoffLimit": 3},
        ),
    )

    assert once.suspended
    assert read(KIND, written(KIND, once)) == once


# ------------------------------------------------------------------ v1alpha2


def test_v1alpha2_had_its_limits_in_the_spec_and_a_run_policy_over_them():
    flat = read(KIND, v1alpha2(backoffLimit=3, activeDeadlineSeconds=60))
    over = read(KIND, v1alpha2(backoffLimit=3, runPolicy={"backoffLimit": 1}))

    assert (flat.spec.restart.limit, flat.spec.active_deadline_s) == (3, 60)
    assert over.spec.restart.limit == 1


@pytest.mark.parametrize(
    ("distribution", "line", "agent", "listed"),
    [
        (
            "open_mpi",
            "m-worker-0 slots=2",
            "OMPI_MCA_plm_rsh_agent",
            "OMPI_MCA_orte_default_hostfile",
        ),
        ("intel_mpi", "m-worker-0:2", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_HOST_FILE"),
        ("mpich", "m-worker-0:2", "HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"),
    ],
)
def test_v1alpha2_knew_three_distributions(distribution, line, agent, listed):
    submission = read(KIND, v1alpha2(mpiDistribution=distribution, slotsPerWorker=2))

    assert contents(KIND, submission, "hostfile").splitlines()[0] == line
    env = environment_of(KIND, submission, 0).env
    assert (env[agent], env[listed]) == ("/etc/mpi/kubexec.sh", "/etc/mpi/hostfile")


# ------------------------------------------------------------------ v1alpha1


@pytest.mark.parametrize(
    ("spec", "workers", "units"),
    [
        ({"gpus": 16, "gpusPerNode": 8}, 2, 8),
        ({"gpus": 4, "gpusPerNode": 8}, 1, 4),
        ({"gpus": 8, "gpusPerNode": 8}, 1, 8),
        ({"gpus": 16}, 2, 8),
        ({"processingUnits": 6, "processingUnitsPerNode": 2}, 3, 2),
        (
            {"processingUnits": 6, "processingUnitsPerNode": 3, "processingResourceType": "cpu"},
            2,
            3,
        ),
        ({"replicas": 3, "limits": {"nvidia.com/gpu": 2}}, 3, 2),
        ({"replicas": 2, "limits": {"cpu": "4"}, "processingResourceType": "cpu"}, 2, 4),
        ({"replicas": 2}, 2, 1),
    ],
)
def test_workers_and_slots_follow_from_the_total(spec, workers, units):
    submission = read(KIND, v1alpha1(**spec))

    lines = contents(KIND, submission, "hostfile").splitlines()
    assert lines == [f"j-worker-{i} slots={units}" for i in range(workers)]
    on_cpu = spec.get("processingResourceType") == "cpu" or (
        "replicas" in spec and "limits" not in spec
    )
    assert submission.spec.role("Worker").gpus == (0 if on_cpu else units)


def test_slots_can_be_set():
    submission = read(KIND, v1alpha1(gpus=8, slotsPerWorker=1))

    assert contents(KIND, submission, "hostfile") == "j-worker-0 slots=1\n"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [("Required", "spec.replicas")]),
        ({"gpus": 12, "gpusPerNode": 8}, [("Invalid", "spec.gpus")]),
        (
            {"processingUnits": 5, "processingUnitsPerNode": 2},
            [("Invalid", "spec.processingUnits")],
        ),
        ({"gpus": 8, "processingUnits": 8}, [("Forbidden", "spec.processingUnits")]),
        ({"gpus": 8, "replicas": 1}, [("Forbidden", "spec.replicas")]),
        ({"gpus": 0}, [("Invalid", "spec.gpus")]),
        ({"replicas": 0}, [("Invalid", "spec.replicas")]),
        ({"gpus": 8, "gpusPerNode": 0}, [("Invalid", "spec.gpusPerNode")]),
        (
            {"gpus": 8, "processingResourceType": "tpu"},
            [("NotSupported", "spec.processingResourceType")],
        ),
        ({"gpus": 8, "backoffLimit": -1}, [("Invalid", "spec.backoffLimit")]),
    ],
)
def test_arithmetic_that_does_not_come_out_is_refused(spec, expected):
    assert problems(KIND, v1alpha1(**spec)) == expected


def test_the_launcher_waits_holds_nothing_and_runs_the_command():
    submission = read(KIND, v1alpha1(gpus=16, limits={"nvidia.com/gpu": 1, "memory": "1Gi"}))
    launcher, worker = submission.spec.roles

    assert launcher.starts_after == "Worker"
    assert (launcher.gpus, launcher.restart, launcher.command) == (
        0,
        RestartRule.ON_FAILURE,
        ("mpirun", "train"),
    )
    assert launcher.template["spec"]["containers"][0]["resources"] == {}
    assert (worker.gpus, worker.restart, worker.command) == (8, RestartRule.ALWAYS, ("sleep",))
    assert worker.is_server
    assert submission.spec.restart.limit == 6


def test_a_launcher_can_be_sent_to_the_master_and_never_restarted():
    submission = read(KIND, v1alpha1(gpus=8, launcherOnMaster=True, pod={"restartPolicy": "Never"}))
    launcher, worker = submission.spec.roles

    pod = launcher.template["spec"]
    assert pod["tolerations"][0]["key"] == "node-role.kubernetes.io/master"
    assert "tolerations" not in worker.template["spec"]
    assert launcher.restart is RestartRule.NEVER


def test_labels_of_2018():
    assert environment_of(KIND, read(KIND, v1alpha1(gpus=8)), 1).labels == {
        "group_name": "kubeflow.org",
        "mpi_job_name": "j",
        "mpi_role_type": "worker",
    }


@given(
    gpus=st.sampled_from([1, 2, 4, 8, 16, 24]),
    master=st.booleans(),
    slots=st.none() | st.integers(1, 8),
    limits=st.sampled_from([None, {"memory": "1Gi"}, {"nvidia.com/gpu": 3}]),
    deadline=st.none() | st.integers(0, 100),
)
def test_v1alpha1_is_written_by_replicas_and_read_as_the_same_job(
    gpus, master, slots, limits, deadline
):
    once = read(
        KIND,
        v1alpha1(
            gpus=gpus,
            launcherOnMaster=master,
            slotsPerWorker=slots,
            limits=limits,
            activeDeadlineSeconds=deadline,
        ),
    )

    assert read(KIND, written(KIND, once)) == once


def test_the_status_of_2018():
    status = form_of(KIND, "kubeflow.org/v1alpha1").status
    spec = read(KIND, v1alpha1(gpus=16)).spec

    workers = e.RanksStarted("j1", 1, (1, 2))
    launcher = (e.RanksStarted("j1", 1, (0,)), e.GangStarted("j1", 1))

    assert status(life(spec)) == {"workerReplicas": 0}
    assert status(life(spec, placed(spec), workers)) == {"workerReplicas": 2}
    running = status(life(spec, placed(spec), workers, *launcher))
    assert (running["launcherStatus"], running["startTime"]) == ("Active", "1970-01-01T00:00:40Z")
    done = status(life(spec, placed(spec), workers, *launcher, e.JobSucceeded("j1")))
    assert done["launcherStatus"] == "Succeeded"
    assert done["completionTime"] == "1970-01-01T00:00:50Z"
