"""Scenarios at the door: what is refused, with which path, and what is warned of."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from adapters.kubernetes.operator.parse import left_to
from adapters.kubernetes.operator.spec_changes import edits
from controlplane.kinds.kind import Submission
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.registry import read_manifest
from controlplane.model.errors import Rejected
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.expecting import require_known, require_word
from tests.conformance.kubeflow.shorthand import ROLES, placed

Scenario = Mapping[str, Any]
POLICY_FIELDS = (
    "managedBy",
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
)
SPEC_FIELDS = ("elasticPolicy", "nprocPerNode", "mpiImplementation", "slotsPerWorker")
# A role that a kind cannot do without, so that only what a scenario speaks of is wrong.
NEEDED = {
    ("MPIJob", "kubeflow.org/v1"): {"Launcher": 1},
    ("MPIJob", "kubeflow.org/v2beta1"): {"Launcher": 1},
    ("XGBoostJob", "kubeflow.org/v1"): {"Master": 1},
}


# ---------------------------------------------------------------------- refusals


def admission_create(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("errors", "warnings", "event_reason", "requeued"))
    document = document_of(scenario["kind"], scenario["api"], given)
    problems, warnings = verdict(document)
    if "recommended" in scenario:
        _as_recommended(scenario["recommended"], problems)
        return
    _compare(expect["errors"], problems)
    refused_for_good(scenario)
    if "warnings" in expect:
        assert len(warnings) == expect["warnings"], (warnings, problems)


# The events of the operators for a manifest that they refuse while they work on it.
REFUSALS = {"kubeflow.org/v2beta1": "ValidationError", "kubeflow.org/v1": "MPIJobFailedValidation"}


def refused_for_good(scenario: Scenario) -> None:
    """The event and the further tries of a refusal: ours is an answer, and nothing tries again."""
    expect = scenario["expect"]
    if "event_reason" in expect:
        require_word("event reason", expect["event_reason"], (REFUSALS[scenario["api"]],))
    if "requeued" in expect:
        assert expect["requeued"] is False, "what is refused is not tried again"


def verdict(document: Mapping[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """What is wrong with a manifest, and what its author is warned of."""
    try:
        return [], read_manifest(document).warnings
    except Rejected as refusal:
        problems = list(refusal.problems)
    assert problems, "a refusal without a field"
    return problems, tuple(_warnings(document))


def _warnings(document: Mapping[str, Any]) -> list[str]:
    """The warnings besides problems, which only the reader of the form has."""
    findings = Findings()
    read_form(document, findings)
    return findings.warnings


def _compare(expected: list[Mapping[str, str]], problems: list[Any]) -> None:
    if any(each["type"] == "error" for each in expected):
        assert len(expected) == 1, expected
        _require_words(expected[0]["field"], problems)
        return
    theirs = sorted((each["type"], each["field"]) for each in expected)
    assert sorted((each.sort, each.field) for each in problems) == theirs, problems


def _require_words(prose: str, problems: list[Any]) -> None:
    """An operator without a webhook only logs a sentence; ours must name the same thing."""
    assert problems, f"accepted, though {prose}"
    text = " ".join(f"{each.sort} {each.field} {each.message}" for each in problems).lower()
    words = [SYNONYMS.get(word, word) for word in re.findall(r"[a-z]+", prose.lower())]
    words = [word for word in words if word not in SMALL_WORDS]
    missing = [word for word in words if not re.search(word, text)]
    assert not missing, f"{missing} of {words} are not in: {text}"


_ABSENT = "required|needed|not there"
_WRONG = "invalid|notsupported|not one of|no such|no role"
# Our words for what upstream expresses in other words.
SYNONYMS = {
    **dict.fromkeys(("missing", "nil", "empty", "present", "exist", "exists", "given"), _ABSENT),
    **dict.fromkeys(("unknown", "invalid", "unsupported", "valid", "known"), _WRONG),
    "named": "name",
    "error": "",
    "replica": "replicas|there is one",
    "needs": "needed|required",
    "entry": "replicaspecs",
    "type": "replicatype|role|decides",
    "chief": "chief|decides",
    "framework": "container",
}
# Words that do not identify the problem.
SMALL_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "be",
        "exactly",
        "has",
        "have",
        "is",
        "must",
        "no",
        "not",
        "of",
        "or",
        "the",
        "to",
        "with",
    ]
)


def _as_recommended(recommended: str, problems: list[Any]) -> None:
    sorts = {each.sort for each in problems}
    if "NotSupported" in recommended:
        assert sorts == {"NotSupported"}, problems
    elif "immutable" in recommended:
        assert sorts == {"Invalid"}, problems
    else:
        raise AssertionError(f"there is no reader for the recommendation {recommended!r}")


def document_of(kind: str, version: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest that is right in everything that the scenario does not speak of."""
    roles = {**needed(kind, version, given), **_roles(kind, given)}
    policy = {name: given[name] for name in POLICY_FIELDS if name in given}
    fields = {name: _text(given[name]) for name in SPEC_FIELDS if name in given}
    document = manifests.job(
        kind, roles, version=version, name=given.get("name", "test"), runPolicy=policy, **fields
    )
    key = manifests.FIELDS[kind][0]
    if key in given:
        document["spec"][key] = given[key]
    if given.get("spec") in ({}, "empty"):
        document["spec"] = {}
    for name, value in given.items():
        role = ROLES.get(name.removesuffix("_restartPolicy"))
        if name.endswith("_restartPolicy") and role in document["spec"].get(key, {}):
            document["spec"][key][role]["restartPolicy"] = value
    return document


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) else value


