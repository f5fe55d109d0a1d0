"""Hints: what a manifest states for one cluster adapter, opaque to the core.

A hint is a plain JSON value in `JobSpec.hints`, below its name. The core records it with the job and
never reads it; only the adapter that owns the hint gives it a meaning. The simulated cluster owns
`workload`, for example. An adapter describes its hint by a `HintSchema`, which the composition root
registers (`registry.register_hint`) before any manifest is read. The schema is used where people
write manifests:

- the native form has the hint as the field `spec.NAME`, with the schema's type, so that misspelt
  fields are refused by their path and the OpenAPI document and the CRDs describe it;
- all other forms have it as annotations with the schema's prefix;
- admission checks it;
- redaction keeps the parts of it that the adapter declares harmless.

The default value of the type is the same as no hint and is not recorded. A hint without a schema
here belongs to an adapter that is not installed: the native form has it below `spec.hints`, with a
warning, and it is kept as it is. A redacted history does not have it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import JobSpec

# What a text becomes that redaction hides.
HIDDEN = "redacted"
# A field of a hint, such as `nice` or `limits.nice`, and what is wrong with it.
HintProblem = tuple[str, str]


class HintSchema(NamedTuple):
    """How manifests express one hint.

    - `name`: the key in `JobSpec.hints` and the field of the native form's spec.
    - `type`: its type; every field has a default.
    - `annotation_prefix`: the prefix of its annotations, with the slash.
    - `read_annotations`: makes a value of `type` from the annotations with the prefix, which it gets
      without the prefix, and adds problems to the findings.
    - `check`: returns the problems of a value in the job that has it.
    - `redact`: returns the value without texts of users.
    """

    name: str
    type: type[msgspec.Struct]
    annotation_prefix: str
    read_annotations: Callable[[Mapping[str, str], Findings], msgspec.Struct]
    check: Callable[[Any, JobSpec], Iterable[HintProblem]]
    redact: Callable[[Any], Any]

    def annotation_path(self, field: str) -> str:
        """Return the path of the annotation for a field of the hint."""
        return f"metadata.annotations[{self.annotation_prefix}{annotation_name(field)}]"


class HintTaken(Exception):
    """Two hints have the same name or the same prefix, or a hint has the name of a native field."""


_schemas: dict[str, HintSchema] = {}


def including(schema: HintSchema) -> tuple[HintSchema, ...]:
    """Return the registered schemas and this one.

    Raises HintTaken if another schema has its name or its prefix.
    """
    others = [known for known in _schemas.values() if known != schema]
    for known in others:
        if known.name == schema.name:
            raise HintTaken(f"there is already a hint {schema.name}; choose another name")
        if known.annotation_prefix == schema.annotation_prefix:
            taken = f"the annotations {schema.annotation_prefix} belong to the hint {known.name}"
            raise HintTaken(f"{taken}; choose another prefix")
    return (*others, schema)


def register(schema: HintSchema) -> None:
    """Add a schema; only `registry.register_hint` calls this, as the native form changes with it."""
    _schemas[schema.name] = schema


def schemas() -> tuple[HintSchema, ...]:
    return tuple(_schemas.values())


def annotation_name(field: str) -> str:
    """Return the annotation of a field, without its prefix: `training.compute_s` is compute-seconds."""
    name = field.rpartition(".")[2]
    if name.endswith("_s"):
        name = f"{name.removesuffix('_s')}_seconds"
    return name.replace("_", "-")


# ------------------------------------------------------------------ reading and checking


def recorded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return typed values by name as `JobSpec.hints` has them; defaults are left out."""
    return {
        name: msgspec.to_builtins(value)
        for name, value in values.items()
        if value != _schemas[name].type()
    }


def from_annotations(annotations: Mapping[str, str], findings: Findings) -> dict[str, Any]:
    """Return the hints that the annotations of a manifest express."""
    values = {}
    for schema in _schemas.values():
        prefix = schema.annotation_prefix
        own = {
            key.removeprefix(prefix): text
            for key, text in annotations.items()
            if key.startswith(prefix)
        }
        if own:
            values[schema.name] = schema.read_annotations(own, findings)
    return recorded(values)


def unknown_hints(given: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Return the hints below `spec.hints` of a native manifest, which no adapter here owns."""
    for name in given:
        path = f"spec.hints[{shown(name)}]"
        if name in _schemas:
            findings.forbidden(path, f"give it as spec.{name}")
        else:
            findings.warn(f"{path}: no cluster adapter of this server reads it; it is kept")
    return {name: value for name, value in given.items() if name not in _schemas}


def problems(spec: JobSpec) -> list[tuple[str, str]]:
    """Return the problems of a job's hints, as (path in the native form, message)."""
    return [
        (f"spec.{name}.{field}" if field else f"spec.{name}", message)
        for name, field, message in _problems(spec)
    ]


def annotation_problems(spec: JobSpec) -> list[tuple[str, str]]:
    """Return the problems of hints that were read from annotations, as (path, message)."""
    return [
        (_schemas[name].annotation_path(field), message) for name, field, message in _problems(spec)
    ]


def _problems(spec: JobSpec) -> Iterable[tuple[str, str, str]]:
    """Yield the name of the hint, the field and the message of each problem."""
    for name, value in spec.hints.items():
        schema = _schemas.get(name)
        if schema is None:
            continue
        try:
            typed = msgspec.convert(value, schema.type)
        except msgspec.ValidationError as error:
            yield name, "", str(error)
            continue
        for field, message in schema.check(typed, spec):
            yield name, field, message


# ------------------------------------------------------------------ redaction


def redacted(hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hints as their adapters redact them; a hint without a schema here is dropped."""
    values = {}
    for name, value in hints.items():
        schema = _schemas.get(name)
        if schema is None:
            continue
        try:
            values[name] = schema.redact(msgspec.convert(value, schema.type))
        except msgspec.ValidationError:
            continue
    return recorded(values)
