"""What all manifests share: their outer form, metadata, run policy, and how mistakes are told.

Field names are those of the Kubeflow APIs, so that what `kubectl` takes is taken here. A field that
is not listed is refused by name, because a misspelt field that is ignored is a wrong job later.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.errors import Rejected
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Submission
from controlplane.model import CleanPods, RestartPolicy, RestartScope, Workload

# People tell the simulator what a Kubeflow job would do through annotations with this prefix.
WORKLOAD_PREFIX = "sim.muster.dev/"
PRIORITY_ANNOTATION = "muster.dev/priority"
QUEUE_ANNOTATION = "muster.dev/queue"
# What starts again when one rank fails: the whole gang, or the one rank as the operators do it.
RESTART_SCOPE_ANNOTATION = "muster.dev/restart-scope"
# Who may run a job; jobs of the others are left alone.
MANAGERS = (
    "muster.dev/muster",
    "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator",
    "kueue.x-k8s.io/multikueue",
)
OURS = MANAGERS[:-1]
CLEAN_POD_POLICIES = ("None", "Running", "All")
SECONDS_MAX = 10 * 365 * 86_400
# Priority classes live in a Kubernetes cluster; without one, these names are known.
PRIORITY_CLASSES = {"": 0, "low": -1_000, "normal": 0, "high": 1_000}


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


class RunPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    cleanPodPolicy: str | None = None
    ttlSecondsAfterFinished: int | None = None
    activeDeadlineSeconds: int | None = None
    backoffLimit: int | None = None
    schedulingPolicy: SchedulingPolicy | None = None
    suspend: bool = False
    managedBy: str | None = None


T = TypeVar("T")
# A step of a path: a field's name, or an index.
_STEP = re.compile(r"([^.\[\]]+)(?=[.\[]|$)|\[(\d+)\]")


def parse(document: object, type: type[T]) -> T:
    """The document as a value of a type, or Rejected with the path of what does not fit."""
    try:
        return msgspec.convert(document, type)
    except msgspec.ValidationError as error:
        message, path = _split(str(error))
        raise _refusal(message, _with_keys(document, type, path)) from None


def _split(told: str) -> tuple[str, str]:
    """msgspec ends its message with the path in back-quotes; people read it better in front."""
    message, _, path = told.partition(" - at ")
    return message, path.strip("`").removeprefix("$").removeprefix(".")


def _refusal(message: str, field: str) -> Rejected:
    text = f"{field}: {message}" if field else message
    return Rejected("invalid_manifest", text, field=field or None)


def _with_keys(document: object, type: type[T], path: str) -> str:
    """The path with the keys of mappings, for which msgspec writes three dots.

    Each key is tried alone: the one that fails by itself is the one that was meant.
    """
    while "[...]" in path:
        before, _, after = path.partition("[...]")
        found = next(
            (
                (key, alone)
                for key, alone in _one_key_at_a_time(document, before)
                if _fails_at(alone, type, path)
            ),
            None,
        )
        if found is None:
            return path
        key, document = found
        path = f"{before}.{key}{after}"
    return path


def _one_key_at_a_time(document: object, path: str) -> Iterator[tuple[str, object]]:
    """Copies of the document whose mapping at `path` has a single key, each with that key."""
    mapping: Any = document
    steps = [name or int(index) for name, index in _STEP.findall(path)]
    for step in steps:
        mapping = mapping[step]
    for key in mapping:
        alone: Any = deepcopy(document)
        inner = alone
        for step in steps:
            inner = inner[step]
        for other in [other for other in inner if other != key]:
            del inner[other]
        yield str(key), alone


def _fails_at(document: object, type: type[T], path: str) -> bool:
    try:
        msgspec.convert(document, type)
    except msgspec.ValidationError as error:
        return _split(str(error))[1].count("[...]") >= path.count("[...]")
    return False


class Understood(NamedTuple):
    """A run policy as fields of a JobSpec, and what of it has no field and is only kept."""

    fields: dict[str, Any]
    options: dict[str, Any]


def policy_of(metadata: Metadata, policy: RunPolicy, findings: Findings) -> Understood:
    """What a run policy means. Every value is checked, also those the operators never look at."""
    where = "spec.runPolicy"
    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        value = getattr(policy, field)
        if value is not None and not 0 <= value <= SECONDS_MAX:
            told = f"{value} is not between 0 and {SECONDS_MAX}"
            findings.invalid(f"{where}.{field}", told)
    if policy.managedBy is not None and policy.managedBy not in MANAGERS:
        known = ", ".join(MANAGERS)
        findings.unsupported(f"{where}.managedBy", f"{policy.managedBy!r} is not one of {known}")
    clean = policy.cleanPodPolicy
    if clean is not None and clean not in CLEAN_POD_POLICIES:
        allowed = ", ".join(CLEAN_POD_POLICIES)
        findings.unsupported(f"{where}.cleanPodPolicy", f"{clean!r} is not one of {allowed}")
        clean = None
    gang = policy.schedulingPolicy or SchedulingPolicy()
    fields: dict[str, Any] = {
        "queue": gang.queue or metadata.annotations.get(QUEUE_ANNOTATION) or "default",
        "priority": _priority_of(metadata, gang, findings),
        "restart": _restart_of(metadata, policy, findings),
        "active_deadline_s": policy.activeDeadlineSeconds,
        "ttl_s": policy.ttlSecondsAfterFinished,
        "clean": CleanPods(clean or "None"),
        "managed_by": policy.managedBy or "",
        "min_available": _min_available_of(gang, findings),
        "workload": workload_of(metadata.annotations, findings),
    }
    if gang.scheduleTimeoutSeconds:
        fields["start_timeout_s"] = gang.scheduleTimeoutSeconds
    # Kept as it was written, because `high` is not the same as its number everywhere.
    kept = to_builtins(policy.schedulingPolicy) if policy.schedulingPolicy else None
    return Understood(fields, {"runPolicy": {"schedulingPolicy": kept}} if kept else {})


def _min_available_of(gang: SchedulingPolicy, findings: Findings) -> int | None:
    least = gang.minAvailable
    if least is not None and least < 0:
        findings.invalid("spec.runPolicy.schedulingPolicy.minAvailable", f"{least} is negative")
    return least or None


def _priority_of(metadata: Metadata, gang: SchedulingPolicy, findings: Findings) -> int:
    asked = metadata.annotations.get(PRIORITY_ANNOTATION)
    if asked is not None:
        return _number(PRIORITY_ANNOTATION, asked, int, findings) or 0
    name = gang.priorityClass
    if name not in PRIORITY_CLASSES:
        known = ", ".join(name for name in PRIORITY_CLASSES if name)
        findings.unsupported(
            "spec.runPolicy.schedulingPolicy.priorityClass",
            f"{name!r} is unknown; say one of {known}, or a number in {PRIORITY_ANNOTATION}",
        )
    return PRIORITY_CLASSES.get(name, 0)


def _restart_of(metadata: Metadata, policy: RunPolicy, findings: Findings) -> RestartPolicy:
    scope = metadata.annotations.get(RESTART_SCOPE_ANNOTATION, RestartScope.GANG.value)
    if scope not in tuple(RestartScope):
        allowed = ", ".join(RestartScope)
        where = f"metadata.annotations[{RESTART_SCOPE_ANNOTATION}]"
        findings.unsupported(where, f"{scope!r} is not one of {allowed}")
        scope = RestartScope.GANG.value
    restart = RestartPolicy(scope=RestartScope(scope))
    limit = policy.backoffLimit
    return restart if limit is None else replace(restart, limit=limit)


def workload_of(annotations: Mapping[str, str], findings: Findings) -> Workload:
    """What a simulated cluster should make of the job."""
    readers = {
        "duration-seconds": ("duration_s", float),
        "exit-code": ("exit_code", int),
        "exit-rank": ("exit_rank", int),
        "failing-attempts": ("failing_attempts", int),
    }
    fields: dict[str, Any] = {}
    for key, value in annotations.items():
        if key.startswith(WORKLOAD_PREFIX):
            name = key.removeprefix(WORKLOAD_PREFIX)
            if name not in readers:
                told = f"known are: {', '.join(readers)}"
                findings.unsupported(f"metadata.annotations[{key}]", told)
                continue
            field, reader = readers[name]
            number = _number(key, value, reader, findings)
            if number is not None:
                fields[field] = number
    return Workload(**fields)


def _number(annotation: str, value: str, reader: type[T], findings: Findings) -> T | None:
    try:
        return reader(value)  # type: ignore[call-arg]
    except ValueError:
        what = "a whole number" if reader is int else "a number"
        findings.invalid(f"metadata.annotations[{annotation}]", f"{value!r} is not {what}")
        return None


def written_metadata(job: Submission) -> dict[str, Any]:
    found: dict[str, Any] = {"name": job.name, "namespace": job.namespace}
    if job.spec.labels:
        found["labels"] = job.spec.labels
    if job.spec.annotations:
        found["annotations"] = job.spec.annotations
    return found
