"""Scenarios of defaults, compared where people see them: in the manifest written back."""

from collections.abc import Callable, Mapping
from typing import Any

from controlplane.kinds.manifest.validation import Findings
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.admission import SPEC_FIELDS, listed_document, needed, read_form
from tests.conformance.kubeflow.shorthand import ROLES

Scenario = Mapping[str, Any]


def default(scenario: Scenario) -> None:
    """Defaults are compared where people see them: in the manifest written back."""
    given, kind, version = scenario["given"], scenario["kind"], scenario["api"]
    if "replicaSpecs" in given:
        _listed_defaults(scenario)
        return
    document = _undefaulted(kind, version, given)
    written = written_back(document)
    for name, value in scenario["expect"].items():
        ours = EXPECTED[name](kind, written) if name in EXPECTED else _anywhere(written, name)
        theirs = value
        if isinstance(value, dict):
            ours = {key: ours.get(key) for key in value}
        assert ours == theirs, f"{name}: ours {ours}, theirs {theirs}"


def _undefaulted(kind: str, version: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if "role" in given:
        key = given["role"].split()[0].upper()
        container = {"name": given["container"], "image": "x", "ports": given["ports"]}
        replica = {"template": {"spec": {"containers": [container]}}}
        roles = {key: replica, **needed(kind, version, {})}
        return manifests.job(kind, roles, version=version)
    roles = {
        role: manifests.replica(kind, {"replicas": n} if isinstance(n := given[key], int) else n)
        for key, role in ROLES.items()
        if key in given
    }
    roles = {**needed(kind, version, given), **roles}
    own = (*SPEC_FIELDS, "cleanPodPolicy", "runPolicy")
    fields = {name: given[name] for name in own if given.get(name) is not None}
    return manifests.job(kind, roles, version=version, **fields)


def written_back(document: Mapping[str, Any]) -> dict[str, Any]:
    form, submission = read_form(document, Findings())
    written: dict[str, Any] = form.write(submission)
    return written


def _worker(kind: str, written: Mapping[str, Any]) -> dict[str, Any]:
    replicas = written["spec"][manifests.FIELDS[kind][0]]
    worker: dict[str, Any] = replicas["Worker"]
    return worker


def _added_port(kind: str, written: Mapping[str, Any]) -> list[Any]:
    container = _worker(kind, written)["template"]["spec"]["containers"][0]
    return [[port["name"], port["containerPort"]] for port in container["ports"]][-1]


def _slots(kind: str, written: Mapping[str, Any]) -> int:
    slots: int = written["spec"]["slotsPerWorker"]
    return slots


EXPECTED: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "role": lambda kind, written: next(
        key for key in written["spec"][manifests.FIELDS[kind][0]] if key.lower() == "worker"
    ),
    "replicas": lambda kind, written: _worker(kind, written)["replicas"],
    "restartPolicy": lambda kind, written: _worker(kind, written)["restartPolicy"],
    "added_port": _added_port,
    "launcher": lambda kind, written: written["spec"]["mpiReplicaSpecs"]["Launcher"],
    "worker": lambda kind, written: written["spec"]["mpiReplicaSpecs"]["Worker"],
    "cleanPodPolicy": lambda kind, written: written["spec"]["runPolicy"]["cleanPodPolicy"],
    "slotsPerWorker_when_building_hostfile": _slots,
}


def _anywhere(written: Mapping[str, Any], name: str) -> Any:
    """A field of the spec, or of its elastic policy."""
    spec = written["spec"]
    return spec.get(name, (spec.get("elasticPolicy") or {}).get(name))


def _listed_defaults(scenario: Scenario) -> None:
    spec = written_back(listed_document(scenario))["spec"]
    entry = spec["replicaSpecs"][0]
    for name, theirs in scenario["expect"].items():
        ours = entry.get(name, spec.get(name))
        assert ours == theirs, f"{name}: ours {ours}, theirs {theirs}"


READERS: dict[str, Callable[[Scenario], None]] = {"default": default}
