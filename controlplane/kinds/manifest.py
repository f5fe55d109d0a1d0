"""What all manifests share: their outer form, metadata, run policy, and how mistakes are told.

Field names are those of the Kubeflow APIs, so that what `kubectl` takes is taken here. A field that
is not listed is refused by name, because a misspelt field that is ignored is a wrong job later.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
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
