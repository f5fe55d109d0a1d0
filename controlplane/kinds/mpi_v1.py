"""MPIJob v1, as the training operator takes it, and v1alpha2, whose policies lay flat in the spec."""

import re
from collections.abc import Callable, Collection
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from controlplane.kinds import kubeflow, mpi_exec
from controlplane.kinds import mpi_jobs as mpi
from controlplane.kinds.checking import check_choice
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Form, Gang, Submission, Told
from controlplane.kinds.manifest import Metadata, RunPolicy
from controlplane.kinds.mpi_modern import modern
from controlplane.kinds.mpi_status import status_v1
from controlplane.kinds.pods import ReplicaSpec
from controlplane.kinds.structure import shown
from controlplane.model import RestartRule

_NEVER = {mpi.LAUNCHER: RestartRule.NEVER, mpi.WORKER: RestartRule.NEVER}
V1 = mpi.Generation("kubeflow.org/v1", restart=_NEVER)
V1ALPHA2 = mpi.Generation("kubeflow.org/v1alpha2", restart=_NEVER)
V1ALPHA2_LABELS = {"group": "group_name", "job": "mpi_job_name", "role": "mpi_role_type"}

# What Kubernetes takes as the name of a container.
_CONTAINER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class MPIJobSpecV1(Struct, frozen=True, forbid_unknown_fields=True):
    mpiReplicaSpecs: dict[str, ReplicaSpec] | None = None
    runPolicy: RunPolicy = RunPolicy()
    slotsPerWorker: int | None = None
    cleanPodPolicy: str | None = None
    mainContainer: str = ""


class MPIJobV1(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MPIJobSpecV1
    status: Any = UNSET


class MPIJobSpecV1Alpha2(MPIJobSpecV1, frozen=True, forbid_unknown_fields=True):
    backoffLimit: int | None = None
    activeDeadlineSeconds: int | None = None
    mpiDistribution: str = "open_mpi"


class MPIJobV1Alpha2(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1alpha2"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MPIJobSpecV1Alpha2
    status: Any = UNSET


def read(job: MPIJobV1, findings: Findings) -> Submission:
    return _read(V1, job.metadata, job.spec, job.spec.runPolicy, {}, findings)


def read_v1alpha2(job: MPIJobV1Alpha2, findings: Findings) -> Submission:
    spec, policy = job.spec, job.spec.runPolicy
    check_choice("spec.mpiDistribution", spec.mpiDistribution, mpi_exec.DISTRIBUTIONS, findings)
    # The run policy came last and takes precedence.
    flat = {
        name: value
        for name in ("backoffLimit", "activeDeadlineSeconds")
        if getattr(policy, name) is None and (value := getattr(spec, name)) is not None
    }
    more = {"mpiDistribution": spec.mpiDistribution}
    return _read(V1ALPHA2, job.metadata, spec, replace(policy, **flat), more, findings, flat)


def _read(
    generation: mpi.Generation,
    metadata: Metadata,
    spec: MPIJobSpecV1,
    policy: RunPolicy,
    more: dict[str, Any],
    findings: Findings,
    flat: Collection[str] = (),
) -> Submission:
    slots = 1 if spec.slotsPerWorker is None else spec.slotsPerWorker
    mpi.check_slots(slots, findings)
    roles = mpi.read_roles(generation, spec.mpiReplicaSpecs, findings)
    _check_main_container(spec, findings)
    options = {"slotsPerWorker": slots, "mainContainer": spec.mainContainer, **more}
    clean = mpi.one_clean_policy(policy, spec.cleanPodPolicy, findings)
    clean = mpi.Clean(clean.policy, clean.flat | set(flat))
    return mpi.submission(generation, metadata, clean, roles, options, findings)


def _check_main_container(spec: MPIJobSpecV1, findings: Findings) -> None:
    """The launcher runs its commands in this container of a worker, so each worker must have it."""
    name = spec.mainContainer
    known = [
        container.name
        for role, replica in (spec.mpiReplicaSpecs or {}).items()
        if role.capitalize() == mpi.WORKER
        for container in replica.template.spec.containers
    ]
    # It becomes a word of a shell script.
    if name and (name not in known or not _CONTAINER.fullmatch(name)):
        told = f"the workers have no container {shown(name)!r}; theirs are: {shown(known)}"
        findings.invalid("spec.mainContainer", told)


def write(job: Submission) -> dict[str, Any]:
    """The clean-up policy stands in both places where this version has it."""
    manifest = kubeflow.write(mpi.MPI, job)
    spec = {**manifest["spec"], "cleanPodPolicy": job.spec.clean.value}
    return {**manifest, "spec": spec}


def tell(gang: Gang) -> Callable[[int], Told]:
    return mpi_exec.tell(gang, lambda rank: mpi_exec.labels(gang, rank))


def tell_v1alpha2(gang: Gang) -> Callable[[int], Told]:
    return mpi_exec.tell(gang, lambda rank: mpi_exec.old_labels(V1ALPHA2_LABELS, gang, rank))


FORM = Form(V1.version, MPIJobV1, read, write, status_v1, modern)
FORM_V1ALPHA2 = Form(V1ALPHA2.version, MPIJobV1Alpha2, read_v1alpha2, write, status_v1, modern)
