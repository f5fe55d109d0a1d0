"""MPIJob v1alpha1 of 2018: a number of GPUs or of replicas, and one template for all pods.

The launcher gets the template without resources and starts once every worker is ready. The workers
get it with the GPUs of a node added, and sleep.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace

from controlplane.kinds.conditions import timestamp
from controlplane.kinds.kind import Form, GangContext, RankEnvironment, Submission
from controlplane.kinds.manifest.checking import check_choice
from controlplane.kinds.manifest.manifest import (
    Metadata,
    RunPolicy,
    written_metadata,
    written_policy,
)
from controlplane.kinds.manifest.pods import (
    PodTemplate,
    ReplicaSpec,
    Resources,
    container_of,
    role_of,
)
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi import mpi_exec
from controlplane.kinds.mpi import mpi_jobs as mpi
from controlplane.kinds.mpi.modernize import modern
from controlplane.kinds.mpi.v2beta1 import launcher_last
from controlplane.lifecycle.job import Job
from controlplane.model import quantities as q
from controlplane.model.phases import Phase, RankState
from controlplane.model.resources import GPU_RESOURCES
from controlplane.model.spec import RestartRule, Role

V1ALPHA1 = mpi.Generation("kubeflow.org/v1alpha1", restart={})
LABELS = {"group": "group_name", "job": "mpi_job_name", "role": "mpi_role_type"}
# Fields that later versions have in a run policy.
FLAT = ("backoffLimit", "activeDeadlineSeconds")
# GPUs per node, an option of the operator; its published deployment sets 8.
PER_NODE = 8
RESOURCE_TYPES = (*GPU_RESOURCES, "cpu")
MASTER_LABEL = "node-role.kubernetes.io/master"
ON_MASTER = {
    "tolerations": [{"key": MASTER_LABEL, "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": MASTER_LABEL, "operator": "Exists"}]}
                ]
            }
        }
    },
}


class MPIJobSpecV1Alpha1(Struct, frozen=True, forbid_unknown_fields=True):
    template: PodTemplate
    gpus: int | None = None
    gpusPerNode: int | None = None
    processingUnits: int | None = None
    processingUnitsPerNode: int | None = None
    processingResourceType: str = "nvidia.com/gpu"
    slotsPerWorker: int | None = None
    launcherOnMaster: bool = False
    backoffLimit: int | None = None
    activeDeadlineSeconds: int | None = None
    replicas: int | None = None


class MPIJobV1Alpha1(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1alpha1"]
    kind: Literal["MPIJob"]
    metadata: Metadata
    spec: MPIJobSpecV1Alpha1
    status: Any = UNSET


class Share(NamedTuple):
    """The number of workers, and the number of processing units of each."""

    workers: int
    units: int


def read(job: MPIJobV1Alpha1, findings: Findings) -> Submission:
    spec = job.spec
    units = spec.processingResourceType
    check_choice("spec.processingResourceType", units, RESOURCE_TYPES, findings)
    share = shared_out(spec, findings)
    slots = max(share.units, 1) if spec.slotsPerWorker is None else spec.slotsPerWorker
    mpi.check_slots(slots, findings)
    options = {
        "slotsPerWorker": slots,
        "launcherOnMaster": spec.launcherOnMaster,
        "processingResourceType": spec.processingResourceType,
    }
    policy = RunPolicy(**{name: getattr(spec, name) for name in FLAT})
    clean = mpi.Clean(policy, frozenset(FLAT))
    roles = (_launcher(spec), _worker(spec, share, findings))
    return mpi.submission(V1ALPHA1, job.metadata, clean, launcher_last(roles), options, findings)


def shared_out(spec: MPIJobSpecV1Alpha1, findings: Findings) -> Share:
    """Return the workers and their units, from a total and a node's size, or from replicas.

    A total must be a multiple of the node's size, unless it is smaller; then there is one worker.
    """
    counts = {"gpus": "gpusPerNode", "processingUnits": "processingUnitsPerNode"}
    given = [field for field in (*counts, "replicas") if getattr(spec, field) is not None]
    if not given:
        findings.required("spec.replicas", "set replicas, gpus or processingUnits")
        return Share(0, 0)
    for field in given[1:]:
        findings.forbidden(f"spec.{field}", f"{given[0]} already sets the number of workers")
    total_field = given[0]
    total: int = getattr(spec, total_field)
    if total < 1:
        findings.invalid(f"spec.{total_field}", f"{shown(total)} is not at least 1")
        return Share(0, 0)
    if total_field == "replicas":
        return Share(total, _units_asked(spec))
    node_field = counts[total_field]
    asked = getattr(spec, node_field)
    per_node: int = PER_NODE if asked is None else asked
    if per_node < 1:
        findings.invalid(f"spec.{node_field}", f"{shown(per_node)} is not at least 1")
        return Share(0, 0)
    if total < per_node:
        return Share(1, total)
    if total % per_node:
        message = (
            f"{shown(total)} is no multiple of what a node has: {shown(per_node)} ({node_field})"
        )
        findings.invalid(f"spec.{total_field}", message)
    return Share(total // per_node, per_node)


def _units_asked(spec: MPIJobSpecV1Alpha1) -> int:
    """Return the units that the template itself requests."""
    containers = spec.template.spec.containers
    limits = containers[0].resources.limits if containers else {}
    asked = q.parse(limits.get(spec.processingResourceType, 0))
    return asked.whole if asked is not None else 0


def _launcher(spec: MPIJobSpecV1Alpha1) -> Role:
    """Return the launcher; problems are reported for the worker, which has the same template."""
    pod = spec.template.spec
    first = [replace(each, resources=Resources()) for each in pod.containers[:1]]
    on_master = ON_MASTER if spec.launcherOnMaster else {}
    pod = replace(pod, containers=[*first, *pod.containers[1:]], **on_master)
    never = pod.restartPolicy == RestartRule.NEVER.value
    return role_of(
        "spec",
        mpi.LAUNCHER,
        ReplicaSpec(template=replace(spec.template, spec=pod)),
        Findings(),
        container="",
        restart=RestartRule.NEVER if never else RestartRule.ON_FAILURE,
    )


def _worker(spec: MPIJobSpecV1Alpha1, share: Share, findings: Findings) -> Role:
    pod, resource = spec.template.spec, spec.processingResourceType
    first = []
    for each in pod.containers[:1]:
        units = {resource: share.units} if share.units else {}
        resources = replace(each.resources, limits={**each.resources.limits, **units})
        sleeping = [list(mpi_exec.SLEEP[:1]), list(mpi_exec.SLEEP[1:])]
        first = [replace(each, resources=resources, command=sleeping[0], args=sleeping[1])]
    pod = replace(pod, containers=[*first, *pod.containers[1:]])
    role = role_of(
        "spec",
        mpi.WORKER,
        ReplicaSpec(template=replace(spec.template, spec=pod), replicas=share.workers),
        findings,
        container="",
        restart=RestartRule.ALWAYS,
        is_server=True,
    )
    return replace(role, min_replicas=1)


def write(job: Submission) -> dict[str, Any]:
    """Return the manifest with `replicas`; units from a total are in the template's resources."""
    spec = job.spec
    launcher, worker = mpi.needed(job, mpi.LAUNCHER), mpi.needed(job, mpi.WORKER)
    policy = written_policy(job)
    flat = {name: policy[name] for name in FLAT if name in policy}
    return {
        "apiVersion": V1ALPHA1.version,
        "kind": "MPIJob",
        "metadata": written_metadata(job),
        "spec": {
            "replicas": worker.replicas,
            **spec.options,
            **flat,
            "template": _written_template(launcher, worker),
        },
    }


