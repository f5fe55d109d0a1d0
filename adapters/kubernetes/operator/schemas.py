"""The types of manifests as structural schemas of Kubernetes. Pure.

The API server refuses a field of the wrong type. It keeps an unknown field, so that Muster receives
it and can name it to the user. Pod templates belong to Kubernetes, so their schema accepts any
object and keeps it as it is.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect as i

from controlplane.kinds.manifest.pods import PodTemplate, Resources

# Accepts any value and keeps all of its fields.
ANYTHING: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
ANY_OBJECT: dict[str, Any] = {"type": "object", **ANYTHING}
_NUMBER_OR_TEXT: dict[str, Any] = {"x-kubernetes-int-or-string": True}
_AMOUNTS: dict[str, Any] = {"type": "object", "additionalProperties": _NUMBER_OR_TEXT}
# Types whose schema differs from their declaration.
_SPECIAL: dict[type, dict[str, Any]] = {
    PodTemplate: {**ANY_OBJECT, "description": "A pod template of the core API, v1."},
    Resources: {
        **ANY_OBJECT,
        "properties": {"limits": _AMOUNTS, "requests": _AMOUNTS},
    },
}
_PLAIN: dict[type[i.Type], str] = {
    i.BoolType: "boolean",
    i.IntType: "integer",
    i.FloatType: "number",
    i.StrType: "string",
}
# The descriptions that `kubectl explain` prints for the fields that most kinds have.
DESCRIPTIONS = {
    "activeDeadlineSeconds": "How long the job may be active before it fails.",
    "backoffLimit": "How many failures of its own the job may have; lost nodes do not count.",
    "cleanPodPolicy": "Which pods of a finished job are deleted: None, Running or All.",
    "elasticPolicy": "Within which limits the number of workers may change while the job runs.",
    "managedBy": "The controller that runs the job; Muster leaves a job of another one alone.",
    "minAvailable": "With how many replicas the gang may start; by default all of them.",
    "queue": "The queue in which the job waits.",
    "replicas": "How many replicas the role has.",
    "restartPolicy": "What an exit code other than 0 means.",
    "runPolicy": "How long, how often and by which controller the job is run.",
    "scheduleTimeoutSeconds": "How long the gang may take to come up once it is placed.",
    "schedulingPolicy": "How the gang is placed.",
    "suspend": "A suspended job has no pods; set it back and it queues again.",
    "ttlSecondsAfterFinished": "When a finished job is deleted.",
}


def schema_of(manifest: type[msgspec.Struct], field: str) -> dict[str, Any]:
    """Return the schema of one field of a manifest, such as `spec`."""
    info = i.type_info(manifest)
    assert isinstance(info, i.StructType)
    declared = next(each for each in info.fields if each.encode_name == field)
    return _schema(declared.type)


def _schema(info: i.Type) -> dict[str, Any]:
    match info:
        case i.StructType():
            return _struct(info)
        case i.DictType():
            return {"type": "object", "additionalProperties": _schema(info.value_type)}
        case i.ListType() | i.VarTupleType():
            return {"type": "array", "items": _schema(info.item_type)}
        case i.UnionType():
            return _union(info)
        case i.LiteralType():
            return {"type": "string", "enum": list(info.values)}
        case i.EnumType():
            members: list[Enum] = list(info.cls)
            return {"type": "string", "enum": [member.value for member in members]}
        case _:
            plain = _PLAIN.get(type(info))
            return dict(ANYTHING) if plain is None else {"type": plain}


def _struct(info: i.StructType) -> dict[str, Any]:
    if info.cls in _SPECIAL:
        return dict(_SPECIAL[info.cls])
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {each.encode_name: _property(each) for each in info.fields},
        **ANYTHING,
    }
    required = [each.encode_name for each in info.fields if each.required]
    return {**schema, "required": required} if required else schema


def _property(field: i.Field) -> dict[str, Any]:
    schema = _schema(field.type)
    if field.encode_name == "minResources":
        schema = dict(_AMOUNTS)
    if description := DESCRIPTIONS.get(field.encode_name):
        schema = {"description": description, **schema}
    # Muster reads null as absent, so optional fields accept it; an enum cannot contain null.
    if not field.required and "type" in schema and "enum" not in schema:
        schema["nullable"] = True
    return schema


def _union(info: i.UnionType) -> dict[str, Any]:
    """Return the schema of an optional type or of integer-or-string; any value for other unions.

    Muster's own reader checks the latter.
    """
    known = [each for each in info.types if not isinstance(each, i.NoneType)]
    if len(known) == 1:
        return _schema(known[0])
    words = {_schema(each).get("type") for each in known}
    return dict(_NUMBER_OR_TEXT if words == {"integer", "string"} else ANYTHING)