def needed(kind: str, version: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if "roles" in given:
        return {}
    needed = NEEDED.get((kind, version), {} if _roles(kind, given) else {"Worker": 1})
    if kind == "XGBoostJob" and "worker" in given and "master" not in given:
        needed = {}
    return {role: manifests.replica(kind, {"replicas": count}) for role, count in needed.items()}


def _roles(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    roles = {role: manifests.replica(kind, {"replicas": 1}) for role in given.get("roles", ())}
    for key, role in ROLES.items():
        if key in given:
            roles[role] = _replica(kind, given[key])
        if f"{key}_replicas" in given:
            roles[role] = manifests.replica(kind, {"replicas": given[f"{key}_replicas"]})
    return roles


def _replica(kind: str, given: Any) -> dict[str, Any]:
    """A count; or a container, its image, or a list of containers."""
    if isinstance(given, int):
        return manifests.replica(kind, {"replicas": given})
    replica = manifests.replica(kind, {"replicas": 1})
    pod = replica["template"]["spec"]
    if "containers" in given:
        pod["containers"] = [manifests.container(**each) for each in given["containers"]]
        return replica
    changes = {"name": given.get("container", pod["containers"][0]["name"])}
    if "image" in given:
        changes["image"] = given["image"]
    pod["containers"] = [{**pod["containers"][0], **changes}]
    return replica


# ---------------------------------------------------------------------- changes


# How a webhook and a rule of the CRD call a change of an immutable field.
IMMUTABLE = ("Invalid", "CEL immutable")


def admission_update(scenario: Scenario) -> None:
    """A webhook would refuse the change; the operator ignores it and reports the field."""
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("errors",))
    old, new = (_with_policy(scenario["kind"], given[when]) for when in ("old", "new"))
    in_vain = list(edits(placed(old), new, generation=2).in_vain)
    if "recommended" in scenario:
        assert "immutable" in scenario["recommended"], scenario["recommended"]
        assert in_vain
    for each in expect["errors"]:
        require_word("error type", each["type"], IMMUTABLE)
    assert in_vain == [each["field"] for each in expect["errors"]]


def _with_policy(kind: str, given: Mapping[str, Any]) -> Submission:
    policy = {name: value for name, value in given.items() if name in POLICY_FIELDS}
    if "queue" in given:
        policy["schedulingPolicy"] = {"queue": given["queue"]}
    require_known(given, (*POLICY_FIELDS, "queue"))
    roles = {**needed(kind, "kubeflow.org/v1", {}), "Worker": manifests.replica(kind)}
    return manifests.understood(manifests.job(kind, roles, runPolicy=policy))


def is_external(scenario: Scenario) -> None:
    """A controller that is not on our list of names runs a job itself, even one that we refuse."""
    require_known(scenario["expect"], ("external",))
    managed_by = scenario["given"]["managedBy"]
    assert checking.is_external(managed_by) == scenario["expect"]["external"]
    # The operator leaves such an object alone, whether or not it could be read.
    policy = {} if managed_by is None else {"managedBy": managed_by}
    document = manifests.job("TFJob", {"Worker": manifests.replica("TFJob")}, runPolicy=policy)
    assert bool(left_to(document)) == scenario["expect"]["external"]


def read_form(document: Mapping[str, Any], findings: Findings) -> tuple[Any, Submission]:
    """A manifest as its form reads it, whatever else is wrong with it."""
    kind = manifests.kind_named(document["kind"])
    form = next(form for form in kind.forms if form.version == document["apiVersion"])
    return form, manifests.read_form(form, document, findings)


# ---------------------------------------------------------------------- the list style of 2018

CONTAINERS = {"TFJob": "tensorflow", "PyTorchJob": "pytorch", "MXJob": "mxnet"}


def listed_document(scenario: Scenario) -> dict[str, Any]:
    kind = scenario["kind"]
    entries = []
    for given in scenario["given"]["replicaSpecs"]:
        name = given.get("container", CONTAINERS[kind])
        template = {"spec": {"containers": [{"name": name, "image": "x"}]}}
        own = ("container", "template")
        entry = {key: value for key, value in given.items() if key not in own}
        entries.append({**{k: v for k, v in entry.items() if v is not None}, "template": template})
    metadata = {"name": "test"}
    return {
        "apiVersion": scenario["api"],
        "kind": kind,
        "metadata": metadata,
        "spec": {"replicaSpecs": entries},
    }


def validate(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("error",))
    problems, _ = verdict(listed_document(scenario))
    _require_words(scenario["expect"]["error"], problems)


READERS: dict[str, Callable[[Scenario], None]] = {
    "admission create": admission_create,
    "admission update": admission_update,
    "validate after defaulting": admission_create,
    "validate": validate,
    "is external": is_external,
}
