"""Structural validation: every place where a document does not have its type, with its path.

msgspec converts valid documents fast but stops at the first error. Only a document that it refuses
is walked here, along the type's description in `msgspec.inspect`. The walk also repairs: a value of
the wrong type is replaced by an empty one or by the field's default, so that the kind can still read
the rest of the document and one answer reports all problems. Problems that only result from a repair
are filtered out (`beside`).
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as i

from controlplane.kinds.manifest.validation import Findings
from controlplane.model.errors import Problem

SHOWN_CHARS_MAX = 60
T = TypeVar("T", bound=msgspec.Struct)

_WORDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (dict, "a mapping"),
    ((list, tuple), "a list"),
    (type(None), "nothing"),
)
# For each plain type the Python types that a document may have for it, and its name in messages.
_PLAIN: dict[type[i.Type], tuple[tuple[type, ...], str]] = {
    i.BoolType: ((bool,), "true or false"),
    i.IntType: ((int,), "a whole number"),
    i.FloatType: ((int, float), "a number"),
    i.StrType: ((str,), "text"),
    i.NoneType: ((type(None),), "nothing"),
}
_info = lru_cache(maxsize=256)(i.type_info)


def fitted(document: Mapping[str, Any], type: type[T], findings: Findings) -> T | None:
    """Return the document as a value of `type`, repaired if necessary; None if that fails.

    Each problem is added to the findings.
    """
    try:
        return msgspec.convert(document, type)
    except msgspec.ValidationError:
        mended = _walk(_info(type), document, "", findings)
    try:
        return msgspec.convert(mended, type)
    except msgspec.ValidationError as error:
        if not findings.problems:
            findings.invalid("", str(error))
        return None


def beside(problems: list[Problem], later: list[Problem]) -> list[Problem]:
    """Return the problems in `later` that are not consequences of a repair of `problems`."""
    return [each for each in later if not any(_shadows(problem, each) for problem in problems)]


def _shadows(misfit: Problem, other: Problem) -> bool:
    if _is_within(other.field, misfit.field):
        return True
    return other.sort == "Required" and _is_within(misfit.field, other.field)


def _is_within(inner: str, outer: str) -> bool:
    return inner.startswith(outer) and inner[len(outer) : len(outer) + 1] in ("", ".", "[")


def _walk(info: i.Type, value: Any, path: str, findings: Findings) -> Any:
    """Return the value, or a replacement if it does not have the type."""
    if findings.full:
        return value
    match info:
        case i.StructType():
            return _struct(info, value, path, findings)
        case i.DictType():
            return _mapping(info, value, path, findings)
        case i.ListType() | i.VarTupleType():
            if not isinstance(value, list | tuple):
                return _misfit(info, value, path, findings)
            each = info.item_type
            return [_walk(each, item, f"{path}[{n}]", findings) for n, item in enumerate(value)]
        case i.UnionType():
            return _union(info, value, path, findings)
        case i.LiteralType():
            return _choice(info, info.values, value, path, findings)
        case i.EnumType():
            values = tuple(member.value for member in info.cls)
            return _choice(info, values, value, path, findings)
        case _:
            return value if _fits(info, value) else _misfit(info, value, path, findings)


def _struct(info: i.StructType, value: Any, path: str, findings: Findings) -> Any:
    if not isinstance(value, Mapping):
        return _misfit(info, value, path, findings)
    fields = {field.encode_name: field for field in info.fields}
    for key in value:
        if findings.full:
            break
        if key not in fields:
            near = get_close_matches(shown(key), fields, n=1)
            advice = f"; did you mean {near[0]}?" if near else ""
            findings.unsupported(_child(path, shown(key)), f"there is no such field{advice}")
    mended = {}
    for name, field in fields.items():
        given = value.get(name)
        # As in Kubernetes, null is the same as a missing field.
        if given is None and not _takes_none(field.type):
            if field.required:
                findings.required(_child(path, name), "it is needed here")
                mended[name] = _blank(field.type)
        elif name in value:
            where, known = _child(path, name), len(findings.problems)
            mended_value = _walk(field.type, given, where, findings)
            # The field's default is a better replacement than an empty value.
            if field.required or all(each.field != where for each in findings.problems[known:]):
                mended[name] = mended_value
    return mended


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _takes_none(info: i.Type) -> bool:
    if isinstance(info, i.UnionType):
        return any(_takes_none(each) for each in info.types)
    return isinstance(info, i.AnyType | i.NoneType)


def _mapping(info: i.DictType, value: Any, path: str, findings: Findings) -> Any:
    if not isinstance(value, Mapping):
        return _misfit(info, value, path, findings)
    mended = {}
    for key, inner in value.items():
        where = f"{path}[{shown(key)}]"
        if isinstance(key, str):
            mended[key] = _walk(info.value_type, inner, where, findings)
        else:
            findings.mistyped(where, f"a key must be text, not {_word_of(key)}")
    return mended


def _union(info: i.UnionType, value: Any, path: str, findings: Findings) -> Any:
    for each in info.types:
        if _fits(each, value):
            return _walk(each, value, path, findings)
    others = [each for each in info.types if not isinstance(each, i.NoneType | i.AnyType)]
    if len(others) == 1:
        return _walk(others[0], value, path, findings)
    return _misfit(info, value, path, findings)


def _choice(
    info: i.Type, values: tuple[Any, ...], value: Any, path: str, findings: Findings
) -> Any:
    if isinstance(value, str | int) and not isinstance(value, bool) and value in values:
        return value
    if not isinstance(value, type(values[0])):
        return _misfit(info, value, path, findings)
    allowed = ", ".join(repr(each) if each == "" else str(each) for each in values)
    findings.unsupported(path, f"{shown(value)!r} is not one of {allowed}")
    return _blank(info)


def _fits(info: i.Type, value: Any) -> bool:
    """Return whether a value has the outer form of a type; its contents are not checked."""
    match info:
        case i.StructType() | i.DictType():
            return isinstance(value, Mapping)
        case i.ListType() | i.VarTupleType():
            return isinstance(value, list | tuple)
        case i.BoolType() | i.IntType() | i.FloatType() | i.StrType() | i.NoneType():
            fitting, _ = _PLAIN[type(info)]
            if isinstance(value, bool):
                return bool in fitting
            if isinstance(value, float) and int in fitting and value.is_integer():
                return True
            return isinstance(value, fitting)
        case i.LiteralType() | i.EnumType():
            return isinstance(value, str)
        case _:
            return True


def _misfit(info: i.Type, value: Any, path: str, findings: Findings) -> Any:
    findings.mistyped(path, f"{_name_of(info)} is needed here, not {_word_of(value)}")
    return _blank(info)


def _name_of(info: i.Type) -> str:
    match info:
        case i.StructType() | i.DictType():
            return "a mapping"
        case i.ListType() | i.VarTupleType():
            return "a list"
        case i.UnionType():
            return " or ".join(_name_of(e) for e in info.types if not isinstance(e, i.NoneType))
        case i.LiteralType() | i.EnumType():
            return "text"
        case _:
            return _PLAIN[type(info)][1] if type(info) in _PLAIN else "something else"


def _word_of(value: Any) -> str:
    return next((word for types, word in _WORDS if isinstance(value, types)), "this")


def _blank(info: i.Type) -> Any:
    """Return the emptiest value of a type."""
    match info:
        case i.StructType():
            return {f.encode_name: _blank(f.type) for f in info.fields if f.required}
        case i.DictType():
            return {}
        case i.ListType() | i.VarTupleType():
            return []
        case i.LiteralType():
            return info.values[0]
        case i.EnumType():
            return next(iter(info.cls)).value
        case i.UnionType():
            return None if _takes_none(info) else _blank(info.types[0])
        case i.BoolType():
            return False
        case i.IntType() | i.FloatType():
            return 0
        case i.StrType():
            return ""
        case _:
            return None


def shown(value: Any) -> str:
    """Return a value as text for a message, cut to `SHOWN_CHARS_MAX` characters."""
    text = value if isinstance(value, str) else repr(value) if not _is_long(value) else "..."
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _is_long(value: Any) -> bool:
    return isinstance(value, dict | list | tuple) or (
        isinstance(value, int) and value.bit_length() > 256
    )
