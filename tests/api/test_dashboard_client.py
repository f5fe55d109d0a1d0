"""The requests and the types of the dashboard agree with the OpenAPI document."""

import json
import re
from pathlib import Path
from typing import Any

import api.dashboard
from api.app import ROUTES
from api.docs import write_openapi

FOLDER = Path(api.dashboard.__file__).parent / "static" / "dashboard"
METHODS = {
    "get": "get", "getDated": "get", "getText": "get", "post": "post", "put": "put", "patch": "patch", "remove": "delete",
    "withQuery": "get",
}  # fmt: skip
CALL = re.compile(r"\b(get|getDated|getText|post|put|patch|remove|withQuery)\(path`([^`]+)`")
TYPE = re.compile(r"@typedef \{Object\} (\w+)\n(.*?)\*/", re.DOTALL)
PROPERTY = re.compile(r"@property \{([^}]*(?:\{[^}]*\})?[^}]*)\} (\w+)")


def document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(write_openapi(ROUTES, release="0"))
    return document


def plain(path: str) -> str:
    """Return a path with every placeholder as {}."""
    return re.sub(r"\$?\{[^}]*\}", "{}", path)


def test_every_request_of_the_client_is_a_route() -> None:
    known = {(plain(path), method) for path, item in document()["paths"].items() for method in item}
    text = (FOLDER / "client.js").read_text()
    calls = [("/" + plain(path), METHODS[name]) for name, path in CALL.findall(text)]
    assert len(calls) > 20
    # Every use of a path is one of the calls that are compared.
    assert text.count("path`") == len(calls)
    assert [call for call in calls if call not in known] == []


def test_every_field_that_the_pages_name_is_in_the_schema() -> None:
    schemas = document()["components"]["schemas"]
    types = TYPE.findall((FOLDER / "types.js").read_text())
    assert len(types) > 10
    for name, body in types:
        assert name in schemas, f"the document has no {name}"
        fields = {field for _, field in PROPERTY.findall(body)}
        missing = fields - schemas[name]["properties"].keys()
        assert not missing, f"{name} has no {sorted(missing)}"


def test_only_the_client_sends_requests() -> None:
    for path in FOLDER.rglob("*.js"):
        if path.name != "client.js":
            assert not re.search(r"\bfetch\(|XMLHttpRequest|EventSource\(", path.read_text()), path


def test_modules_are_short_and_write_no_markup() -> None:
    for path in FOLDER.rglob("*.js"):
        text = path.read_text()
        assert len(text.splitlines()) <= 300 or path.name == "types.js", path
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write", text), path
