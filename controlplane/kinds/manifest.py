"""What all manifests share: metadata, run policy, and the annotations that Muster reads.

Field names are those of the Kubeflow APIs, so that what `kubectl` takes is taken here. A field that
is not listed is refused by name, because a misspelt field that is ignored is a wrong job later.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.kinds import checking
from controlplane.kinds.asked_by_annotation import (
    PRIORITY_LABEL,
    annotations_for,
    queue_of,
    scheduling_of,
)
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Submission
from controlplane.kinds.structure import shown
from controlplane.model import (
    CleanPods,
    JobSpec,
    RestartPolicy,
    RestartScope,
    Training,
    Workload,
)

# People tell the simulator what a Kubeflow job would do through annotations with this prefix.
WORKLOAD_PREFIX = "sim.muster.dev/"
PRIORITY_ANNOTATION = "muster.dev/priority"
# What starts again when one rank fails: the whole gang, or the one rank as the operators do it.
RESTART_SCOPE_ANNOTATION = "muster.dev/restart-scope"
# How often a failed gang starts again; for kinds that have no field for it, such as TrainJob.
RESTART_LIMIT_ANNOTATION = "muster.dev/restart-limit"
# How long a starting job waits for an image that cannot be had before it has failed.
IMAGE_TIMEOUT_ANNOTATION = "muster.dev/image-timeout-seconds"
# The values of the priority classes that Muster knows itself. Any other name is kept, for clusters
# that have a class of that name.
PRIORITY_CLASSES = {"": 0, "low": -1_000, "normal": 0, "high": 1_000}
POLICY = "spec.runPolicy"


class Metadata(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    namespace: str = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    # What a cluster adds to an object it returns; a manifest saved from one still has them.
    uid: Any = UNSET
    resourceVersion: Any = UNSET
    generation: Any = UNSET
    creationTimestamp: Any = UNSET
    managedFields: Any = UNSET
    ownerReferences: Any = UNSET
    finalizers: Any = UNSET
    selfLink: Any = UNSET


class SchedulingPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    minAvailable: int | None = None
    queue: str = ""
    minResources: dict[str, Any] = {}
    priorityClass: str = ""
    scheduleTimeoutSeconds: int | None = None


class FlatPolicy(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run policy as it stood in `spec` itself until 2020."""

    cleanPodPolicy: str | None = None
    ttlSecondsAfterFinished: int | None = None
    activeDeadlineSeconds: int | None = None
    backoffLimit: int | None = None
    schedulingPolicy: SchedulingPolicy | None = None


