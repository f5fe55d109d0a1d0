"""The document, the pages and the tables agree with the code."""

import ast
import re
from pathlib import Path

import pytest

from api.app import ROUTES
from api.openapi import make_openapi
from api.problems import KINDS
from controlplane.kinds.registry import forms
from tests.api.stand_in import Server

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = make_openapi(ROUTES, release="test")


def codes_in(folder: str) -> set[str]:
    """The codes of all refusals that a room's code raises."""
    codes: set[str] = set()
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                if node.func.id in ("Rejected", "problem") and isinstance(first, ast.Constant):
                    codes.add(str(first.value))
    return codes


@pytest.mark.parametrize("room", ["controlplane", "api"])
def test_every_code_has_its_status(room: str) -> None:
    codes = codes_in(room)
    assert codes
    assert codes <= KINDS.keys()


def test_every_documented_code_is_a_known_one() -> None:
    assert {code for route in ROUTES for code in route.problems} <= KINDS.keys()


def test_every_kind_of_manifest_is_described() -> None:
    described = {form.manifest.__name__ for form in forms().values()}
    body = DOCUMENT["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert {ref["$ref"].split("/")[-1] for ref in body["schema"]["oneOf"]} == described


def test_every_reference_leads_somewhere() -> None:
    text = str(DOCUMENT)
    for name in re.findall(r"#/components/schemas/([^'\"]+)", text):
        assert name in DOCUMENT["components"]["schemas"]


def test_operations_have_names_of_their_own() -> None:
    ids = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))


def test_limits_are_documented() -> None:
    parameters = DOCUMENT["paths"]["/v1/jobs"]["get"]["parameters"]
    limit = next(p for p in parameters if p["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}


async def test_the_document_is_served(server: Server) -> None:
    status, document = await server.call("GET", "/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    assert document["paths"].keys() == DOCUMENT["paths"].keys()


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_the_pages_fetch_nothing_from_elsewhere(server: Server, path: str) -> None:
    async with server.session.get(server.url + path) as answer:
        assert answer.content_type == "text/html"
        policy = answer.headers["Content-Security-Policy"]
        text = await answer.text()
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", text) == []
    assert " style=" not in text
    assert " onclick=" not in text


def subschemas(schema):
    yield schema
    for value in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(value, dict | list):
            yield from subschemas(value)


def test_generators_of_clients_can_read_it() -> None:
    """They take no schema that is a plain boolean, and make a class of each component's name."""
    schemas = DOCUMENT["components"]["schemas"]
    for schema in subschemas(schemas):
        if isinstance(schema, dict) and not isinstance(schema.get("items", {}), dict):
            pytest.fail(f"items is no schema: {schema}")
    assert [name for name in schemas if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)] == []
    assert len({name.lower() for name in schemas}) == len(schemas)
