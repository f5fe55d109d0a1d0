"""Metadata, run policy and annotations, which the manifests of all kinds share.

Field names are those of the Kubeflow APIs, so that a manifest for `kubectl` is valid here. An
unknown field is refused by name, because ignoring a misspelt field would run a wrong job.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.kinds import hints
from controlplane.kinds.kind import Submission
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.annotations import (
    PRIORITY_LABEL,
    annotations_for,
    queue_of,
    scheduling_of,
    with_workflow,
    workflow_annotations,
)
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import CleanPods, JobSpec, RestartPolicy, RestartScope

PRIORITY_ANNOTATION = "muster.dev/priority"
# What restarts when one rank fails: the whole gang, or only that rank, as with the operators.
RESTART_SCOPE_ANNOTATION = "muster.dev/restart-scope"
# How often a failed gang restarts; for kinds that have no field for it, such as TrainJob.
RESTART_LIMIT_ANNOTATION = "muster.dev/restart-limit"
# How long a starting job waits for an image that cannot be pulled before it fails.
IMAGE_TIMEOUT_ANNOTATION = "muster.dev/image-timeout-seconds"
# The priority classes that Muster defines. Any other name is kept, for clusters that have a class of
# that name.
PRIORITY_CLASSES = {"": 0, "low": -1_000, "normal": 0, "high": 1_000}
POLICY = "spec.runPolicy"


class Metadata(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    namespace: str = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    # Fields that a cluster adds to an object; a manifest that was exported from a cluster has them.
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
    """The fields of a run policy that were in `spec` itself until 2020."""

    cleanPodPolicy: str | None = None
    ttlSecondsAfterFinished: int | None = None
    activeDeadlineSeconds: int | None = None
    backoffLimit: int | None = None
    schedulingPolicy: SchedulingPolicy | None = None


class RunPolicy(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    suspend: bool = False
    managedBy: str | None = None


class Understood(NamedTuple):
    """A run policy as fields of a JobSpec; `options` keeps what has no field there."""

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
    """Read a run policy. Every value is checked, including those that the operators ignore.

    `flat` names the fields that were given in `spec` itself. `clean` is the clean-up policy of a
    manifest that has none.
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
        "hints": hints.from_annotations(metadata.annotations, findings),
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
    image_timeout = metadata.annotations.get(IMAGE_TIMEOUT_ANNOTATION)
    if image_timeout is not None:
        limits = (0, checking.SECONDS_MAX)
        seconds = _number(IMAGE_TIMEOUT_ANNOTATION, image_timeout, float, limits, findings)
        fields["image_timeout_s"] = IMAGE_TIMEOUT_S if seconds is None else seconds
    return Understood(fields, _kept(gang))


def _kept(gang: SchedulingPolicy) -> dict[str, Any]:
    """Return the parts of a scheduling policy that have no field in a JobSpec.

    The name of a priority class is kept because a cluster may have a class of that name.
    """
    kept = {
        name: value
        for name in ("priorityClass", "minResources")
        if (value := to_builtins(getattr(gang, name)))
    }
    # A gang that may start with 0 ranks has no reservation either.
    if gang.minAvailable == 0:
        kept["minAvailable"] = 0
    return {"runPolicy": {"schedulingPolicy": kept}} if kept else {}


def _min_available_of(gang: SchedulingPolicy, where: str, findings: Findings) -> int | None:
    least = gang.minAvailable
    checking.check_range(f"{where}.minAvailable", least, 0, checking.RANKS_MAX, findings)
    return least or None


def _priority_of(metadata: Metadata, gang: SchedulingPolicy, where: str, findings: Findings) -> int:
    asked = metadata.annotations.get(PRIORITY_ANNOTATION)
    if asked is not None:
        return int(_number(PRIORITY_ANNOTATION, asked, int, checking.PRIORITIES, findings) or 0)
    name = gang.priorityClass
    # Kueue's priority classes are objects of a cluster too; the label keeps an unknown name.
    if not name and (message := metadata.labels.get(PRIORITY_LABEL)) in PRIORITY_CLASSES:
        name = message
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
    annotation = metadata.annotations.get(RESTART_LIMIT_ANNOTATION)
    if annotation is None:
        return policy.backoffLimit
    limit = _number(RESTART_LIMIT_ANNOTATION, annotation, int, (0, checking.BILLION), findings)
    if limit is not None and policy.backoffLimit not in (None, limit):
        where = f"metadata.annotations[{RESTART_LIMIT_ANNOTATION}]"
        findings.invalid(where, f"backoffLimit is {policy.backoffLimit}; set only one of them")
    return None if limit is None else int(limit)


def _number(
    annotation: str,
    text: str,
    type: type[int] | type[float],
    limits: tuple[int, int],
    findings: Findings,
) -> float | None:
    where = f"metadata.annotations[{annotation}]"
    return checking.read_number(where, text, type, limits, findings)


# ------------------------------------------------------------------ writing


def written_metadata(job: Submission) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": job.name, "namespace": job.namespace}
    if job.spec.labels:
        metadata["labels"] = job.spec.labels
    if job.spec.annotations:
        metadata["annotations"] = job.spec.annotations
    return metadata


def with_scheduling_annotations(spec: JobSpec) -> JobSpec:
    """Return the spec with annotations for its scheduling fields, unless it has them already."""
    annotations: dict[str, str] = {}
    if scheduling_of(spec.labels, spec.annotations, Findings()) != spec.scheduling:
        annotations |= annotations_for(spec.scheduling)
    if with_workflow(replace(spec, after=(), array=""), Findings()) != spec:
        annotations |= workflow_annotations(spec)
    if spec.image_timeout_s != IMAGE_TIMEOUT_S:
        annotations.setdefault(IMAGE_TIMEOUT_ANNOTATION, f"{spec.image_timeout_s:g}")
    return replace(spec, annotations={**spec.annotations, **annotations}) if annotations else spec


def written_policy(job: Submission) -> dict[str, Any]:
    """Return the run policy with explicit defaults, and with the parts kept in the options."""
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
    policy: dict[str, Any] = {
        "queue": spec.queue,
        "minAvailable": spec.min_available,
        "scheduleTimeoutSeconds": None if timeout_s == DEFAULT_TIMEOUT_S else _whole(timeout_s),
        **kept,
    }
    return {name: value for name, value in policy.items() if value is not None}


DEFAULT_TIMEOUT_S = 600.0
IMAGE_TIMEOUT_S = 300.0


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
