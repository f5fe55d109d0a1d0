"""MPIJobs whose launcher reaches its workers with `kubectl exec`: v1, v1alpha2 and v1alpha1.

The workers sleep, and a script replaces ssh. An init container of the launcher delivers kubectl and
waits until every worker can be reached. The launcher's service account may execute commands in the
workers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from controlplane.kinds.kind import Files, GangContext, RankEnvironment, Service
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.mpi import hostfile
from controlplane.kinds.mpi import mpi_jobs as mpi
from controlplane.model.spec import JobSpec, Role

KUBEXEC = "kubexec.sh"
KUBEXEC_PATH = f"{hostfile.CONFIG_PATH}/{KUBEXEC}"
KUBECTL_PATH = "/opt/kube"
KUBECTL_VOLUME = "mpi-job-kubectl"
KUBECTL_IMAGE = "mpioperator/kubectl-delivery:latest"
KUBECTL_RESOURCES = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
SLEEP = ("sleep", "365d")
# Intel MPI uses ssh unless these variables forbid it; a person may override them.
INTEL_DEFAULTS = {
    "I_MPI_HYDRA_BOOTSTRAP": "rsh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": KUBEXEC_PATH,
}


def gpu_launcher(spec: JobSpec) -> bool:
    """Return whether the launcher computes too: it does if it requests any type of GPU."""
    launcher = spec.role(mpi.LAUNCHER)
    return launcher is not None and any("gpu" in name for name in _limits(launcher))


def _limits(role: Role) -> list[str]:
    containers = role.template.get("spec", {}).get("containers", [])
    return [name for each in containers for name in each.get("resources", {}).get("limits", {})]


def environments(
    gang: GangContext, labels: Callable[[int], dict[str, str]]
) -> Callable[[int], RankEnvironment]:
    spec, launcher = gang.spec, gang.spec.role(mpi.LAUNCHER)
    assert launcher is not None, f"{gang.name} has no launcher"
    env = hostfile.by_agent(_implementation(spec), mpi.HOSTFILE_PATH, KUBEXEC_PATH)
    asks = {} if gpu_launcher(spec) else mpi.NO_GPUS
    mounts = {hostfile.CONFIG_PATH: mpi.config_name(gang)}
    own_account = launcher.template.get("spec", {}).get("serviceAccountName")
    workers = tuple(mpi.worker_names(gang))

    def environment(rank: int) -> RankEnvironment:
        name = mpi.pod_name(gang, rank)
        if spec.role_of(rank)[0].name != mpi.LAUNCHER:
            # Open MPI expects the script on every host.
            return RankEnvironment(
                name=name,
                labels=labels(rank),
                all_containers=False,
                command=SLEEP,
                mounts=mounts,
            )
        return RankEnvironment(
            name=name,
            labels=labels(rank),
            env={**env, **asks},
            env_if_unset={key: INTEL_DEFAULTS[key] for key in INTEL_DEFAULTS if key not in env},
            all_containers=False,
            mounts=mounts,
            scratch={KUBECTL_PATH: KUBECTL_VOLUME},
            init_containers=(_kubectl_delivery(gang),),
            account=own_account or name,
            may_exec_in=workers,
        )

    return environment


def _kubectl_delivery(gang: GangContext) -> dict[str, Any]:
    return {
        "name": "kubectl-delivery",
        "image": KUBECTL_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "TARGET_DIR", "value": KUBECTL_PATH},
            {"name": "NAMESPACE", "value": gang.namespace},
        ],
        "volumeMounts": [
            {"name": KUBECTL_VOLUME, "mountPath": KUBECTL_PATH},
            {"name": "mpi-job-config", "mountPath": hostfile.CONFIG_PATH},
        ],
        "resources": {"limits": KUBECTL_RESOURCES, "requests": KUBECTL_RESOURCES},
    }


def labels(gang: GangContext, rank: int) -> dict[str, str]:
    launches = gang.spec.role_of(rank)[0].name == mpi.LAUNCHER
    return kubeflow.labels(mpi.MPI, gang, rank, master=launches)


def old_labels(keys: Mapping[str, str], gang: GangContext, rank: int) -> dict[str, str]:
    """Return the pod labels of the operators of 2018 and 2019.

    `keys` has the label names for `group`, `job` and `role`.
    """
    role = gang.spec.role_of(rank)[0].name.lower()
    return {keys["group"]: "kubeflow.org", keys["job"]: gang.name, keys["role"]: role}


def services(gang: GangContext) -> Sequence[Service]:
    """Return no services: no rank is reached by name."""
    return ()


def files(gang: GangContext, running: Collection[int]) -> Sequence[Files]:
    spec = gang.spec
    slots = spec.options["slotsPerWorker"]
    launcher = list(spec.ranks_of(mpi.LAUNCHER)) if gpu_launcher(spec) else []
    everyone = _hosts(gang, [*launcher, *spec.ranks_of(mpi.WORKER)])
    now = _hosts(gang, [*launcher, *mpi.running_workers(gang, running)])
    return (
        mpi.config(
            gang,
            {
                hostfile.HOSTFILE: hostfile.hostfile(_implementation(spec), everyone, slots),
                KUBEXEC: _kubexec(spec.options.get("mainContainer", "")),
                hostfile.DISCOVER_HOSTS: hostfile.discover_hosts(f"{name}:{slots}" for name in now),
            },
        ),
    )


def _hosts(gang: GangContext, ranks: Sequence[int]) -> list[str]:
    # The names of the pods, in which `_kubexec` runs commands.
    return [gang.host(rank, mpi.pod_name(gang, rank)) for rank in ranks]


def _kubexec(container: str) -> str:
    """Return a script that runs a command in the pod of its first argument, in place of ssh."""
    into = f" --container {container}" if container else ""
    return (
        "#!/bin/sh\n"
        "set -x\n"
        "POD_NAME=$1\n"
        "shift\n"
        f'{KUBECTL_PATH}/kubectl exec ${{POD_NAME}}{into} -- /bin/sh -c "$*"\n'
    )


# Values of v1alpha2's field mpiDistribution; the other versions assume Open MPI.
DISTRIBUTIONS = {"open_mpi": "OpenMPI", "intel_mpi": "Intel", "mpich": "MPICH"}


def _implementation(spec: JobSpec) -> str:
    return DISTRIBUTIONS[spec.options.get("mpiDistribution", "open_mpi")]
