"""MPIJob: a launcher that starts the program on the workers and decides the job."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds import kubeflow
from controlplane.kinds.checking import MANAGERS, MPI_OPERATOR
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, RestartRule

# Workers wait for the launcher's orders (sshd, or sleep) until the job is over.
MPI = kubeflow.Framework(
    kind="MPIJob",
    field="mpiReplicaSpecs",
    roles=("Launcher", "Worker"),
    container="",
    port_name="mpi-port",
    port=9999,
    restart=RestartRule.ON_FAILURE,
    serving=("Worker",),
    operator="mpi-operator",
)


class MPIJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    mpiReplicaSpecs: dict[str, ReplicaSpec] = {}
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


def read(job: MPIJob, findings: Findings) -> Submission:
    spec = job.spec
    if spec.slotsPerWorker < 1:
        findings.invalid("spec.slotsPerWorker", f"{spec.slotsPerWorker} is not at least 1")
    roles = kubeflow.read_roles(MPI, spec.mpiReplicaSpecs, findings)
    launcher = next((role for role in roles if role.name == "Launcher"), None)
    if launcher is None:
        findings.required(f"{MPI.path}[Launcher]", "exactly one launcher is needed")
    elif launcher.replicas != 1:
        findings.invalid(f"{MPI.path}[Launcher].replicas", "exactly one launcher is needed")
    options = {
        name: value
        for name in MPIJobSpec.__struct_fields__[2:]
        if (value := getattr(spec, name)) is not None
    }
    return kubeflow.submission(
        MPI,
        job.apiVersion,
        job.metadata,
        spec.runPolicy,
        roles,
        DoneWhen("Launcher"),
        findings,
        options,
        managers=(*MANAGERS, MPI_OPERATOR),
    )


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(MPI, job)


def tell(gang: Gang) -> Callable[[int], Told]:
    def told(rank: int) -> Told:
        return Told(name=kubeflow.rank_name(gang, rank), labels=_labels(gang, rank))

    return told


def _labels(gang: Gang, rank: int) -> dict[str, str]:
    return kubeflow.labels(MPI, gang, rank, master=rank == 0)


def services(gang: Gang) -> Sequence[Service]:
    return ()


KIND = Kind(
    name="MPIJob",
    forms=(
        Form("kubeflow.org/v2beta1", MPIJob, read, write),
        Form("kubeflow.org/v1", MPIJob, read, write),
    ),
    tell=tell,
    services=services,
    about=MPI.about("the Launcher"),
)
