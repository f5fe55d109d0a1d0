"""MPIJob v2beta1: the launcher logs in with ssh."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kinds.mpi.mpi import KIND
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.model.failures import Cause, Exit, Restart
from controlplane.model.reasons import BudgetSpent, FailureReason
from controlplane.model.spec import DoneWhen, RestartRule
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
    replica,
    written,
)
from tests.gangs import is_elastic

GPU = {"nvidia.com/gpu": 8}


def job(workers=2, launcher=None, worker=None, name="foo", namespace="bar", policy=None, **spec):
    roles = {"Launcher": launcher or replica()}
    if workers is not None:
        roles["Worker"] = worker or replica(workers, limits=GPU)
    if policy is not None:
        spec["runPolicy"] = policy
    spec = {"mpiReplicaSpecs": roles, **spec}
    return manifest("MPIJob", "kubeflow.org/v2beta1", spec, name, namespace)


def test_every_default_is_applied():
    submission = read(KIND, job())
    launcher, worker = submission.spec.roles

    assert (launcher.replicas, launcher.restart) == (1, RestartRule.ON_FAILURE)
    assert (worker.replicas, worker.restart, worker.gpus) == (2, RestartRule.NEVER, 8)
    assert (launcher.is_server, worker.is_server) == (False, True)
    assert submission.spec.done_when == DoneWhen("Launcher")
    assert submission.spec.restart.limit == 6
    assert launcher.starts_after == ""
    assert submission.spec.options == {
        "slotsPerWorker": 1,
        "runLauncherAsWorker": False,
        "sshAuthMountPath": "/root/.ssh",
        "launcherCreationPolicy": "AtStartup",
        "mpiImplementation": "OpenMPI",
    }
    # Nothing is added to the pods that the person did not write.
    assert "ports" not in launcher.template["spec"]["containers"][0]


def test_a_launcher_that_waits_for_its_workers_starts_after_them():
    waits = read(KIND, job(launcherCreationPolicy="WaitForWorkersReady"))
    alone = read(
        KIND, job(None, launcherCreationPolicy="WaitForWorkersReady", runLauncherAsWorker=True)
    )

    assert waits.spec.role("Launcher").starts_after == "Worker"
    assert alone.spec.role("Launcher").starts_after == ""


def test_all_problems_are_reported_at_once():
    document = job(
        1000,
        name="this-name-is-waaaaaaaay-too-long-for-a-worker-hostname",
        policy={
            "cleanPodPolicy": "unknown",
            "ttlSecondsAfterFinished": -1,
            "activeDeadlineSeconds": -1,
            "backoffLimit": -1,
            "managedBy": "invalid.com/controller",
        },
        mpiImplementation="Unknown",
    )

    assert sorted(problems(KIND, document)) == [
        ("Invalid", "metadata.name"),
        ("Invalid", "spec.runPolicy.activeDeadlineSeconds"),
        ("Invalid", "spec.runPolicy.backoffLimit"),
        ("Invalid", "spec.runPolicy.ttlSecondsAfterFinished"),
        ("NotSupported", "spec.mpiImplementation"),
        ("NotSupported", "spec.runPolicy.cleanPodPolicy"),
        ("NotSupported", "spec.runPolicy.managedBy"),
    ]


WHERE = "spec.mpiReplicaSpecs"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (manifest("MPIJob", "kubeflow.org/v2beta1", {}), [("Required", WHERE)]),
        (
            manifest("MPIJob", "kubeflow.org/v2beta1", {"mpiReplicaSpecs": {"Worker": replica(1)}}),
            [("Required", f"{WHERE}[Launcher]")],
        ),
        (job(launcher=replica(2)), [("Invalid", f"{WHERE}[Launcher].replicas")]),
        (job(0), [("Invalid", f"{WHERE}[Worker].replicas")]),
        (job(worker=replica()), [("Invalid", f"{WHERE}[Worker].replicas")]),
        (
            job(launcher=replica(restart="Always"), worker=replica(1, restart="ExitCode")),
            [
                ("NotSupported", f"{WHERE}[Launcher].restartPolicy"),
                ("NotSupported", f"{WHERE}[Worker].restartPolicy"),
            ],
        ),
        (
            job(launcher={"template": {"spec": {"containers": []}}}),
            [("Required", f"{WHERE}[Launcher].template.spec.containers")],
        ),
        (job(slotsPerWorker=-1), [("Invalid", "spec.slotsPerWorker")]),
        (job(sshAuthMountPath="keys"), [("Invalid", "spec.sshAuthMountPath")]),
        (job(launcherCreationPolicy="Later"), [("NotSupported", "spec.launcherCreationPolicy")]),
    ],
)
def test_a_mistake_is_reported_with_its_sort_and_field(document, expected):
    assert problems(KIND, document) == expected


def test_a_role_that_mpi_has_not_is_refused_by_name():
    document = job()
    document["spec"]["mpiReplicaSpecs"]["Chief"] = replica()

    assert problems(KIND, document) == [("NotSupported", f"{WHERE}[Chief]")]


def test_the_place_where_early_releases_had_the_clean_up_policy_is_read_too():
    assert read(KIND, job(cleanPodPolicy="Running")).spec.clean == "Running"


def test_the_run_policys_clean_up_wins_and_the_other_is_warned_about():
    both, findings = attempt(KIND, job(cleanPodPolicy="All", policy={"cleanPodPolicy": "Running"}))

    assert both.spec.clean == "Running"
    assert "spec.cleanPodPolicy: All gives way" in findings.warnings[0]


NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
LAUNCHER_ENV = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": "5",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
        "I_MPI_PERHOST": "5",
    },
    "MPICH": {
        "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10",
    },
}


@pytest.mark.parametrize("implementation", list(LAUNCHER_ENV))
def test_the_launcher_gets_the_variables_of_its_mpi_implementation(implementation):
    submission = read(KIND, job(mpiImplementation=implementation, slotsPerWorker=5))
    launcher = environment_of(KIND, submission, 0)

    role = {"K_MPI_JOB_ROLE": "launcher"}
    assert launcher.env == {**role, **LAUNCHER_ENV[implementation], **NO_GPUS}
    assert not launcher.all_containers
    assert (launcher.name, launcher.hostname, launcher.subdomain) == (
        "foo-launcher",
        "foo-launcher",
        "foo",
    )
    assert launcher.mounts == {"/root/.ssh": "foo-ssh", "/etc/mpi": "foo-config"}
    assert launcher.command == ()
    assert launcher.labels == {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "foo",
        "training.kubeflow.org/job-role": "launcher",
    }


def test_a_worker_runs_an_ssh_server_and_finds_the_launcher_by_its_short_name():
    worker = environment_of(KIND, read(KIND, job()), 1)

    assert worker.env == {"K_MPI_JOB_ROLE": "worker"}
    assert worker.command == ("/usr/sbin/sshd", "-De")
    assert (worker.name, worker.hostname, worker.subdomain) == (
        "foo-worker-0",
        "foo-worker-0",
        "foo",
    )
    assert worker.dns_searches == ("foo.bar.svc.cluster.local",)
    assert worker.mounts == {"/root/.ssh": "foo-ssh"}
    assert worker.labels["training.kubeflow.org/job-role"] == "worker"
    assert worker.labels["training.kubeflow.org/replica-index"] == "0"


def test_a_launcher_that_works_is_index_0_and_shifts_the_workers():
    submission = read(KIND, job(runLauncherAsWorker=True))
    ranks = [environment_of(KIND, submission, rank) for rank in range(3)]

    indices = [each.labels["training.kubeflow.org/replica-index"] for each in ranks]
    assert indices == ["0", "1", "2"]
    assert not NO_GPUS.keys() & ranks[0].env.keys()


def test_on_the_network_of_the_host_the_cluster_s_names_still_resolve():
    on_host = replica(pod={"hostNetwork": True})
    launcher = environment_of(KIND, read(KIND, job(launcher=on_host)), 0)

    assert launcher.dns_policy == "ClusterFirstWithHostNet"
    assert environment_of(KIND, read(KIND, job()), 0).dns_policy == ""


@pytest.mark.parametrize(
    ("workers", "spec", "domain", "expected"),
    [
        (2, {}, "", ["foo-worker-0.foo.bar.svc slots=1", "foo-worker-1.foo.bar.svc slots=1"]),
        (1, {}, "cluster.local", ["foo-worker-0.foo.bar.svc.cluster.local slots=1"]),
        (
            1,
            {"runLauncherAsWorker": True, "slotsPerWorker": 4},
            "",
            ["foo-launcher.foo.bar.svc slots=4", "foo-worker-0.foo.bar.svc slots=4"],
        ),
        (None, {"runLauncherAsWorker": True}, "", ["foo-launcher.foo.bar.svc slots=1"]),
        (1, {"mpiImplementation": "Intel"}, "", ["foo-worker-0.foo.bar.svc:1"]),
        (
            1,
            {"mpiImplementation": "MPICH", "slotsPerWorker": 10},
            "",
            ["foo-worker-0.foo.bar.svc:10"],
        ),
    ],
)
def test_the_hostfile_follows_from_the_number_of_replicas(workers, spec, domain, expected):
    submission = read(KIND, job(workers, **spec))

    listed = contents(KIND, submission, "hostfile", domain=domain)
    assert listed == "".join(f"{line}\n" for line in expected)


def test_elastic_horovod_discovers_the_workers_that_run_in_the_order_of_their_names():
    submission = read(KIND, job(12, name="h", namespace="d"))

    # Ranks 1, 3 and 11 are workers 0, 2 and 10.
    script = contents(KIND, submission, "discover_hosts.sh", running={11, 3, 0, 1})
    assert script == (
        "#!/bin/sh\necho h-worker-0.h.d.svc\necho h-worker-10.h.d.svc\necho h-worker-2.h.d.svc\n"
    )


def test_a_launcher_that_works_discovers_itself_first():
    submission = read(KIND, job(1, runLauncherAsWorker=True))

    script = contents(KIND, submission, "discover_hosts.sh", running=[1], domain="cluster.local")
    hosts = ("foo-launcher", "foo-worker-0")
    echoed = [f"echo {host}.foo.bar.svc.cluster.local\n" for host in hosts]
    assert script == "".join(["#!/bin/sh\n", *echoed])


def test_keys_are_made_once_and_only_roots_are_locked_up():
    def keys(**spec):
        groups = KIND.files(gang_of(read(KIND, job(**spec))), ())
        return next(group for group in groups if group.ssh_keys)

    assert (keys().name, keys().mode, keys().volume) == ("foo-ssh", 0o600, "ssh-auth")
    assert keys(sshAuthMountPath="/home/mpiuser/.ssh").mode is None


def test_the_script_is_runnable_and_the_hostfile_is_not():
    config = KIND.files(gang_of(read(KIND, job())), ())[0]

    assert (config.name, config.volume) == ("foo-config", "mpi-job-config")
    assert config.modes == {"hostfile": 0o444, "discover_hosts.sh": 0o555}


def test_one_service_covers_every_rank():
    def service(**spec):
        (only,) = KIND.services(gang_of(read(KIND, job(**spec))))
        return only

    assert service().name == "foo"
    assert service().selector == {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "foo",
    }
    assert not service().before_ready
    assert service(runLauncherAsWorker=True).before_ready


def test_a_manifest_from_a_cluster_with_a_status_is_taken():
    document = job()
    document["status"] = {"conditions": []}

    assert read(KIND, document).name == "foo"


@given(
    workers=st.none() | st.integers(1, 40),
    slots=st.none() | st.integers(1, 16),
    implementation=st.sampled_from(["", "OpenMPI", "Intel", "MPICH"]),
    policy=st.sampled_from(["", "AtStartup", "WaitForWorkersReady"]),
    works=st.booleans(),
    clean=st.none() | st.sampled_from(["None", "Running", "All"]),
    restart=st.none() | st.sampled_from(["Never", "OnFailure"]),
)
def test_what_is_written_is_read_as_the_same_job(
    workers, slots, implementation, policy, works, clean, restart
):
    document = job(
        workers,
        launcher=replica(restart=restart, env=[{"name": "A", "value": "1"}]),
        policy={"cleanPodPolicy": clean, "schedulingPolicy": {"minAvailable": 1}},
        slotsPerWorker=slots,
        mpiImplementation=implementation,
        launcherCreationPolicy=policy,
        runLauncherAsWorker=works,
    )
    once = read(KIND, document)

    assert read(KIND, written(KIND, once)) == once
    assert written(KIND, read(KIND, written(KIND, once))) == written(KIND, once)


def test_a_thousand_workers_have_a_thousand_lines():
    submission = read(KIND, job(1000))

    assert contents(KIND, submission, "hostfile").count("\n") == 1000
    environment = KIND.environments(gang_of(submission))
    assert len({environment(rank).name for rank in range(1001)}) == 1001


def test_a_refusal_lists_what_is_accepted():
    with pytest.raises(Rejected, match="OpenMPI, Intel, MPICH"):
        read(KIND, job(mpiImplementation="LAM"))


def test_a_job_runs_when_all_its_workers_do_and_its_end_has_kubernetes_conditions():
    spec = read(KIND, job()).spec
    status = form_of(KIND, "kubeflow.org/v2beta1").status

    def shown(*events):
        conditions = status(life(spec, placed(spec), *events))["conditions"]
        return [f"{each['type']}={each['status']}/{each['reason']}" for each in conditions]

    launcher, workers = e.RanksStarted("j1", 1, (0,)), e.RanksStarted("j1", 1, (1, 2))
    assert shown(launcher) == ["Created=True/MPIJobCreated"]
    up = (launcher, workers, e.GangStarted("j1", 1))
    assert shown(*up)[1:] == ["Running=True/MPIJobRunning"]
    late = e.JobFailed("j1", FailureReason.DEADLINE_EXCEEDED)
    assert shown(*up, late)[1:] == ["Running=False/MPIJobRunning", "Failed=True/DeadlineExceeded"]
    assert shown(e.JobSucceeded("j1"))[1:] == [
        "Succeeded=True/MPIJobSucceeded",
        "Running=False/MPIJobRunning",
    ]


def test_every_launcher_that_failed_counts_and_the_last_ones_words_are_passed_on():
    spec = read(KIND, job(policy={"backoffLimit": 1})).spec
    status = form_of(KIND, "kubeflow.org/v2beta1").status
    ledger = Restart(20.0, 1, Cause.EXIT, True, rank=0, exit_code=1)
    first = (
        placed(spec),
        e.RanksStarted("j1", 1, (0, 1, 2)),
        e.GangStarted("j1", 1),
        e.RanksExited("j1", 1, (Exit(0, 1, detail="out of luck", reason="Error"),)),
    )
    again = status(life(spec, *first, e.JobRestarting("j1", ledger, 1, 30.0)))
    assert again["replicaStatuses"]["Launcher"]["failed"] == 1

    gone = (e.RanksGone("j1", 1, (1, 2)), e.AttemptEnded("j1", 1), e.JobRequeued("j1"))
    last = (
        e.GangPlaced("j1", 2, placed(spec).placement),
        e.RanksExited("j1", 2, (Exit(0, 1, detail="out of luck", reason="Error"),)),
        e.JobFailed("j1", FailureReason.RETRIES_EXHAUSTED, facts=BudgetSpent(1, 1)),
    )
    history = (*first, e.JobRestarting("j1", ledger, 1, 30.0), *gone, *last)
    shown = status(life(spec, *history))
    assert shown["replicaStatuses"]["Launcher"]["failed"] == 2
    failed = next(each for each in shown["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "BackoffLimitExceeded/Error"
    assert failed["message"] == "1 of 1 restarts were already used: out of luck"


def test_workers_come_and_go_while_the_launcher_runs_on():
    assert is_elastic(read(KIND, job()).spec.roles[-1])


@pytest.mark.parametrize(
    ("specs", "field"),
    [({}, "spec.mpiReplicaSpecs[Launcher]"), (None, "spec.mpiReplicaSpecs")],
)
@pytest.mark.parametrize("version", ["v2beta1", "v1", "v1alpha2"])
def test_an_empty_map_lacks_its_launcher_and_a_missing_one_lacks_the_map(version, specs, field):
    document = manifest("MPIJob", f"kubeflow.org/{version}", {"mpiReplicaSpecs": specs})
    assert problems(KIND, document) == [("Required", field)]


def failed_by(version, rank, cause):
    """The last condition of an MPIJob of which one rank ended so."""
    roles = {"Launcher": replica(), "Worker": replica(2)}
    document = manifest("MPIJob", version, {"mpiReplicaSpecs": roles})
    spec = read(KIND, document).spec
    gone = e.RanksExited("j1", 1, (Exit(rank, None, cause, "low on memory", reason="Evicted"),))
    events = (e.RanksStarted("j1", 1, (0, 1, 2)), e.GangStarted("j1", 1), gone)
    why = Restart(20.0, 1, cause, False, rank=rank, rank_name="worker-1", node="n1")
    failure = e.JobFailed("j1", FailureReason.RESTART_NEVER, rank, last=why)
    shown = form_of(KIND, version).status(life(spec, placed(spec), *events, failure))
    return next(each for each in shown["conditions"] if each["type"] == "Failed")


@pytest.mark.parametrize(
    ("version", "rank", "cause", "reason"),
    [
        ("kubeflow.org/v2beta1", 2, Cause.EVICTION, "MPIJobEvicted"),
        ("kubeflow.org/v2beta1", 0, Cause.EVICTION, "MPIJobFailed"),
        ("kubeflow.org/v2beta1", 2, Cause.EXIT, "MPIJobFailed"),
        ("kubeflow.org/v1", 2, Cause.EVICTION, "MPIJobEvicted"),
        ("kubeflow.org/v1", 0, Cause.EVICTION, "MPIJobEvicted"),
        ("kubeflow.org/v1alpha2", 2, Cause.NODE_LOST, "MPIJobFailed"),
    ],
)
def test_a_job_whose_worker_was_evicted_shows_it(version, rank, cause, reason):
    condition = failed_by(version, rank, cause)
    assert condition["reason"] == reason
    if reason == "MPIJobEvicted" and rank == 2:
        assert condition["message"].startswith("1/2 workers are evicted")


@pytest.mark.parametrize(
    ("clean", "workers"),
    [("None", {"succeeded": 2}), ("Running", {}), ("All", {})],
)
def test_workers_that_are_cleaned_up_are_counted_no_more(clean, workers):
    spec = read(KIND, job(policy={"cleanPodPolicy": clean})).spec
    events = (
        placed(spec),
        e.RanksStarted("j1", 1, (0, 1, 2)),
        e.GangStarted("j1", 1),
        e.RanksExited("j1", 1, (Exit(0, 0),)),
        e.JobSucceeded("j1"),
        e.RanksGone("j1", 1, (1, 2)),
        e.AttemptEnded("j1", 1),
    )
    counts = form_of(KIND, "kubeflow.org/v2beta1").status(life(spec, *events))["replicaStatuses"]
    assert counts["Launcher"] == {"active": 0, "succeeded": 1, "failed": 0}
    assert counts["Worker"] == {"active": 0, "succeeded": 0, "failed": 0, **workers}
