"""Manifests as a person would write them, from the scenarios' shorthand."""

from collections.abc import Mapping
from typing import Any

from controlplane.kinds.kind import Form, Kind, Submission
from controlplane.kinds.manifest.structure import fitted
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.registry import kinds, read_manifest
from controlplane.model.errors import Rejected

# Where each kind keeps its replica specs, and the container that its framework runs in.
FIELDS = {
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle"),
    "JAXJob": ("jaxReplicaSpecs", "jax"),
    "MXJob": ("mxReplicaSpecs", "mxnet"),
    "MPIJob": ("mpiReplicaSpecs", "mpi"),
}
# Gang scheduling is off in the scenarios: single ranks start again, as the operators do it.
RANK_SCOPE = {"muster.dev/restart-scope": "rank"}
GPUS = {"limits": {"nvidia.com/gpu": 1}}


def kind_named(name: str) -> Kind:
    return next(kind for kind in kinds() if kind.name == name)


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.com/train:1", "resources": GPUS, **more}


def replica(kind: str, given: Mapping[str, Any] | None = None, **template: Any) -> dict[str, Any]:
    """A replica spec; `given` is its content besides the template, more is put in the container."""
    spec = {"containers": [container(FIELDS[kind][1], **template)]}
    return {**(given or {}), "template": {"spec": spec}}


def job(
    kind: str,
    roles: Mapping[str, Any],
    *,
    version: str = "kubeflow.org/v1",
    name: str = "job",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    field, _ = FIELDS[kind]
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {**RANK_SCOPE, **(annotations or {})},
        },
        "spec": {field: dict(roles), **spec},
    }


def read_form(form: Form, document: Mapping[str, Any], findings: Findings) -> Submission:
    """A manifest as one form of a kind reads it, whatever else is wrong with it."""
    manifest = fitted(document, form.manifest, findings)
    assert manifest is not None, findings.problems
    return form.read(manifest, findings)


def understood(document: Mapping[str, Any]) -> Submission:
    """The manifest as the control plane takes it; a refusal fails the test with its words."""
    try:
        return read_manifest(document)
    except Rejected as refusal:
        raise AssertionError(f"refused: {refusal.message}") from refusal
