"""The manifests, the image and the code agree with each other."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from api.app import ROUTES
from cli.server.up import up
from tests.deploy.kustomize import FOLDERS, MANIFESTS, ROOT, of_kind, rendered

OPTIONS = {word for option in up.params for word in option.opts}


def container(folder: str) -> dict[str, Any]:
    (only,) = of_kind(folder, "Deployment")["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_overlay_can_be_rendered_and_names_nothing_twice(folder: str):
    names = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in rendered(folder)]  # fmt: skip
    assert len(set(names)) == len(names)
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    assert {ns for kind, ns, _ in names if kind not in cluster_wide} == {"muster-system"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_server_is_started_with_options_that_it_has(folder: str):
    words = container(folder)["args"]
    assert words[0] == "up"
    for word in words[1:]:
        assert word.split("=")[0] in OPTIONS, word


def test_what_probes_ask_for_is_answered_without_a_token():
    open_paths = {route.path for route in ROUTES if route.is_open}
    asked = {container("base")[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}  # fmt: skip
    assert asked == {"/healthz", "/readyz"}
    assert asked <= open_paths


def test_everything_that_selects_the_pods_finds_them():
    labels = of_kind("base", "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        of_kind("base", "Deployment")["spec"]["selector"]["matchLabels"],
        of_kind("base", "Service")["spec"]["selector"],
        of_kind("base", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        of_kind("base", "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    # A database in the same namespace must not be taken for a replica.
    postgres = of_kind("overlays/trial", "StatefulSet", "postgres")["spec"]["template"]
    for selector in selectors:
        assert not selector.items() <= postgres["metadata"]["labels"].items()


def test_two_replicas_and_one_of_them_survives_a_drain():
    assert of_kind("base", "Deployment")["spec"]["replicas"] == 2
    assert of_kind("base", "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_the_lease_is_the_only_one_that_may_be_changed():
    (word,) = [x for x in container("base")["args"] if x.startswith("--lease=")]
    role = of_kind("base", "Role", "muster-election")
    named = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert [rule["resourceNames"] for rule in named] == [[word.rpartition("/")[2]]]
    unnamed = [rule["verbs"] for rule in role["rules"] if "resourceNames" not in rule]
    assert unnamed == [["create"]], "creating cannot be bound to a name"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_right_is_a_wildcard_and_no_secret_can_be_listed(folder: str):
    roles = [d for d in rendered(folder) if d["kind"] in ("Role", "ClusterRole")]
    for rule in (rule for role in roles for rule in role["rules"]):
        for part in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[part]
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        if "secrets" in rule["resources"]:
            assert set(rule["verbs"]) == {"get", "create", "deletecollection"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_pods_run_unprivileged_and_within_limits(folder: str):
    for document in rendered(folder):
        if document["kind"] not in ("Deployment", "StatefulSet"):
            continue
        spec = document["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in spec["containers"]:
            assert each["securityContext"]["allowPrivilegeEscalation"] is False
            assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert set(each["resources"]) == {"requests", "limits"}


def test_secrets_are_named_and_not_written_down():
    for path in (MANIFESTS / "base").glob("*.yaml"):
        text = path.read_text()
        assert "postgresql://" not in text, path
        assert all(each["kind"] != "Secret" for each in yaml.safe_load_all(text)), path
    (database,) = [x for x in container("base")["env"] if x["name"] == "MUSTER_DB"]
    assert database["valueFrom"] == {"secretKeyRef": {"name": "muster-database", "key": "url"}}


def test_the_image_has_every_package_and_runs_unprivileged():
    text = (ROOT / "Containerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = re.findall(r"^COPY (\w+) \1$", text, re.M)
    assert copied == packages
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    assert {f"!{name}" for name in packages} <= set(ignored)
    user = of_kind("base", "Deployment")["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"\nUSER {user}:{user}\n" in text
    installs = re.findall(r"install (?!-d)(.*?)(?: &&|$)", text, re.M)
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
