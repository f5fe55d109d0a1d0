"""The definitions agree with the kinds, and an API server would accept them and our examples."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.kubernetes.operator.crds import definition, definitions
from adapters.kubernetes.operator.resource import JobResource, resources
from cli.server.crds import files
from controlplane.kinds.registry import BUILT_IN

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "deploy" / "crds"
DEFINITIONS = {
    each["metadata"]["name"]: each for each in (definition(r) for r in resources(BUILT_IN))
}
EXAMPLES = [*sorted((ROOT / "examples").glob("*job*.yaml")), ROOT / "examples" / "native.yaml"]
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def test_the_files_are_those_of_the_kinds() -> None:
    made = files(definitions())
    written = {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()}
    assert written == made, "deploy/crds is stale: run `make crds`"


def test_every_form_of_every_kind_is_served_and_one_of_each_resource_is_stored() -> None:
    served = {
        (f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"])
        for each in DEFINITIONS.values()
        for version in each["spec"]["versions"]
    }
    assert served == {(form.version, kind.name) for kind in BUILT_IN for form in kind.forms}
    for each in DEFINITIONS.values():
        assert [v["storage"] for v in each["spec"]["versions"]].count(True) == 1
        assert all(v["subresources"]["status"] == {} for v in each["spec"]["versions"])


def test_what_kubeflow_lets_be_scaled_can_be_scaled() -> None:
    scaled = {
        each["spec"]["names"]["kind"]: version["subresources"]["scale"]["specReplicasPath"]
        for each in DEFINITIONS.values()
        for version in each["spec"]["versions"]
        if "scale" in version["subresources"]
    }
    assert scaled == {
        "PyTorchJob": ".spec.pytorchReplicaSpecs.Worker.replicas",
        "PaddleJob": ".spec.paddleReplicaSpecs.Worker.replicas",
        "JAXJob": ".spec.jaxReplicaSpecs.Worker.replicas",
    }


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_schema_is_structural(name: str) -> None:
    for version in DEFINITIONS[name]["spec"]["versions"]:
        root = version["schema"]["openAPIV3Schema"]
        assert list(_unstructural(root, "")) == []


def _unstructural(schema: dict[str, Any], path: str) -> Iterator[str]:
    """What an API server would refuse: a node without a type, or with two sorts of fields."""
    kept = schema.get("x-kubernetes-preserve-unknown-fields")
    either = schema.get("x-kubernetes-int-or-string")
    if "type" not in schema and not kept and not either:
        yield f"{path}: no type"
    if either and "type" in schema:
        yield f"{path}: a type next to int-or-string"
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{path}: properties and additionalProperties"
    if (schema.get("type") == "array") != ("items" in schema):
        yield f"{path}: items"
    for key, inner in _inner(schema):
        yield from _unstructural(inner, f"{path}.{key}")


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from schema.get("properties", {}).items()
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield key, schema[key]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_versions_do_not_contradict_each_other(name: str) -> None:
    """Objects are not converted, so one that was written in any version is read in every other."""
    known: dict[str, object] = {}
    for version in DEFINITIONS[name]["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert spec["x-kubernetes-preserve-unknown-fields"]
        for field, schema in spec["properties"].items():
            assert known.setdefault(field, schema.get("type")) == schema.get("type"), field


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_is_taken(file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text("utf-8")):
        assert list(_misfits(_schema(document), document, "")) == []


def test_a_wrong_type_and_a_wrong_choice_are_refused_at_the_door() -> None:
    document = yaml.safe_load((ROOT / "examples" / "pytorchjob.yaml").read_text("utf-8"))
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["replicas"], worker["restartPolicy"] = "three", "Sometimes"
    del worker["template"]
    where = ".spec.pytorchReplicaSpecs.Worker"
    expected = [f"{where}.replicas", f"{where}.restartPolicy"]
    assert sorted(_misfits(_schema(document), document, "")) == expected


def _schema(document: dict[str, Any]) -> dict[str, Any]:
    group, _, version = document["apiVersion"].partition("/")
    resource = JobResource(group, document["kind"], ())
    versions = DEFINITIONS[resource.name]["spec"]["versions"]
    schema: dict[str, Any] = next(
        v["schema"]["openAPIV3Schema"] for v in versions if v["name"] == version
    )
    return schema


def _misfits(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """The paths of what an API server would refuse."""
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield path
        return
    named = schema.get("type")
    if named and (
        not isinstance(value, TYPES[named]) or (isinstance(value, bool) and named != "boolean")
    ):
        yield path
        return
    if "enum" in schema and value not in schema["enum"]:
        yield path
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield f"{path}.{key}"
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if known:
                yield from _misfits(known, inner, f"{path}.{key}")
    if isinstance(value, list) and "items" in schema:
        for number, inner in enumerate(value):
            yield from _misfits(schema["items"], inner, f"{path}[{number}]")