def _written_template(launcher: Role, worker: Role) -> dict[str, Any]:
    """Return the worker's template, which has the resources, with the launcher's command."""
    commands, pod = container_of(launcher), worker.template.get("spec", {})
    first = {k: v for k, v in container_of(worker).items() if k not in ("command", "args")}
    first |= {name: commands[name] for name in ("command", "args") if name in commands}
    others = pod.get("containers", [])[1:]
    return {**worker.template, "spec": {**pod, "containers": [first, *others]}}


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    return mpi_exec.environments(gang, lambda rank: mpi_exec.old_labels(LABELS, gang, rank))


def status(job: Job) -> dict[str, Any]:
    """Return the status of this version: the launcher's state, and the number of ready workers."""
    if job.spec.is_external:
        return {}
    written: dict[str, Any] = {}
    ranks = job.attempt.ranks if job.attempt is not None else ()
    workers = job.spec.ranks_of(mpi.WORKER)
    ready = sum(ranks[rank].state is RankState.RUNNING for rank in workers if rank < len(ranks))
    finals = {Phase.SUCCEEDED: "Succeeded", Phase.FAILED: "Failed", Phase.CANCELLED: "Failed"}
    if job.phase in finals:
        written["launcherStatus"] = finals[job.phase]
    elif ranks and ranks[0].state is RankState.RUNNING:
        written["launcherStatus"] = "Active"
    if job.running_at is not None:
        written["startTime"] = timestamp(job.running_at)
    if job.finished_at is not None:
        written["completionTime"] = timestamp(job.finished_at)
    return {**written, "workerReplicas": ready}


FORM = Form(V1ALPHA1.version, MPIJobV1Alpha1, read, write, status, modern)
