"""The custom resource definitions of the kinds, generated from the types of their manifests. Pure.

All versions of a kind are served. The API server does not convert between them and only changes
`apiVersion`, so every version keeps the fields of the others; `parse.written_version` finds the
version in which an object was written.
"""

from typing import Any, NamedTuple

from adapters.kubernetes.operator.resource import JobResource, resources, version_of
from adapters.kubernetes.operator.schemas import ANYTHING, schema_of
from controlplane.kinds.kind import Form

SHORT_NAMES = {
    "Job": "mj",
    "TFJob": "tfj",
    "PyTorchJob": "ptj",
    "MPIJob": "mpij",
    "MXJob": "mxj",
    "XGBoostJob": "xgbj",
    "PaddleJob": "pdj",
    "JAXJob": "jaxj",
    "TrainJob": "tj",
    "HostfileJob": "hfj",
}
# The field with the replicas that `kubectl scale` and autoscalers change, for the kinds for which
# Kubeflow supports it.
SCALED = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
SCALED_ROLE = "Worker"
CATEGORIES = ("all", "muster")


class Column(NamedTuple):
    """A column that `kubectl get` prints; `path` is its JSONPath."""

    name: str
    path: str
    type: str = "string"
    # Shown only with -o wide.
    wide: bool = False

    def written(self) -> dict[str, Any]:
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**column, "priority": 1} if self.wide else column


COLUMNS = (
    Column("State", ".status.muster.state"),
    Column("Ready", ".status.muster.ready"),
    Column("Restarts", ".status.muster.restarts", "integer"),
    Column("Queue", ".status.muster.queue", wide=True),
    Column("GPUs", ".status.muster.gpus", "integer", wide=True),
    Column("Message", ".status.muster.message", wide=True),
    Column("Age", ".metadata.creationTimestamp", "date"),
)

_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer"}
_CONDITION: dict[str, Any] = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": _TEXT,
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": _TEXT,
        "message": _TEXT,
        "lastUpdateTime": {"type": "string", "format": "date-time"},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
    },
    **ANYTHING,
}
# Muster's own part of the status, in addition to that of the Kubeflow operators; see `status.py`.
_MUSTER: dict[str, Any] = {
    "description": "The job as Muster has it, in its own words.",
    "type": "object",
    "properties": {
        "state": _TEXT,
        "ready": _TEXT,
        "restarts": _COUNT,
        "queue": _TEXT,
        "gpus": _COUNT,
        "message": _TEXT,
        "notApplied": _TEXT,
        "observedGeneration": _COUNT,
        "position": _COUNT,
    },
    **ANYTHING,
}
# `replicaStatuses` was a list in the versions of 2018, so its type is left open.
STATUS: dict[str, Any] = {
    "description": "What became of the job; only Muster writes it.",
    "type": "object",
    "properties": {
        "conditions": {"type": "array", "items": _CONDITION},
        "replicaStatuses": dict(ANYTHING),
        "startTime": {"type": "string", "format": "date-time"},
        "completionTime": {"type": "string", "format": "date-time"},
        "muster": _MUSTER,
    },
    **ANYTHING,
}


def definitions() -> list[dict[str, Any]]:
    """Return the definition of each resource, in the order of the kinds."""
    return [definition(each) for each in resources()]


def definition(resource: JobResource) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one resource."""
    kind = resource.kind
    names: dict[str, Any] = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": resource.plural,
        "singular": kind.lower(),
        "categories": list(CATEGORIES),
    }
    if short := SHORT_NAMES.get(kind):
        names["shortNames"] = [short]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": resource.name,
            "labels": {"app.kubernetes.io/part-of": "muster"},
        },
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced",
            "conversion": {"strategy": "None"},
            "versions": [
                _version(kind, form, form is resource.forms[0]) for form in resource.forms
            ],
        },
    }


def _version(kind: str, form: Form, is_stored: bool) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if kind in SCALED and is_stored:
        subresources["scale"] = _scale(SCALED[kind])
    return {
        "name": version_of(form),
        "served": True,
        "storage": is_stored,
        "subresources": subresources,
        "additionalPrinterColumns": [column.written() for column in COLUMNS],
        "schema": {"openAPIV3Schema": _whole(kind, form)},
    }


def _scale(field: str) -> dict[str, str]:
    counts = f".status.replicaStatuses.{SCALED_ROLE}"
    return {
        "specReplicasPath": f".spec.{field}.{SCALED_ROLE}.replicas",
        "statusReplicasPath": f"{counts}.active",
        "labelSelectorPath": f"{counts}.selector",
    }


def _whole(kind: str, form: Form) -> dict[str, Any]:
    return {
        "description": f"{kind}, a distributed training job that Muster runs.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {"type": "object"},
            "spec": schema_of(form.manifest, "spec"),
            "status": STATUS,
        },
    }
