"""MPIJob v2beta1: the launcher logs in to its workers with ssh."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from controlplane.kinds.kind import Files, Form, GangContext, RankEnvironment, Service, Submission
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.manifest.checking import MPI_OPERATOR, MULTIKUEUE, MUSTER, check_choice
from controlplane.kinds.manifest.manifest import Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi import hostfile
from controlplane.kinds.mpi import mpi_jobs as mpi
from controlplane.kinds.mpi.mpi_status import status
from controlplane.model.spec import RestartRule, Role

V2 = mpi.Generation(
    "kubeflow.org/v2beta1",
    restart={mpi.LAUNCHER: RestartRule.ON_FAILURE, mpi.WORKER: RestartRule.NEVER},
    restarts_allowed=(RestartRule.NEVER, RestartRule.ON_FAILURE),
    workers_min=1,
    managers=(MUSTER, MPI_OPERATOR, MULTIKUEUE),
)
LAUNCHER_POLICIES = ("AtStartup", "WaitForWorkersReady")
OPERATOR = "mpi-operator"
SSH_SERVER = ("/usr/sbin/sshd", "-De")


class MPIJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    mpiReplicaSpecs: dict[str, ReplicaSpec] | None = None
    runPolicy: RunPolicy = RunPolicy()
    slotsPerWorker: int | None = None
    runLauncherAsWorker: bool | None = None
    sshAuthMountPath: str = ""
    launcherCreationPolicy: str = ""
    mpiImplementation: str = ""
    # The place of the clean-up policy in the first releases of this version.
    cleanPodPolicy: str | None = None


class MPIJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v2beta1"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MPIJobSpec
    status: Any = UNSET


def read(job: MPIJob, findings: Findings) -> Submission:
    spec = job.spec
    options = {
        "slotsPerWorker": 1 if spec.slotsPerWorker is None else spec.slotsPerWorker,
        "runLauncherAsWorker": bool(spec.runLauncherAsWorker),
        "sshAuthMountPath": spec.sshAuthMountPath or hostfile.SSH_PATH,
        "launcherCreationPolicy": spec.launcherCreationPolicy or LAUNCHER_POLICIES[0],
        "mpiImplementation": spec.mpiImplementation or hostfile.IMPLEMENTATIONS[0],
    }
    _check(options, findings)
    roles = mpi.read_roles(V2, spec.mpiReplicaSpecs, findings)
    if options["launcherCreationPolicy"] == "WaitForWorkersReady":
        roles = launcher_last(roles)
    clean = mpi.one_clean_policy(spec.runPolicy, spec.cleanPodPolicy, findings)
    return mpi.submission(V2, job.metadata, clean, roles, options, findings)


def _check(options: dict[str, Any], findings: Findings) -> None:
    mpi.check_slots(options["slotsPerWorker"], findings)
    for field, known in (
        ("launcherCreationPolicy", LAUNCHER_POLICIES),
        ("mpiImplementation", hostfile.IMPLEMENTATIONS),
    ):
        check_choice(f"spec.{field}", options[field], known, findings)
    if not options["sshAuthMountPath"].startswith("/"):
        findings.invalid("spec.sshAuthMountPath", "a path begins with /")


def launcher_last(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    """Return the roles with a launcher that starts once every worker runs, if there are workers."""
    if not any(role.name == mpi.WORKER and role.replicas for role in roles):
        return roles
    return tuple(
        replace(role, starts_after=mpi.WORKER) if role.name == mpi.LAUNCHER else role
        for role in roles
    )


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(mpi.MPI, job)


# ------------------------------------------------------------------ rank environments


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    options, spec = gang.spec.options, gang.spec
    launcher_works = options["runLauncherAsWorker"]
    ssh = {options["sshAuthMountPath"]: f"{gang.name}-ssh"}
    launcher_env = {
        "K_MPI_JOB_ROLE": "launcher",
        **hostfile.over_ssh(
            options["mpiImplementation"], mpi.HOSTFILE_PATH, options["slotsPerWorker"]
        ),
        **({} if launcher_works else mpi.NO_GPUS),
    }
    # Workers of Intel MPI and MPICH connect back to the launcher by its short name.
    searches = gang.search_domains(gang.name)
    shift = 1 if launcher_works else 0
    dns_policies = {role.name: dns_policy(role) for role in spec.roles}

    def environment(rank: int) -> RankEnvironment:
        role, index = spec.role_of(rank)
        name, is_launcher = mpi.pod_name(gang, rank), role.name == mpi.LAUNCHER
        labels = {**_shared_labels(gang), kubeflow.JOB_ROLE: role.name.lower()}
        if is_launcher:
            mounts = {**ssh, hostfile.CONFIG_PATH: mpi.config_name(gang)}
            indices = {kubeflow.REPLICA_INDEX: "0"} if launcher_works else {}
        else:
            mounts, indices = ssh, {kubeflow.REPLICA_INDEX: str(index + shift)}
        return RankEnvironment(
            name=name,
            labels={**labels, **indices},
            env=launcher_env if is_launcher else {"K_MPI_JOB_ROLE": "worker"},
            all_containers=False,
            command=() if is_launcher else SSH_SERVER,
            hostname=name,
            subdomain=gang.name,
            dns_policy=dns_policies[role.name],
            dns_searches=() if is_launcher else searches,
            mounts=mounts,
        )

    return environment


def dns_policy(role: Role) -> str:
    """Return the DNS policy of a role; "" keeps the default.

    A pod on the host's network resolves service names only with ClusterFirstWithHostNet.
    """
    on_host = role.template.get("spec", {}).get("hostNetwork")
    return "ClusterFirstWithHostNet" if on_host else ""


def _shared_labels(gang: GangContext) -> dict[str, str]:
    return {kubeflow.OPERATOR: OPERATOR, kubeflow.JOB_NAME: gang.name}


def services(gang: GangContext) -> Sequence[Service]:
    """Return one service for all ranks.

    A launcher that computes must resolve its own name before it is ready.
    """
    return (
        Service(
            name=gang.name,
            selector=_shared_labels(gang),
            before_ready=gang.spec.options["runLauncherAsWorker"],
        ),
    )


def files(gang: GangContext, running: Collection[int]) -> Sequence[Files]:
    options = gang.spec.options
    launcher = list(gang.spec.ranks_of(mpi.LAUNCHER)) if options["runLauncherAsWorker"] else []
    everyone = _hosts(gang, [*launcher, *gang.spec.ranks_of(mpi.WORKER)])
    # Only the launcher runs the script, so the launcher itself is running.
    now = _hosts(gang, [*launcher, *mpi.running_workers(gang, running)])
    slots, path = options["slotsPerWorker"], options["sshAuthMountPath"]
    return (
        mpi.config(
            gang,
            {
                hostfile.HOSTFILE: hostfile.hostfile(options["mpiImplementation"], everyone, slots),
                hostfile.DISCOVER_HOSTS: hostfile.discover_hosts(now),
            },
        ),
        # Only at root's path: there ssh refuses a key that other users can read.
        Files(
            name=f"{gang.name}-ssh",
            ssh_keys=True,
            volume="ssh-auth",
            mode=0o600 if path == hostfile.SSH_PATH else None,
        ),
    )


def _hosts(gang: GangContext, ranks: Sequence[int]) -> list[str]:
    return [gang.full_host(rank, f"{mpi.pod_name(gang, rank)}.{gang.name}") for rank in ranks]


FORM = Form(V2.version, MPIJob, read, write, status)
