"""The types that manifests are read with, as the structural schemas of Kubernetes. Pure.

They are useful and tolerant: what has the wrong type is refused at the API server's door, and a
field that is not known is kept, so that it reaches us and whoever wrote it is told its name. Pod
templates are the cluster's own business, and are kept as they are.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect as i

from controlplane.kinds.pods import PodTemplate, Resources

# Whatever it is, it is kept.
ANYTHING: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
ANY_OBJECT: dict[str, Any] = {"type": "object", **ANYTHING}
_NUMBER_OR_TEXT: dict[str, Any] = {"x-kubernetes-int-or-string": True}
_AMOUNTS: dict[str, Any] = {"type": "object", "additionalProperties": _NUMBER_OR_TEXT}
# Types of which more, or less, is known than they say.
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
# What `kubectl explain` says of the fields that most kinds have.
DESCRIPTIONS = {
    "activeDeadlineSeconds": "How long the job may be active before it fails.",
    "backoffLimit": "How many failures of its own the job may have; lost nodes do not count.",
    "cleanPodPolicy": "Which pods of a finished job are deleted: None, Running or All.",
    "elasticPolicy": "Within which limits the number of workers may change while the job runs.",
    "managedBy": "Who runs the job; a job of anybody else is left alone.",
    "minAvailable": "With how many replicas the gang may start; all of them, unless said.",
    "queue": "The queue in which the job waits.",
    "replicas": "How many replicas the role has.",
    "restartPolicy": "What an exit code other than 0 means.",
    "runPolicy": "How long, how often and by whom the job is run.",
    "scheduleTimeoutSeconds": "How long the gang may take to come up once it is placed.",
    "schedulingPolicy": "How the gang is placed.",
    "suspend": "A suspended job has no pods; set it back and it queues again.",
    "ttlSecondsAfterFinished": "When a finished job is deleted.",
}


def schema_of(manifest: type[msgspec.Struct], field: str) -> dict[str, Any]:
    """The schema of one field of a manifest, such as its spec."""
    info = i.type_info(manifest)
    assert isinstance(info, i.StructType)
    found = next(each for each in info.fields if each.encode_name == field)
    return _schema(found.type)


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
    found: dict[str, Any] = {
        "type": "object",
        "properties": {each.encode_name: _property(each) for each in info.fields},
        **ANYTHING,
    }
    required = [each.encode_name for each in info.fields if each.required]
    return {**found, "required": required} if required else found


def _property(field: i.Field) -> dict[str, Any]:
    found = _schema(field.type)
    if field.encode_name == "minResources":
        found = dict(_AMOUNTS)
    if told := DESCRIPTIONS.get(field.encode_name):
        found = {"description": told, **found}
    # As our own reader has it, null is the same as not given; a choice has no word for it.
    if not field.required and "type" in found and "enum" not in found:
        found["nullable"] = True
    return found


def _union(info: i.UnionType) -> dict[str, Any]:
    """One type or nothing; a number or text; anything else is left to our own reader."""
    known = [each for each in info.types if not isinstance(each, i.NoneType)]
    if len(known) == 1:
        return _schema(known[0])
    words = {_schema(each).get("type") for each in known}
    return dict(_NUMBER_OR_TEXT if words == {"integer", "string"} else ANYTHING)
