"""What does not fit a type, told so that a person can do better: where it is, and what would fit."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from controlplane.errors import Rejected

# One step of a path as msgspec writes it: into a field, or into some element.
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")
_LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType)


def misfit(code: str, error: msgspec.ValidationError, type: Any) -> Rejected:
    """msgspec ends its message with the path in back-quotes; people read it better in front."""
    message, _, path = str(error).partition(" - at ")
    path = path.strip("`")
    field = path.removeprefix("$").removeprefix(".")
    told = f"{message}{_what_fits(message, path, type)}"
    return Rejected(code, f"{field}: {told}" if field else told, field=field or None)


def _what_fits(message: str, path: str, type: Any) -> str:
    """Which words are known there, if it was a word that is not."""
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
    """What may stand at a path."""
    places = list(_plain(info))
    for step in _STEP.finditer(path):
        inner = [each for place in places for each in _inside(place, step[1])]
        places = [each for found in inner for each in _plain(found)]
    return places


def _plain(info: inspect.Type) -> Iterator[inspect.Type]:
    """Each of several that it may be, without what is said about it beside."""
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
