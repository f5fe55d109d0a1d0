"""Scenarios of MPIJobs: hostfiles, launchers and workers as documents."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from adapters.kubernetes.reconcile.plan import Ref, plan
from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.site import Site
from controlplane.kinds.kubeflow.kubeflow import JOB_NAME
from controlplane.kinds.registry import read_manifest
from controlplane.model.errors import Rejected
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.expecting import require_known, require_word
from tests.conformance.kubeflow.shorthand import (
    SIDECAR,
    compare_env,
    env_of,
    lacks,
    rendering,
)

Scenario = Mapping[str, Any]
V2 = "kubeflow.org/v2beta1"
# Fields of the spec, by the scenarios' shorter names for them.
FIELDS = {
    "impl": "mpiImplementation",
    "slots": "slotsPerWorker",
    "slotsPerWorker": "slotsPerWorker",
    "sshAuthMountPath": "sshAuthMountPath",
    "runLauncherAsWorker": "runLauncherAsWorker",
    "launcherCreationPolicy": "launcherCreationPolicy",
}
POLICIES = {
    "ttl": "ttlSecondsAfterFinished",
    "ttlSecondsAfterFinished": "ttlSecondsAfterFinished",
    "deadline": "activeDeadlineSeconds",
    "activeDeadlineSeconds": "activeDeadlineSeconds",
    "backoffLimit": "backoffLimit",
    "suspend": "suspend",
    "cleanPodPolicy": "cleanPodPolicy",
    "managedBy": "managedBy",
}


def document_of(version: str, given: Mapping[str, Any], workers: int = 1) -> dict[str, Any]:
    """An MPIJob with a launcher and the scenario's workers."""
    namespace, _, name = given.get("job", "default/job").rpartition("/")
    name = given.get("job_name", name)
    container: dict[str, Any] = {"name": "mpi", "image": "example.com/mpi:1"}
    launcher_container = dict(container)
    if "launcher_env" in given:
        launcher_container["env"] = [
            {"name": key, "value": value} for key, value in given["launcher_env"].items()
        ]
    limit = given.get("launcher_limit", "nvidia.com/gpu" if given.get("gpu_launcher") else "")
    if limit:
        launcher_container["resources"] = {"limits": {limit: 1}}
    pod = {"hostNetwork": True} if given.get("hostNetwork") else {}
    account = given.get("launcher_serviceAccountName", "").split()
    launcher = {**pod, **({"serviceAccountName": account[0]} if account else {})}
    roles = {"Launcher": _replica(1, launcher_container, launcher, given, "launcher")}
    count = given.get("workers", workers)
    if count:
        roles["Worker"] = _replica(count, container, pod, given, "worker")
    if "cleanPodPolicy" in given:
        # As in `None (default)`.
        given = {**given, "cleanPodPolicy": given["cleanPodPolicy"].split()[0]}
    policy = {
        field: given[key]
        for key, field in POLICIES.items()
        if isinstance(given.get(key), str | int | bool)
    }
    fields = {field: given[key] for key, field in FIELDS.items() if key in given}
    return manifests.job(
        "MPIJob",
        roles,
        version=version,
        name=name,
        namespace=namespace or "default",
        runPolicy=policy,
        **fields,
    )


def _replica(
    count: int,
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    given: Mapping[str, Any],
    role: str,
) -> dict[str, Any]:
    spec = {**pod, "containers": [container, SIDECAR]}
    document: dict[str, Any] = {"replicas": count, "template": {"spec": spec}}
    if f"{role}_restartPolicy" in given:
        document["restartPolicy"] = given[f"{role}_restartPolicy"]
    return document


def rendered(scenario: Scenario, **more: Any) -> Rendering:
    given = {**scenario["given"], **more}
    site = Site(domain=given.get("cluster_domain", ""))
    return rendering(document_of(scenario["api"], given), site)


# ---------------------------------------------------------------------- who takes part


def hostfile(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("hostfile", "node_pods"))
    assert data(rendered(scenario))["hostfile"] == scenario["expect"]["hostfile"]


