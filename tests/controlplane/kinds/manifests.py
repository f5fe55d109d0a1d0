"""Manifests for tests, as small as they may be, and what is made of them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.kinds.kind import GangContext, RankEnvironment
from controlplane.kinds.registry import kind_of, read_manifest
from controlplane.model.addresses import ServiceNames
from controlplane.model.errors import Rejected

V1 = "kubeflow.org/v1"
V1ALPHA1 = "kubeflow.org/v1alpha1"


def template(name: str, gpus: int = 0, **more: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": "example/train:1",
        "command": ["python", "train.py"],
        **more,
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"spec": {"containers": [container]}}


def replica(
    replicas: int | None = 1, gpus: int = 0, name: str = "tensorflow", **more: Any
) -> dict[str, Any]:
    document: dict[str, Any] = {"template": template(name, gpus), **more}
    return document if replicas is None else {"replicas": replicas, **document}


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


def torch(replicas: int | None = 1, gpus: int = 0, **more: Any) -> dict[str, Any]:
    return replica(replicas, gpus, name="pytorch", **more)


def environments_of(document: dict[str, Any], domain: str = "") -> Callable[[int], RankEnvironment]:
    """The environment of each rank of a manifest, by rank."""
    job = read_manifest(document)
    gang = GangContext(job.namespace, job.name, job.spec, ServiceNames(domain))
    return kind_of(job.spec).environments(gang)


def problems(document: object) -> list[tuple[str, str]]:
    """The sorts and fields of all that is wrong with a manifest."""
    with pytest.raises(Rejected) as refusal:
        read_manifest(document)
    assert refusal.value.code == "invalid_manifest", refusal.value
    return [(problem.sort, problem.field) for problem in refusal.value.problems]
