"""The OpenAPI 3.1 document, generated from the route table and the types that the server parses.

msgspec describes what a route takes or returns from the same Struct that reads or writes it, so the
document cannot differ from the server.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from api.jobs.jobs import Manifest
from api.problems import KINDS, MEDIA_TYPE, Problem
from api.requests.bodies import MEDIA_TYPES
from api.requests.headers import AT_HEADER, POSITION_HEADER, TIME_HEADER
from api.requests.idempotency import HEADER, KEY_LENGTH_MAX
from api.requests.instants import PastQuery
from api.requests.notices import HEADER as WARNINGS
from api.routes import Route
from controlplane.kinds.registry import forms

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
# Any route may answer with these problems.
_ALWAYS = ("invalid_parameter", "host_not_allowed", "internal_error", "unavailable", "busy")
_HEADERS: dict[str, Schema] = {
    HEADER: {
        "description": "Sent again with the same key, a request is carried out once.",
        # Printable ASCII; a header's value has no blanks at its ends.
        "schema": {"type": "string", "maxLength": KEY_LENGTH_MAX, "pattern": "^[!-~]+( [!-~]+)*$"},
    },
    "Last-Event-ID": {
        "description": "The position to begin behind; it wins over `after`.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    },
}
_EXAMPLE = {
    "apiVersion": "muster.dev/v1",
    "kind": "Job",
    "metadata": {"name": "resnet"},
    "spec": {
        "roles": [
            {
                "name": "worker",
                "replicas": 4,
                "gpus": 8,
                "image": "registry.example/resnet:1",
                "command": ["python", "train.py"],
            }
        ],
        "workload": {"duration_s": 600},
    },
}


def make_openapi(routes: Sequence[Route], *, release: str) -> Schema:
    shown = [route for route in routes if route.is_shown]
    schemas = _Schemas(shown)
    paths: dict[str, Schema] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster",
            "version": release,
            "description": "Jobs that muster all of their workers, or start none.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "x-problems": {code: kind._asdict() for code, kind in KINDS.items()},
    }


class _Schemas:
    """The schemas of all types that the routes use; queries are parameters, not types."""

    def __init__(self, routes: Sequence[Route]) -> None:
        bodies = [part for route in routes for part in _parts(route.body)]
        answers = [part for r in routes for each in r.answers.values() for part in _parts(each)]
        queries = [route.query for route in routes]
        types = list(dict.fromkeys([Problem, *bodies, *answers, *queries]))
        refs, self.components = msgspec.json.schema_components(types, ref_template=_REF)
        _drop_false_items(self.components)
        self._refs = dict(zip(types, refs, strict=True))
        for part in _parts(Manifest):
            _allow_null(self.components, part.__name__, set())
        self._queries = {query: self.components.pop(query.__name__) for query in set(queries)}

    def of(self, type: Any) -> Schema:
        refs = [self._refs[part] for part in _parts(type)]
        return refs[0] if len(refs) == 1 else {"oneOf": refs}

    def parameters(self, query: type[msgspec.Struct]) -> Iterator[Schema]:
        for name, schema in self._queries[query]["properties"].items():
            rest = {key: value for key, value in schema.items() if key != "description"}
            parameter = {"name": name, "in": "query", "required": False, "schema": rest}
            description = schema.get("description")
            yield parameter if description is None else {**parameter, "description": description}


def _drop_false_items(schema: Any) -> None:
    """Remove `items: false` from tuples; their `maxItems` implies it.

    Client generators do not accept a schema that is not an object.
    """
    if isinstance(schema, dict):
        if schema.get("items") is False and "maxItems" in schema:
            del schema["items"]
        for inner in schema.values():
            _drop_false_items(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _drop_false_items(inner)


def _allow_null(components: Schema, name: str, seen: set[str]) -> None:
    """Allow null for every optional field of the schema `name` and of the schemas below it.

    In a manifest, as in Kubernetes, null means not given.
    """
    if name in seen:
        return
    seen.add(name)
    schema = components[name]
    for inner in re.findall(r"'#/components/schemas/([^']+)'", str(schema)):
        _allow_null(components, inner, seen)
    needed = schema.get("required", ())
    for field, shape in schema.get("properties", {}).items():
        if field not in needed and shape and shape.get("type") != "null":
            others = shape.get("anyOf", [shape])
            if {"type": "null"} not in others:
                schema["properties"][field] = {"anyOf": [*others, {"type": "null"}]}


def _parts(type: Any) -> list[Any]:
    """Return the alternatives of `type`: the members of a tuple, or all kinds for a manifest."""
    if type is None:
        return []
    if type is Manifest:
        return list(dict.fromkeys(form.manifest for form in forms().values()))
    return list(type) if isinstance(type, tuple) else [type]


def _operation(route: Route, schemas: _Schemas) -> Schema:
    parameters = [
        *(_path_parameter(name) for name in re.findall(r"{(\w+)}", route.path)),
        *schemas.parameters(route.query),
        *({"name": name, "in": "header", "required": False, **_HEADERS[name]}
          for name in route.headers),
    ]  # fmt: skip
    operation: Schema = {
        "operationId": _operation_id(route),
        "tags": [_tag(route)],
        "summary": route.summary,
        "parameters": parameters,
        "responses": {**_answers(route, schemas), **_problems(route)},
        # A server on a loopback address without tokens requires none.
        "security": [{}] if route.is_open else [{"bearer": []}, {}],
    }
    if route.body is not None:
        media: Schema = {"schema": schemas.of(route.body)}
        if route.body is Manifest:
            media["example"] = _EXAMPLE
        content = dict.fromkeys(MEDIA_TYPES, media)
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(route: Route) -> str:
    words = [word for word in route.path.split("/") if word and word != "v1"]
    names = [word.strip("{}").replace(".", "_") for word in words]
    return "_".join([route.method.lower(), *names])


def _tag(route: Route) -> str:
    words = route.path.removeprefix("/v1").split("/")
    return words[1] if route.path.startswith("/v1") else "server"


def _path_parameter(name: str) -> Schema:
    schema = {"type": "string", "minLength": 1, "maxLength": 253}
    return {"name": name, "in": "path", "required": True, "schema": schema}


_TIME = {
    "description": "UTC seconds on the server's clock.",
    "schema": {"type": "string"},
}


_MOMENT: Schema = {
    POSITION_HEADER: {
        "description": "The last event that the answer takes in.",
        "schema": {"type": "integer", "minimum": 0},
    },
    AT_HEADER: {"description": "The time of that event.", "schema": {"type": "number"}},
}


_WARNINGS = {
    "description": "Warnings on accepted fields, in the form of Kubernetes.",
    "schema": {"type": "string"},
}


def _answers(route: Route, schemas: _Schemas) -> Schema:
    answers: Schema = {}
    for status, given in route.answers.items():
        answer: Schema = {"description": _describe(given), "headers": {TIME_HEADER: _TIME}}
        if given is not None:
            answer["content"] = {
                media: {"schema": schemas.of(given) if media.endswith("json") else {}}
                for media in route.media_types
            }
        if issubclass(route.query, PastQuery):
            answer["headers"] |= _MOMENT
        if route.body is Manifest:
            answer["headers"][WARNINGS] = _WARNINGS
        if status == 201:
            answer["headers"]["Location"] = {"schema": {"type": "string"}}
        answers[str(status)] = answer
    return answers


def _describe(type: Any) -> str:
    names = [getattr(part, "__name__", str(part)) for part in _parts(type)]
    return " or ".join(names) or "No content."


def _problems(route: Route) -> Schema:
    guarded = ("token_needed", "cross_origin", *_ALWAYS)
    codes = route.problems if route.is_open else (*route.problems, *guarded)
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(KINDS[code].status, []).append(code)
    content = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}
    return {
        str(status): {
            "description": "; ".join(f"`{c}`: {KINDS[c].title}" for c in by_status[status]),
            "content": content,
        }
        for status in sorted(by_status)
    }