def discover_hosts(scenario: Scenario) -> None:
    require_known(scenario["expect"], ("script",))
    running = scenario["given"]["running"]
    rendering = rendered(scenario, workers=max([*running, 0]) + 1)
    first = rendering.job.spec.ranks_of("Worker").start
    script = data(rendering, [first + index for index in running])["discover_hosts.sh"]
    assert script == scenario["expect"]["script"]


def data(rendering: Rendering, running: list[int] | None = None) -> Mapping[str, str]:
    maps = rendering.config_maps(running or [])
    return {name: text for each in maps for name, text in each["data"].items()}


def gpu_launcher(scenario: Scenario) -> None:
    """A launcher with a GPU is a host like the others, and may see its GPU."""
    rendering = rendered(scenario)
    is_host = data(rendering)["hostfile"].startswith("job-launcher ")
    is_blank = "NVIDIA_VISIBLE_DEVICES" in env_of(rendering.pod(0)["spec"]["containers"][0])
    assert (is_host, is_blank) == ((True, False) if _expected(scenario) else (False, True))


def _expected(scenario: Scenario) -> bool:
    require_known(scenario["expect"], ("gpu_launcher",))
    expected: bool = scenario["expect"]["gpu_launcher"]
    return expected


# ---------------------------------------------------------------------- documents


def build_launcher(scenario: Scenario) -> None:
    rendering = rendered(scenario)
    pod = rendering.pod(rendering.job.spec.ranks_of("Launcher")[0])
    _compare(scenario["expect"], rendering, pod)


def build_worker(scenario: Scenario) -> None:
    rendering = rendered(scenario)
    index = int(scenario["given"].get("pod", "worker-0").rpartition("-")[2])
    pod = rendering.pod(rendering.job.spec.ranks_of("Worker")[index])
    _compare(scenario["expect"], rendering, pod)


def _compare(expect: Mapping[str, Any], rendering: Rendering, pod: dict[str, Any]) -> None:
    require_known(expect, CHECKS)
    for name, value in expect.items():
        CHECKS[name](value, rendering, pod)


