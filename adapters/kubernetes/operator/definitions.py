"""The custom resource definitions of the kinds, made from what their manifests are read with. Pure.

All versions that a kind has are served. The API server does not convert between them, it only
changes the version's name, so every version keeps what the others may hold; which version an object
was written in is found by `reading.written_version`.
"""

from typing import Any, NamedTuple

from adapters.kubernetes.operator.resources import Resource, resources, version_of
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
# Where the replicas are that `kubectl scale` and autoscalers change: the kinds that Kubeflow has it for.
SCALED = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
SCALED_ROLE = "Worker"
CATEGORIES = ("all", "muster")


class Column(NamedTuple):
    name: str
    path: str
    type: str = "string"
    # Shown only with -o wide.
    wide: bool = False

    def written(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**found, "priority": 1} if self.wide else found


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
# What Muster itself says beside the operators' words; see `statuses`.
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
# `replicaStatuses` was a list in the versions of 2018, so nothing is said of its form.
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
    """One for each resource, in the order of the kinds."""
    return [definition(each) for each in resources()]


def definition(resource: Resource) -> dict[str, Any]:
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
