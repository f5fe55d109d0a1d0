"""The MPIJobs whose launcher reaches its workers with `kubectl exec`: v1, v1alpha2 and v1alpha1.

Their workers only sleep; a script of ours stands in for ssh. The launcher needs kubectl, which an
init container brings and which also waits until every worker can be reached, and an account that
may run commands in the workers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from controlplane.kinds import hostfile, kubeflow
from controlplane.kinds import mpi_jobs as mpi
from controlplane.kinds.kind import Files, Gang, Service, Told
from controlplane.model import JobSpec, Role

KUBEXEC = "kubexec.sh"
KUBEXEC_PATH = f"{hostfile.CONFIG_PATH}/{KUBEXEC}"
KUBECTL_PATH = "/opt/kube"
KUBECTL_VOLUME = "mpi-job-kubectl"
KUBECTL_IMAGE = "mpioperator/kubectl-delivery:latest"
KUBECTL_RESOURCES = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
SLEEP = ("sleep", "365d")
# Intel MPI must be told not to use ssh; a person who says otherwise is heard.
INTEL_DEFAULTS = {
    "I_MPI_HYDRA_BOOTSTRAP": "rsh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": KUBEXEC_PATH,
}


def gpu_launcher(spec: JobSpec) -> bool:
    """Whether the launcher computes too, which it does when it asks for any sort of GPU."""
    launcher = spec.role(mpi.LAUNCHER)
    return launcher is not None and any("gpu" in name for name in _limits(launcher))


def _limits(role: Role) -> list[str]:
    containers = role.template.get("spec", {}).get("containers", [])
    return [name for each in containers for name in each.get("resources", {}).get("limits", {})]


def tell(gang: Gang, labels: Callable[[int], dict[str, str]]) -> Callable[[int], Told]:
    spec, launcher = gang.spec, gang.spec.role(mpi.LAUNCHER)
    assert launcher is not None, f"{gang.name} has no launcher"
    env = hostfile.by_agent(_implementation(spec), mpi.HOSTFILE_PATH, KUBEXEC_PATH)
    asks = {} if gpu_launcher(spec) else mpi.NO_GPUS
    mounts = {hostfile.CONFIG_PATH: mpi.config_name(gang)}
    own_account = launcher.template.get("spec", {}).get("serviceAccountName")
    workers = tuple(mpi.worker_names(gang))

    def told(rank: int) -> Told:
        name = mpi.pod_name(gang, rank)
        if spec.role_of(rank)[0].name != mpi.LAUNCHER:
            # Open MPI looks for the script on every host.
            return Told(
                name=name,
                labels=labels(rank),
                all_containers=False,
                command=SLEEP,
                mounts=mounts,
            )
        return Told(
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

    return told


def _kubectl_delivery(gang: Gang) -> dict[str, Any]:
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


def labels(gang: Gang, rank: int) -> dict[str, str]:
    launches = gang.spec.role_of(rank)[0].name == mpi.LAUNCHER
    return kubeflow.labels(mpi.MPI, gang, rank, master=launches)


def old_labels(keys: Mapping[str, str], gang: Gang, rank: int) -> dict[str, str]:
    """What the operators of 2018 and 2019 put on pods; `keys` has their names for the three."""
    role = gang.spec.role_of(rank)[0].name.lower()
    return {keys["group"]: "kubeflow.org", keys["job"]: gang.name, keys["role"]: role}


def services(gang: Gang) -> Sequence[Service]:
    """None: nobody is found by name."""
    return ()


def files(gang: Gang, running: Collection[int]) -> Sequence[Files]:
    spec = gang.spec
    slots = spec.options["slotsPerWorker"]
    launcher = [mpi.launcher_name(gang)] if gpu_launcher(spec) else []
    everyone = [*launcher, *mpi.worker_names(gang)]
    now = [*launcher, *mpi.running_workers(gang, running)]
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


def _kubexec(container: str) -> str:
    """A script that runs a command in the pod that is its first argument, as ssh would."""
    into = f" --container {container}" if container else ""
    return (
        "#!/bin/sh\n"
        "set -x\n"
        "POD_NAME=$1\n"
        "shift\n"
        f'{KUBECTL_PATH}/kubectl exec ${{POD_NAME}}{into} -- /bin/sh -c "$*"\n'
    )


# v1alpha2 had a field for it; the others take Open MPI for granted.
DISTRIBUTIONS = {"open_mpi": "OpenMPI", "intel_mpi": "Intel", "mpich": "MPICH"}


def _implementation(spec: JobSpec) -> str:
    return DISTRIBUTIONS[spec.options.get("mpiDistribution", "open_mpi")]