class RunPolicy(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    suspend: bool = False
    managedBy: str | None = None


class Understood(NamedTuple):
    """A run policy as fields of a JobSpec, and what of it has no field and is only kept."""

    fields: dict[str, Any]
    options: dict[str, Any]


def policy_of(
    metadata: Metadata,
    policy: RunPolicy,
    findings: Findings,
    *,
    flat: Collection[str] = (),
    clean: CleanPods = CleanPods.NONE,
    managers: Collection[str] = checking.MANAGERS,
) -> Understood:
    """What a run policy means. Every value is checked, also those the operators never look at.

    `flat` names the fields that stood in `spec` itself; `clean` is what is done with the pods of a
    finished job whose manifest does not say it.
    """

    def where(field: str) -> str:
        return f"spec.{field}" if field in flat else f"{POLICY}.{field}"

    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        checking.check_range(
            where(field), getattr(policy, field), 0, checking.SECONDS_MAX, findings
        )
    if policy.managedBy is not None:
        checking.check_choice(where("managedBy"), policy.managedBy, managers, findings)
    asked = policy.cleanPodPolicy
    if asked and checking.check_choice(where("cleanPodPolicy"), asked, CleanPods, findings):
        clean = CleanPods(asked)
    gang = policy.schedulingPolicy or SchedulingPolicy()
    fields: dict[str, Any] = {
        "queue": gang.queue or queue_of(metadata.labels, metadata.annotations) or "default",
        "priority": _priority_of(metadata, gang, where("schedulingPolicy"), findings),
        "restart": _restart_of(metadata, policy, findings),
        "active_deadline_s": policy.activeDeadlineSeconds,
        "ttl_s": policy.ttlSecondsAfterFinished,
        "clean": clean,
        "managed_by": policy.managedBy or "",
        "min_available": _min_available_of(gang, where("schedulingPolicy"), findings),
        "workload": workload_of(metadata.annotations, findings),
        "scheduling": scheduling_of(metadata.labels, metadata.annotations, findings),
    }
    timeout_s = gang.scheduleTimeoutSeconds
    checking.check_range(
        f"{where('schedulingPolicy')}.scheduleTimeoutSeconds",
        timeout_s,
        0,
        checking.SECONDS_MAX,
        findings,
    )
    if timeout_s:
        fields["start_timeout_s"] = timeout_s
    said = metadata.annotations.get(IMAGE_TIMEOUT_ANNOTATION)
    if said is not None:
        limits = (0, checking.SECONDS_MAX)
        seconds = _number(IMAGE_TIMEOUT_ANNOTATION, said, float, limits, findings)
        fields["image_timeout_s"] = IMAGE_TIMEOUT_S if seconds is None else seconds
    return Understood(fields, _kept(gang))


def _kept(gang: SchedulingPolicy) -> dict[str, Any]:
    """What has no field: a class of priority is more than its number where there is a cluster."""
    found = {
        name: value
        for name in ("priorityClass", "minResources")
        if (value := to_builtins(getattr(gang, name)))
    }
    # For a gang that may start with nobody, nothing is reserved either.
    if gang.minAvailable == 0:
        found["minAvailable"] = 0
    return {"runPolicy": {"schedulingPolicy": found}} if found else {}


def _min_available_of(gang: SchedulingPolicy, where: str, findings: Findings) -> int | None:
    least = gang.minAvailable
    checking.check_range(f"{where}.minAvailable", least, 0, checking.RANKS_MAX, findings)
    return least or None


def _priority_of(metadata: Metadata, gang: SchedulingPolicy, where: str, findings: Findings) -> int:
    asked = metadata.annotations.get(PRIORITY_ANNOTATION)
    if asked is not None:
        return int(_number(PRIORITY_ANNOTATION, asked, int, checking.PRIORITIES, findings) or 0)
    name = gang.priorityClass
    # Kueue's classes live in a cluster too; of those that nobody knows here only the name is kept.
    if not name and (told := metadata.labels.get(PRIORITY_LABEL)) in PRIORITY_CLASSES:
        name = told
    if name not in PRIORITY_CLASSES:
        known = ", ".join(name for name in PRIORITY_CLASSES if name)
        findings.warn(
            f"{where}.priorityClass: the value of {shown(name)!r} is not known here, so the job has "
            f"priority 0 (known are {known}); to give it another one, "
            f"set the annotation {PRIORITY_ANNOTATION} to a number",
        )
    return PRIORITY_CLASSES.get(name, 0)


def _restart_of(metadata: Metadata, policy: RunPolicy, findings: Findings) -> RestartPolicy:
    scope = metadata.annotations.get(RESTART_SCOPE_ANNOTATION, RestartScope.GANG.value)
    where = f"metadata.annotations[{RESTART_SCOPE_ANNOTATION}]"
    if not checking.check_choice(where, scope, RestartScope, findings):
        scope = RestartScope.GANG.value
    restart = RestartPolicy(scope=RestartScope(scope))
    limit = _restart_limit_of(metadata, policy, findings)
    return restart if limit is None else replace(restart, limit=limit)


def _restart_limit_of(metadata: Metadata, policy: RunPolicy, findings: Findings) -> int | None:
    said = metadata.annotations.get(RESTART_LIMIT_ANNOTATION)
    if said is None:
        return policy.backoffLimit
    limit = _number(RESTART_LIMIT_ANNOTATION, said, int, (0, checking.BILLION), findings)
    if limit is not None and policy.backoffLimit not in (None, limit):
        where = f"metadata.annotations[{RESTART_LIMIT_ANNOTATION}]"
        findings.invalid(where, f"backoffLimit says {policy.backoffLimit}; say one of them only")
    return None if limit is None else int(limit)


# What each annotation sets, how it is read, and its least and most.
_WORKLOAD: dict[str, tuple[str, type[int] | type[float], tuple[int, int]]] = {
    "duration-seconds": ("duration_s", float, (0, checking.SECONDS_MAX)),
    "exit-code": ("exit_code", int, (0, 255)),
    "exit-rank": ("exit_rank", int, (0, checking.RANKS_MAX)),
    "failing-attempts": ("failing_attempts", int, (0, checking.BILLION)),
}


def workload_of(annotations: Mapping[str, str], findings: Findings) -> Workload:
    """What a simulated cluster should make of the job."""
    fields: dict[str, Any] = {}
    training: dict[str, Any] = {}
    for key, value in annotations.items():
        if key.startswith(WORKLOAD_PREFIX):
            name = key.removeprefix(WORKLOAD_PREFIX)
            if name in _TRAINING_TEXTS:
                training[name] = value
                continue
            known = _WORKLOAD | _TRAINING
            if name not in known:
                told = f"known are: {', '.join((*_WORKLOAD, *_TRAINING_TEXTS, *_TRAINING))}"
                findings.unsupported(f"metadata.annotations[{shown(key)}]", told)
                continue
            field, reader, limits = known[name]
            number = _number(key, value, reader, limits, findings)
            if number is not None:
                (fields if name in _WORKLOAD else training)[field] = number
    if training and "model" not in training:
        findings.invalid(f"metadata.annotations[{WORKLOAD_PREFIX}model]", "is missing")
        return Workload(**fields)
    return Workload(**fields, training=Training(**training) if training else None)


# What a simulated cluster is told to train; see `Training`.
_TRAINING_TEXTS = ("model", "precision", "scheme", "compression")
_TRAINING: dict[str, tuple[str, type[int] | type[float], tuple[int, int]]] = {
    "steps": ("steps", int, (1, 1_000_000_000)),
    "batch": ("batch", int, (0, 1_000_000)),
    "accumulate": ("accumulate", int, (1, 1_000_000)),
    "servers": ("servers", int, (1, 100_000)),
    "compute-seconds": ("compute_s", float, (0, 1_000_000)),
    "tensor": ("tensor", int, (1, 100_000)),
    "pipeline": ("pipeline", int, (1, 100_000)),
    "global-batch": ("global_batch", int, (0, 1_000_000_000)),
    "checkpoint-seconds": ("checkpoint_s", float, (0, 315_360_000)),
    "checkpoint-write-seconds": ("checkpoint_write_s", float, (0, 315_360_000)),
    "evaluate-steps": ("evaluate_steps", int, (0, 1_000_000_000)),
    "evaluate-seconds": ("evaluate_s", float, (0, 315_360_000)),
}


def _number(
    annotation: str,
    value: str,
    reader: type[int] | type[float],
    limits: tuple[int, int],
    findings: Findings,
) -> float | None:
    where = f"metadata.annotations[{annotation}]"
    try:
        number = reader(value)
    except ValueError:
        what = "a whole number" if reader is int else "a number"
        findings.invalid(where, f"{shown(value)!r} is not {what}")
        return None
    return number if checking.check_range(where, number, *limits, findings) else None


# ------------------------------------------------------------------ and back


def written_metadata(job: Submission) -> dict[str, Any]:
    found: dict[str, Any] = {"name": job.name, "namespace": job.namespace}
    if job.spec.labels:
        found["labels"] = job.spec.labels
    if job.spec.annotations:
        found["annotations"] = job.spec.annotations
    return found


def with_wishes_said(spec: JobSpec) -> JobSpec:
    """The job with annotations that say what it asks of the scheduler, if they do not already."""
    said: dict[str, str] = {}
    if scheduling_of(spec.labels, spec.annotations, Findings()) != spec.scheduling:
        said |= annotations_for(spec.scheduling)
    if spec.image_timeout_s != IMAGE_TIMEOUT_S:
        said.setdefault(IMAGE_TIMEOUT_ANNOTATION, f"{spec.image_timeout_s:g}")
    return replace(spec, annotations={**spec.annotations, **said}) if said else spec


def written_policy(job: Submission) -> dict[str, Any]:
    """The run policy with every default spelt out; what has no field of ours is in the options."""
    spec = job.spec
    policy: dict[str, Any] = {
        "cleanPodPolicy": spec.clean.value,
        "ttlSecondsAfterFinished": _whole(spec.ttl_s),
        "activeDeadlineSeconds": _whole(spec.active_deadline_s),
        "backoffLimit": spec.restart.limit,
        "schedulingPolicy": _written_scheduling(job),
        "suspend": job.suspended,
        "managedBy": spec.managed_by or None,
    }
    return {name: value for name, value in policy.items() if value is not None}


def _written_scheduling(job: Submission) -> dict[str, Any]:
    spec = job.spec
    kept = spec.options.get("runPolicy", {}).get("schedulingPolicy", {})
    timeout_s = spec.start_timeout_s
    found: dict[str, Any] = {
        "queue": spec.queue,
        "minAvailable": spec.min_available,
        "scheduleTimeoutSeconds": None if timeout_s == DEFAULT_TIMEOUT_S else _whole(timeout_s),
        **kept,
    }
    return {name: value for name, value in found.items() if value is not None}


DEFAULT_TIMEOUT_S = 600.0
IMAGE_TIMEOUT_S = 300.0


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
