"""Scenarios of single pods: the environment of their containers, their names, labels and restarts."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.site import Site
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.expecting import require_known, require_word
from tests.conformance.kubeflow.shorthand import (
    compare_env,
    env_of,
    lacks,
    placed,
    ports,
    rank_called,
    rendering,
    roles_of,
)

Scenario = Mapping[str, Any]
ANY_KIND = "TFJob"
# Fields of a spec that a scenario may give as they are.
SPEC_FIELDS = ("nprocPerNode", "elasticPolicy", "enableDynamicWorker", "successPolicy", "jobMode")


def build_pod(scenario: Scenario) -> None:
    given, expect = scenario["given"], scenario["expect"]
    kind = ANY_KIND if scenario["kind"] == "*" else scenario["kind"]
    if "error" in expect:
        require_word("error", expect["error"], ("rank not recognised",))
        _is_an_error(kind, given)
    elif "replica_restartPolicy" in given:
        _restart_policy(kind, given, expect)
    elif "template_labels" in given or "template_annotations" in given:
        _metadata(kind, given, expect)
    else:
        _environment(kind, given, expect)


def _environment(kind: str, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    known = ("env", "env_contains", "container", "containers", "absent", "env_absent")
    require_known(expect, (*known, "labels", "labels_superset", "init_containers"))
    rendered = _rendering(kind, given)
    pod = rendered.pod(rank_called(rendered, given["pod"]))
    speaker, sidecar = pod["spec"]["containers"]
    expected = {**expect.get("env", {}), **expect.get("env_contains", {})}
    compare_env(speaker, expected)
    lacks(speaker, (*expect.get("absent", ()), *expect.get("env_absent", ())))
    if "container" in expect:
        require_word("container", expect["container"], (f"{speaker['name']} only",))
        lacks(sidecar, expected)
    if "containers" in expect:
        require_word("containers", expect["containers"], ("all",))
        compare_env(sidecar, expected)
    labels = {**expect.get("labels", {}), **expect.get("labels_superset", {})}
    assert labels.items() <= pod["metadata"]["labels"].items()
    if "init_containers" in expect:
        ours = [each["name"] for each in pod["spec"].get("initContainers", [])]
        assert ours == expect["init_containers"]


def _rendering(kind: str, given: Mapping[str, Any]) -> Rendering:
    fields = {name: _spelt(given[name]) for name in SPEC_FIELDS if given.get(name) is not None}
    document = manifests.job(
        kind,
        roles_of(kind, given, **ports(kind, given)),
        name=given.get("job_name", "job"),
        namespace=given.get("namespace", "default"),
        **fields,
    )
    return rendering(document, Site(domain=given.get("env_CUSTOM_CLUSTER_DOMAIN", "")))


def _spelt(value: Any) -> Any:
    """A field as a manifest spells it: text for nprocPerNode, key and value for rdzvConf."""
    if isinstance(value, dict):
        policy = dict(value)
        if "rdzvConf" in policy:
            policy["rdzvConf"] = [{"key": key, "value": text} for key, text in policy["rdzvConf"]]
        if isinstance(policy.get("metrics"), str):
            resource = {"name": policy["metrics"], "target": {"type": "Utilization"}}
            policy["metrics"] = [{"type": "Resource", "resource": resource}]
        return policy
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_an_error(kind: str, given: Mapping[str, Any]) -> None:
    """A rank that the gang does not have gets no environment."""
    require_known(given, ("pod_index",))
    rendered = _rendering(kind, {"workers": 1})
    with pytest.raises((IndexError, TypeError, ValueError)):
        rendered.environment(given["pod_index"])
    with pytest.raises(IndexError):
        rendered.environment(1)


def _restart_policy(kind: str, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    require_known(expect, ("pod_restartPolicy", "event_reason"))
    replica = manifests.replica(kind, {"restartPolicy": given["replica_restartPolicy"]})
    asked = given.get("pod_template_restartPolicy")
    if asked:
        replica["template"]["spec"]["restartPolicy"] = asked
    rendered = rendering(manifests.job(kind, {"Worker": replica}))
    assert rendered.pod(0)["spec"]["restartPolicy"] == expect["pod_restartPolicy"]
    reasons = [notice.reason for notice in rendered.notices()]
    assert reasons == ([expect["event_reason"]] if expect.get("event_reason") else [])


def _metadata(kind: str, given: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    require_known(expect, ("labels_superset", "annotations_superset"))
    labels = given.get("template_labels", {})
    operator = "training.kubeflow.org/job-name"
    replica = manifests.replica(kind)
    replica["template"]["metadata"] = {
        "labels": {**labels, operator: "another-operator"},
        "annotations": given.get("template_annotations", {}),
    }
    metadata = rendering(manifests.job(kind, {"Worker": replica})).pod(0)["metadata"]
    assert expect.get("labels_superset", {}).items() <= metadata["labels"].items()
    assert expect.get("annotations_superset", {}).items() <= metadata["annotations"].items()
    assert metadata["labels"][operator] == "job", "the controller's labels win"


def needs_tf_config(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("distributed",))
    rendered = _rendering("TFJob", scenario["given"])
    env = env_of(rendered.pod(0)["spec"]["containers"][0])
    assert ("TF_CONFIG" in env) == scenario["expect"]["distributed"]


def elastic_env(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("env",))
    rendered = _rendering("PyTorchJob", scenario["given"])
    compare_env(rendered.pod(0)["spec"]["containers"][0], scenario["expect"]["env"])


def create_job(scenario: Scenario) -> None:
    """The environment of an elastic job, and how far it may be scaled by others."""
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("env", "hpa"))
    rendered = _rendering(scenario["kind"], given)
    pod = rendered.pod(rank_called(rendered, given["pod"]))
    compare_env(pod["spec"]["containers"][0], expect["env"])
    if "hpa" in expect:
        _autoscaler(rendered, expect["hpa"])


def _autoscaler(rendered: Rendering, expect: Mapping[str, Any]) -> None:
    autoscalers = rendered.autoscalers()
    assert len(autoscalers) == 1, autoscalers
    spec = autoscalers[0]["spec"]
    target = f"{spec['scaleTargetRef']['kind']}/{spec['scaleTargetRef']['name']}"
    ours = {
        "name": autoscalers[0]["metadata"]["name"],
        "minReplicas": spec["minReplicas"],
        "maxReplicas": spec["maxReplicas"],
        "target": target,
    }
    assert ours == expect


def pod_name(scenario: Scenario) -> None:
    given = scenario["given"]
    kind = ANY_KIND if scenario["kind"] == "*" else scenario["kind"]
    role = given["type"].capitalize()
    replica = manifests.replica(kind, {"replicas": given["index"] + 1})
    submission = manifests.understood(manifests.job(kind, {role: replica}))
    # A name with a slash would be refused at the door; names are still made without any.
    renamed = type(submission)("default", given["job_name"], submission.spec)
    rendered = Rendering(placed(renamed), manifests.kind_named(kind))
    assert rendered.names[given["index"]] == scenario["expect"]["name"]


def job_role_label(scenario: Scenario) -> None:
    given, kind = scenario["given"], scenario["kind"]
    replicas = {role: manifests.replica(kind, {"replicas": 1}) for role in given["roles"]}
    replicas[given["type"]] = manifests.replica(kind, {"replicas": given["index"] + 1})
    rendered = rendering(manifests.job(kind, replicas))
    rank = rendered.job.spec.ranks_of(given["type"])[given["index"]]
    label = rendered.pod(rank)["metadata"]["labels"].get("training.kubeflow.org/job-role")
    assert label == scenario["expect"]["label"]


READERS: dict[str, Callable[[Scenario], None]] = {
    "build pod": build_pod,
    "needs TF_CONFIG": needs_tf_config,
    "elastic env": elastic_env,
    "create job": create_job,
    "pod name": pod_name,
    "job-role label": job_role_label,
}
