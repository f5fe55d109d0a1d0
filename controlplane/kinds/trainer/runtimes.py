"""The training runtimes that a TrainJob can name: those of the Kubeflow Trainer, and Muster's own.

A runtime defines how nodes find each other (its policy) and the default image. Muster needs no more
of a runtime, so runtimes are constants here and not documents.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

NODE, LAUNCHER = "node", "launcher"
PORT = 29500


class Runtime(NamedTuple):
    # The ML policy, by which nodes find each other: torch, jax, xgboost or mpi.
    policy: str
    image: str = ""
    # For mpi: whether the launcher is one of the nodes, and the directory of its SSH keys.
    launcher_works: bool = True
    ssh_path: str = "/home/mpiuser/.ssh"
    # The command of a node that waits for the launcher.
    node_command: tuple[str, ...] = ("/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config")
    pod: Mapping[str, Any] = {}
    container: Mapping[str, Any] = {}


_AS_MPIUSER: dict[str, Any] = {
    "pod": {"securityContext": {"fsGroup": 1000}},
    "container": {"securityContext": {"runAsUser": 1000}},
}
_AS_ROOT = ("/usr/sbin/sshd", "-De")
RUNTIMES = {
    "torch-distributed": Runtime("torch", "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
    "jax-distributed": Runtime("jax", "nvcr.io/nvidia/jax:25.10-py3"),
    "xgboost-distributed": Runtime("xgboost", "ghcr.io/kubeflow/trainer/xgboost-runtime"),
    "deepspeed-distributed": Runtime(
        "mpi", "ghcr.io/kubeflow/trainer/deepspeed-runtime", **_AS_MPIUSER
    ),
    "mlx-distributed": Runtime("mpi", "ghcr.io/kubeflow/trainer/mlx-runtime", **_AS_MPIUSER),
    # Muster's own, for any image with Open MPI and an SSH server that runs as root: with the launcher
    # as one of the nodes, or with a separate launcher that has no GPU.
    "mpi-distributed": Runtime("mpi", ssh_path="/root/.ssh", node_command=_AS_ROOT),
    "mpi-launcher": Runtime(
        "mpi", launcher_works=False, ssh_path="/root/.ssh", node_command=_AS_ROOT
    ),
}

# Variables that a policy sets, which a job must not set.
RESERVED = {
    "torch": (
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
    ),
    "jax": ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS"),
    "xgboost": ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    "mpi": (
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_plm_rsh_args",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
    ),
}
