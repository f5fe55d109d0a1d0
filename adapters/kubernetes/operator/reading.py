"""What a resource of the cluster says: in which version, for whom, and as which job. Pure."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator.resources import Resource
from adapters.kubernetes.ownership import RESOURCE
from controlplane.kinds.checking import is_external
from controlplane.kinds.kind import Submission
from controlplane.kinds.registry import read_manifest
from controlplane.kinds.trainer import OURS as TRAINER

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# What of an object's metadata is part of the job; the rest is the cluster's.
METADATA = ("name", "namespace", "labels", "annotations")
# Other schedulers, by the labels and annotations with which jobs are put in their queues.
QUEUE_MARKS = {
    "kueue": ("kueue.x-k8s.io/queue-name",),
    "volcano": ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"),
}
# Where the kinds say who runs a job. In the native form an empty name is the same as none.
_NATIVE = ("managed_by",)
_MANAGERS = (("runPolicy", "managedBy"), ("managedBy",), _NATIVE)
# What a controller is called that a manifest names with an empty text.
NAMELESS = "another controller, because managedBy is empty"


def trimming(resource: Resource) -> Callable[[dict[str, Any]], Document]:
    """Objects as they were written, whatever version the API server shows them in."""

    def trim(document: dict[str, Any]) -> Document:
        version = written_version(document, resource)
        return {**document, "apiVersion": version, "kind": resource.kind}

    return trim


def written_version(document: Document, resource: Resource) -> str:
    """The version that whoever made the object wrote it in, as far as it can be known.

    An API server shows any object in any version without converting it. What kubectl applied last,
    and who was first to own a field of the spec, still say what it was.
    """
    for version in (*_applied_versions(document, resource), *_owners_versions(document)):
        if resource.form(version) is not None:
            return version
    shown = str(document.get("apiVersion", ""))
    return shown if resource.form(shown) is not None else resource.forms[0].version


def _applied_versions(document: Document, resource: Resource) -> Iterable[str]:
    text = (document["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return ()
    try:
        applied = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(applied, dict) or applied.get("kind") != resource.kind:
        return ()
    return (str(applied.get("apiVersion", "")),)


def _owners_versions(document: Document) -> Iterable[str]:
    owners = document["metadata"].get("managedFields") or ()
    spoken = [each for each in owners if "f:spec" in (each.get("fieldsV1") or {})]
    return [str(each.get("apiVersion", "")) for each in sorted(spoken, key=_time_of)]


def _time_of(owner: Mapping[str, Any]) -> str:
    return str(owner.get("time", ""))


def left_to(document: Document, leave: Collection[str] = ()) -> str:
    """Who else runs this job, or has it in a queue that we were asked to leave alone; or nobody."""
    spec = document.get("spec")
    for path in _MANAGERS:
        found: Any = spec
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        if path == _NATIVE and found == "":
            continue
        if isinstance(found, str) and found != TRAINER and is_external(found):
            return found or NAMELESS
    metadata = document["metadata"]
    said = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for scheduler in sorted(leave):
        if any(mark in said for mark in QUEUE_MARKS.get(scheduler, ())):
            return scheduler
    return ""


def read(document: Document) -> Submission:
    """The job that a resource asks for, marked as that resource's; raises Rejected."""
    metadata = {
        name: document["metadata"][name] for name in METADATA if name in document["metadata"]
    }
    annotations = {**(metadata.get("annotations") or {})}
    annotations.pop(LAST_APPLIED, None)
    manifest = {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {**metadata, "annotations": annotations},
    }
    if "spec" in document:
        manifest["spec"] = document["spec"]
    found = read_manifest(manifest)
    uid = str(document["metadata"]["uid"])
    marked = {**found.spec.annotations, RESOURCE: uid}
    return replace(found, spec=replace(found.spec, annotations=marked))
