"""What all manifests share: their outer form, metadata, run policy, and how mistakes are told.

Field names are those of the Kubeflow APIs, so that what `kubectl` takes is taken here. A field that
is not listed is refused by name, because a misspelt field that is ignored is a wrong job later.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from controlplane.errors import Rejected
from controlplane.model import JobSpec, RestartPolicy, Workload

# People tell the simulator what a Kubeflow job would do through annotations with this prefix.
WORKLOAD_PREFIX = "sim.muster.dev/"
PRIORITY_ANNOTATION = "muster.dev/priority"
QUEUE_ANNOTATION = "muster.dev/queue"
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
    managedBy: str | UnsetType = UNSET


class Submission(Struct, frozen=True):
    """A manifest, understood."""

    namespace: str
    name: str
    spec: JobSpec
    suspended: bool = False


T = TypeVar("T")


def parse(document: object, type: type[T]) -> T:
    """The document as a value of a type, or Rejected with the path of what does not fit."""
    try:
        return msgspec.convert(document, type)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def _refusal(told: str) -> Rejected:
    """msgspec ends its message with the path in back-quotes; people read it better in front."""
    message, _, path = told.partition(" - at ")
    field = path.strip("`").removeprefix("$").removeprefix(".")
    text = f"{field}: {message}" if field else message
    return Rejected("invalid_manifest", text, field=field or None)


def refuse(field: str, message: str) -> Rejected:
    return Rejected("invalid_manifest", f"{field}: {message}", field=field)


def queue_of(metadata: Metadata, policy: RunPolicy) -> str:
    named = policy.schedulingPolicy.queue if policy.schedulingPolicy else ""
    return named or metadata.annotations.get(QUEUE_ANNOTATION, "") or "default"


def priority_of(metadata: Metadata, policy: RunPolicy) -> int:
    asked = metadata.annotations.get(PRIORITY_ANNOTATION)
    if asked is not None:
        return _number(PRIORITY_ANNOTATION, asked, int)
    name = policy.schedulingPolicy.priorityClass if policy.schedulingPolicy else ""
    if name not in PRIORITY_CLASSES:
        known = ", ".join(name for name in PRIORITY_CLASSES if name)
        raise refuse(
            "spec.runPolicy.schedulingPolicy.priorityClass",
            f"{name!r} is unknown; say one of {known}, or a number in {PRIORITY_ANNOTATION}",
        )
    return PRIORITY_CLASSES[name]


def restart_policy_of(policy: RunPolicy) -> RestartPolicy:
    limit = policy.backoffLimit
    return RestartPolicy() if limit is None else RestartPolicy(limit=limit)


def workload_of(annotations: Mapping[str, str]) -> Workload:
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
                raise refuse(f"metadata.annotations[{key}]", f"known are: {', '.join(readers)}")
            field, reader = readers[name]
            fields[field] = _number(key, value, reader)
    return Workload(**fields)


def _number(annotation: str, value: str, reader: type[T]) -> T:
    try:
        return reader(value)  # type: ignore[call-arg]
    except ValueError:
        what = "a whole number" if reader is int else "a number"
        raise refuse(f"metadata.annotations[{annotation}]", f"{value!r} is not {what}") from None
