"""MPIJob: a launcher that starts the program on the workers and decides the job."""

from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds.kubeflow import Roles, submission
from controlplane.kinds.manifest import Metadata, RunPolicy, Submission, parse, refuse
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, RestartRule


class MPIJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    mpiReplicaSpecs: dict[str, ReplicaSpec]
    runPolicy: RunPolicy = RunPolicy()
    slotsPerWorker: int = 1
    cleanPodPolicy: str | None = None
    mainContainer: str = ""
    runLauncherAsWorker: bool = False
    sshAuthMountPath: str = "/root/.ssh"
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "AtStartup"
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"


class MPIJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1", "kubeflow.org/v2beta1"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MPIJobSpec
    status: Any = UNSET


# Workers wait for the launcher's orders (sshd, or sleep) until the job is over.
ROLES = Roles(
    field="spec.mpiReplicaSpecs",
    names=("Launcher", "Worker"),
    serving=("Worker",),
    container="mpi",
    restart=RestartRule.ON_FAILURE,
)


def read(document: object) -> Submission:
    job = parse(document, MPIJob)
    if job.spec.slotsPerWorker < 1:
        raise refuse("spec.slotsPerWorker", f"{job.spec.slotsPerWorker} is not at least 1")
    roles = ROLES.read(job.spec.mpiReplicaSpecs)
    launcher = next((role for role in roles if role.name == "Launcher"), None)
    if launcher is None or launcher.replicas != 1:
        raise refuse(f"{ROLES.field}.Launcher", "exactly one launcher is needed")
    return submission("MPIJob", job.metadata, job.spec.runPolicy, roles, DoneWhen("Launcher"))
