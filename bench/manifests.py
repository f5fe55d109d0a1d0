"""Reading manifests, also hostile ones, against parsing the same text as JSON.

The promise is that no input takes more than 100 ms for each 100 kB. The baseline is the standard
library's `json.loads` of the same document, which every receiver needs anyway.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from time import process_time
from typing import Any

from controlplane.kinds.registry import read_manifest
from controlplane.model.errors import Rejected

ROUNDS = 9
ROUNDS_QUICK = 3
KB = 100_000
POD = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["python"]}]}}


def tfjob(**roles: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "train"},
        "spec": {"tfReplicaSpecs": roles or {"Worker": {"replicas": 2, "template": POD}}},
    }


def with_labels(value: Any) -> dict[str, Any]:
    job = tfjob()
    job["metadata"]["labels"] = {f"label-{n}": value for n in range(8_000)}
    return {**job, "unknown": 1}


def with_containers() -> dict[str, Any]:
    containers = [{"name": f"c{n}", "image": "i", "env": [{"name": "A"}] * 20} for n in range(400)]
    return tfjob(Worker={"template": {"spec": {"containers": containers}}})


def native(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "train"}
    return {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": metadata, "spec": spec}


DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "a small TFJob": tfjob,
    "a large pod template": lambda: tfjob(
        Worker={"template": {"spec": {**POD["spec"], "volumes": [{"name": "v"}] * 8_000}}}
    ),
    "labels, one unknown field": lambda: with_labels("x"),
    "labels of a wrong type": lambda: with_labels(7),
    "unknown roles": lambda: tfjob(**{f"r{n}": {"template": POD} for n in range(1_500)}),
    "containers of wrong names": with_containers,
    "native roles": lambda: native(roles=[{"name": f"r{n}"} for n in range(10_000)]),
    "unknown fields": lambda: native(roles=[], **{f"f{n}": n for n in range(10_000)}),
    "a list of entries": lambda: {
        **tfjob(),
        "apiVersion": "kubeflow.org/v1alpha1",
        "spec": {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": POD}] * 1_500},
    },
}


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    return [measure(name, make(), rounds) for name, make in DOCUMENTS.items()]


def measure(name: str, document: dict[str, Any], rounds: int) -> dict[str, Any]:
    text = json.dumps(document)
    # A small document is read so often that a clock can see it.
    times = max(1, KB // len(text))
    ours, baseline = [], []
    for _ in range(rounds + 1):
        ours.append(timed(lambda: read(document), times))
        baseline.append(timed(lambda: json.loads(text), times))
    mine, theirs = median(ours[1:]), median(baseline[1:])
    share = KB / (len(text) * times)
    return {
        "name": f"read {name}",
        "value": round(1000 * mine * share, 2),
        "baseline": round(1000 * theirs * share, 2),
        "ratio": round(median(b / a for a, b in zip(ours[1:], baseline[1:], strict=True)), 2),
        "target": None,
        "unit": "ms/100 kB",
        "note": f"{len(text) / 1000:.1f} kB; the promise is 100 ms; baseline: json.loads",
    }


def read(document: dict[str, Any]) -> None:
    with suppress(Rejected):
        read_manifest(document)


def timed(work: Callable[[], object], times: int) -> float:
    began = process_time()
    for _ in range(times):
        work()
    return process_time() - began
