"""Manifests for tests, as small as they may be."""

import copy
from typing import Any

V1 = "kubeflow.org/v1"


def replica(
    replicas: int | None = 1, gpus: int = 0, name: str = "tensorflow", **more: Any
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": "example/train:1",
        "command": ["python", "train.py"],
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    found: dict[str, Any] = {"template": {"spec": {"containers": [container]}}, **more}
    return found if replicas is None else {"replicas": replicas, **found}


def manifest(kind: str, spec: dict[str, Any], version: str = V1, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "team", **metadata},
        "spec": spec,
    }


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of the document with another value at a path."""
    document = copy.deepcopy(document)
    *parents, last = path
    inner: Any = document
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return document


def tfjob(version: str = V1, **roles: Any) -> dict[str, Any]:
    return manifest("TFJob", {"tfReplicaSpecs": roles}, version)


def pytorchjob(version: str = V1, **roles: Any) -> dict[str, Any]:
    return manifest("PyTorchJob", {"pytorchReplicaSpecs": roles}, version)


def torch(replicas: int | None = 1, gpus: int = 0, **more: Any) -> dict[str, Any]:
    return replica(replicas, gpus, name="pytorch", **more)
