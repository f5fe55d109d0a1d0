"""MPIJob v1 of the training operator, and v1alpha2, whose run policy fields are in `spec` itself."""

import re
from collections.abc import Callable, Collection
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from controlplane.kinds.kind import Form, GangContext, RankEnvironment, Submission
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.manifest.checking import check_choice
from controlplane.kinds.manifest.manifest import Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi import mpi_exec
from controlplane.kinds.mpi import mpi_jobs as mpi
from controlplane.kinds.mpi.modernize import modern
from controlplane.kinds.mpi.mpi_status import status_v1
from controlplane.model.spec import RestartRule

_NEVER = {mpi.LAUNCHER: RestartRule.NEVER, mpi.WORKER: RestartRule.NEVER}
V1 = mpi.Generation("kubeflow.org/v1", restart=_NEVER)
V1ALPHA2 = mpi.Generation("kubeflow.org/v1alpha2", restart=_NEVER)
V1ALPHA2_LABELS = {"group": "group_name", "job": "mpi_job_name", "role": "mpi_role_type"}

# The names that Kubernetes accepts for a container.
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
    # The run policy is the newer place and takes precedence.
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
    """Check that workers have the main container, in which the launcher executes its commands."""
    name = spec.mainContainer
    known = [
        container.name
        for role, replica in (spec.mpiReplicaSpecs or {}).items()
        if role.capitalize() == mpi.WORKER
        for container in replica.template.spec.containers
    ]
    # The name becomes a word of a shell script.
    if name and (name not in known or not _CONTAINER.fullmatch(name)):
        message = f"the workers have no container {shown(name)!r}; theirs are: {shown(known)}"
        findings.invalid("spec.mainContainer", message)


def write(job: Submission) -> dict[str, Any]:
    """Return the manifest, with the clean-up policy in both places where this version has it."""
    manifest = kubeflow.write(mpi.MPI, job)
    spec = {**manifest["spec"], "cleanPodPolicy": job.spec.clean.value}
    return {**manifest, "spec": spec}


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    return mpi_exec.environments(gang, lambda rank: mpi_exec.labels(gang, rank))


def environments_v1alpha2(gang: GangContext) -> Callable[[int], RankEnvironment]:
    return mpi_exec.environments(
        gang, lambda rank: mpi_exec.old_labels(V1ALPHA2_LABELS, gang, rank)
    )


FORM = Form(V1.version, MPIJobV1, read, write, status_v1, modern)
FORM_V1ALPHA2 = Form(V1ALPHA2.version, MPIJobV1Alpha2, read_v1alpha2, write, status_v1, modern)
