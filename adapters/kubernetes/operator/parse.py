"""A custom resource to a submission: its version, its controller, and its job. Pure."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator.resource import JobResource
from adapters.kubernetes.render.ownership import RESOURCE
from controlplane.kinds.kind import Submission
from controlplane.kinds.manifest.annotations import ARRAY
from controlplane.kinds.manifest.checking import is_external
from controlplane.kinds.registry import read_manifest
from controlplane.kinds.trainer.trainer import OURS as TRAINER
from controlplane.model.errors import Rejected

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# The metadata of an object that is part of the job; the rest belongs to the cluster.
METADATA = ("name", "namespace", "labels", "annotations")
# The labels and annotations that put a job into the queue of another scheduler.
QUEUE_MARKS = {
    "kueue": ("kueue.x-k8s.io/queue-name",),
    "volcano": ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"),
}
# The fields that name the controller of a job. In the native form "" means none.
_NATIVE = ("managed_by",)
_MANAGERS = (("runPolicy", "managedBy"), ("managedBy",), _NATIVE)
# The name of the controller where a manifest other than the native one has an empty `managedBy`.
NAMELESS = "another controller, because managedBy is empty"


def trimming(resource: JobResource) -> Callable[[dict[str, Any]], Document]:
    """Return the function that sets kind and `apiVersion` of an object to those it was written in.

    The API server returns every object in the version that is watched.
    """

    def trim(document: dict[str, Any]) -> Document:
        version = written_version(document, resource)
        return {**document, "apiVersion": version, "kind": resource.kind}

    return trim


def written_version(document: Document, resource: JobResource) -> str:
    """Return the version in which the object was created, as far as it can be determined.

    An API server returns any object in any version without converting it. The annotation of
    `kubectl apply` and the first owner of a field of the spec (`managedFields`) still show the
    original version. If neither does, the version in which the object was returned counts, and if
    Muster does not know that one, the storage version.
    """
    for version in (*_applied_versions(document, resource), *_owners_versions(document)):
        if resource.form(version) is not None:
            return version
    shown = str(document.get("apiVersion", ""))
    return shown if resource.form(shown) is not None else resource.forms[0].version


def _applied_versions(document: Document, resource: JobResource) -> Iterable[str]:
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
    """Return the other controller or scheduler that runs this job; "" if Muster runs it.

    `leave` are the schedulers whose queued jobs are left alone: keys of `QUEUE_MARKS`.
    """
    spec = document.get("spec")
    for path in _MANAGERS:
        manager: Any = spec
        for part in path:
            manager = manager.get(part) if isinstance(manager, Mapping) else None
        if path == _NATIVE and manager == "":
            continue
        if isinstance(manager, str) and manager != TRAINER and is_external(manager):
            return manager or NAMELESS
    metadata = document["metadata"]
    marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    for scheduler in sorted(leave):
        if any(mark in marks for mark in QUEUE_MARKS.get(scheduler, ())):
            return scheduler
    return ""


def read(document: Document) -> Submission:
    """Return the submission of a resource, annotated with its uid; raise Rejected if invalid."""
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
    submission = read_manifest(manifest)
    if submission.spec.array:
        raise Rejected(
            "invalid_manifest",
            "a resource of the cluster is one job and cannot be an array: submit the manifest to "
            "Muster itself, with muster submit or POST /v1/jobs",
            field=f"metadata.annotations[{ARRAY}]",
        )
    uid = str(document["metadata"]["uid"])
    marked = {**submission.spec.annotations, RESOURCE: uid}
    return replace(submission, spec=replace(submission.spec, annotations=marked))