def _speaker(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    container: Mapping[str, Any] = pod["spec"]["containers"][0]
    return container


def _mounts(theirs: Mapping[str, str], rendering: Rendering, pod: Mapping[str, Any]) -> None:
    ours = {each["name"]: each["mountPath"] for each in _speaker(pod)["volumeMounts"]}
    assert ours == theirs
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    assert volumes == set(theirs)


def _secret_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    secrets = [each["secret"] for each in pod["spec"]["volumes"] if "secret" in each]
    assert len(secrets) == 1, secrets
    secret: Mapping[str, Any] = secrets[0]
    return secret


def _mode(secret: Mapping[str, Any]) -> str | None:
    mode = secret.get("defaultMode")
    return None if mode is None else f"{mode:04o}"


def _secret(theirs: Mapping[str, str], rendering: Rendering, pod: Mapping[str, Any]) -> None:
    secret = _secret_of(pod)
    assert {"name": secret["secretName"], "mode": _mode(secret)} == theirs
    assert rendering.secrets() == [theirs["name"]]


def _launcher_job(theirs: Mapping[str, Any], rendering: Rendering, pod: dict[str, Any]) -> None:
    """There is no batch Job around our launcher; what it would do for it, the control plane does."""
    spec = rendering.job.spec
    ours = {
        "ttlSecondsAfterFinished": spec.ttl_s,
        "activeDeadlineSeconds": spec.active_deadline_s,
        "backoffLimit": spec.restart.limit,
    }
    require_known(theirs, (*ours, "podReplacementPolicy", "labels"))
    for name in ours.keys() & theirs.keys():
        assert ours[name] == theirs[name], name
    if "podReplacementPolicy" in theirs:
        require_word("podReplacementPolicy", theirs["podReplacementPolicy"], ("Failed",))
        _replaced_only_when_gone(rendering, pod)
    if "labels" in theirs:
        # Ours has no Job to label; what stands there is the job's name, which its pods carry.
        assert theirs["labels"] == {"app": pod["metadata"]["labels"][JOB_NAME]}


def _replaced_only_when_gone(rendering: Rendering, pod: dict[str, Any]) -> None:
    labels = {**pod["metadata"]["labels"], "muster.dev/incarnation": "-1"}
    going = {**pod["metadata"], "labels": labels, "deletionTimestamp": "1970-01-01T00:00:00Z"}
    name = pod["metadata"]["name"]
    observed = {Ref("Pod", name): {**pod, "metadata": going, "status": {"phase": "Running"}}}
    made = plan(rendering, observed, lambda: ("", "")).create
    assert name not in [each["metadata"]["name"] for each in made if each["kind"] == "Pod"]


def _first_only(theirs: str, rendering: Rendering, pod: Mapping[str, Any]) -> None:
    assert theirs == "first only"
    first, *others = pod["spec"]["containers"]
    assert env_of(first)
    assert not any(env_of(each) or each.get("volumeMounts") for each in others)


def _labels(theirs: Mapping[str, str], rendering: Rendering, pod: Mapping[str, Any]) -> None:
    assert theirs.items() <= pod["metadata"]["labels"].items(), pod["metadata"]["labels"]


def _spec_field(name: str) -> Callable[[Any, Rendering, Mapping[str, Any]], None]:
    def check(theirs: Any, rendering: Rendering, pod: Mapping[str, Any]) -> None:
        assert pod["spec"].get(name) == theirs, name

    return check


def _is(theirs: object, ours: object) -> None:
    assert ours == theirs


CHECKS: dict[str, Callable[[Any, Rendering, Any], None]] = {
    "env": lambda theirs, _, pod: compare_env(_speaker(pod), theirs),
    "env_contains": lambda theirs, _, pod: compare_env(_speaker(pod), theirs),
    "env_absent": lambda theirs, _, pod: lacks(_speaker(pod), theirs),
    "hostname": _spec_field("hostname"),
    "subdomain": _spec_field("subdomain"),
    "restartPolicy": _spec_field("restartPolicy"),
    "dnsPolicy": _spec_field("dnsPolicy"),
    "dns_searches": lambda theirs, _, pod: _is(theirs, pod["spec"]["dnsConfig"]["searches"]),
    "command": lambda theirs, _, pod: _is(theirs, _speaker(pod).get("command")),
    "mounts": _mounts,
    "secret": _secret,
    "secret_mode": lambda theirs, _, pod: _is(theirs, _mode(_secret_of(pod))),
    "job": _launcher_job,
    "pod_labels": _labels,
    "labels": _labels,
    "injected_container": _first_only,
}


# ---------------------------------------------------------------------- v1alpha1


def old_workers(scenario: Scenario) -> None:
    """Workers and slots from a number of GPUs, or from replicas with a GPU limit."""
    given, expect = scenario["given"], scenario["expect"]
    require_known(expect, ("workers", "slots", "hostfile", "error"))
    if "error" in expect:
        with pytest.raises(Rejected):
            read_manifest(document_of_2018(given))
        return
    rendering = rendering_of_2018(given)
    spec = rendering.job.spec
    text = data(rendering)["hostfile"]
    if "workers" in expect:
        assert len(spec.ranks_of("Worker")) == expect["workers"]
    if "slots" in expect:
        assert re.findall(r"slots=(\d+)", text) == [str(expect["slots"])] * expect["workers"]
    if "hostfile" in expect:
        assert text == expect["hostfile"]


def rendering_of_2018(given: Mapping[str, Any]) -> Rendering:
    return rendering(document_of_2018(given))


def document_of_2018(given: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "mpi", "image": "x"}
    if "gpu_limit" in given:
        container["resources"] = {"limits": {"nvidia.com/gpu": given["gpu_limit"]}}
    names = ("replicas", "gpus", "gpusPerNode", "processingUnits", "processingUnitsPerNode")
    more = ("processingResourceType", "slotsPerWorker", "launcherOnMaster", "backoffLimit")
    spec = {name: given[name] for name in (*names, *more) if name in given}
    return {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {"name": given.get("job_name", "j"), "annotations": manifests.RANK_SCOPE},
        "spec": {**spec, "template": {"spec": {"containers": [container]}}},
    }


READERS: dict[str, Callable[[Scenario], None]] = {
    "hostfile": hostfile,
    "discover_hosts.sh": discover_hosts,
    "GPU launcher": gpu_launcher,
    "build launcher": build_launcher,
    "build worker": build_worker,
    "MPIJob workers": old_workers,
}
