"""Validation errors that help a person: the path of the error, and the values that would fit."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from controlplane.model.errors import Rejected

# One step of a path in msgspec's notation: into a field, or into some element.
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")
_LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)


def validation_error(code: str, error: msgspec.ValidationError, type: Any) -> Rejected:
    """Return `error` as a refusal that begins with the path.

    msgspec has the path at the end of its message, in back-quotes.
    """
    message, _, path = str(error).partition(" - at ")
    path = path.strip("`")
    field = path.removeprefix("$").removeprefix(".")
    text = f"{message}{_what_fits(message, path, type)}"
    return Rejected(code, f"{field}: {text}" if field else text, field=field or None)


def _what_fits(message: str, path: str, type: Any) -> str:
    """Return the values or field names that `path` accepts, to add to `message`.

    Empty if the error is not an unknown value or field.
    """
    places = _at(_info(type), path)
    if message.startswith("Invalid enum value"):
        words = [
            str(x.value)
            for place in places
            if isinstance(place, inspect.EnumType)
            for x in place.cls
        ]
    elif message.startswith("Object contains unknown field"):
        structs = [place for place in places if isinstance(place, inspect.StructType)]
        words = [field.encode_name for place in structs for field in place.fields]
    else:
        return ""
    return f"; known: {', '.join(dict.fromkeys(words))}" if words else ""


@lru_cache(maxsize=256)
def _info(type: Any) -> inspect.Type:
    return inspect.type_info(type)


def _at(info: inspect.Type, path: str) -> Sequence[inspect.Type]:
    """Return the types that are accepted at `path`."""
    places = list(_plain(info))
    for step in _STEP.finditer(path):
        inner = [each for place in places for each in _inside(place, step[1])]
        places = [each for failed in inner for each in _plain(failed)]
    return places


def _plain(info: inspect.Type) -> Iterator[inspect.Type]:
    """Yield each alternative of `info`, without metadata."""
    if isinstance(info, inspect.Metadata):
        yield from _plain(info.type)
    elif isinstance(info, inspect.UnionType):
        for one in info.types:
            yield from _plain(one)
    else:
        yield info


def _inside(place: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    if field is None:
        if isinstance(place, _LISTS):
            yield place.item_type
        elif isinstance(place, inspect.DictType):
            yield place.value_type
    elif isinstance(place, inspect.StructType):
        yield from (each.type for each in place.fields if each.encode_name == field)
