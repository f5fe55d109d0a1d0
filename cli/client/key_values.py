"""KEY=VALUE arguments of the command line, as parts of a document."""

from typing import Any

import click
import yaml


def read_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Parse `a.b=1 c=x,y` to {"a": {"b": 1}, "c": ["x", "y"]}; an empty value is null."""
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{word!r} is not KEY=VALUE.")
        inner = settings
        *parents, last = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise click.UsageError(f"{key}: {parent} already has a value of its own.")
        inner[last] = _value(value)
    return settings


def _value(text: str) -> Any:
    if text == "":
        return None
    if "," in text:
        return [_value(part) for part in text.split(",") if part]
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


LISTS = ("levels", "strategies")


def with_named(known: Any, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `known`, a list of objects with names, with `changes` made by name.

    `flavors.h100.nominal=8` changes or adds an object, `flavors.h100=` removes it. New ones come
    last.
    """
    by_name = {each["name"]: each for each in known or ()}
    for name, change in changes.items():
        if change is None:
            by_name.pop(name, None)
        elif isinstance(change, dict):
            by_name[name] = merged(by_name.get(name, {"name": name}), change)
        else:
            raise click.UsageError(f"{name}={change}: name the setting, as in {name}.nominal=8.")
    return list(by_name.values())


def merged(known: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `known` with `changes` applied; null resets a setting to its default."""
    result = dict(known)
    for key, value in changes.items():
        if isinstance(value, dict):
            inner = result.get(key)
            result[key] = merged(inner if isinstance(inner, dict) else {}, value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = [value] if key in LISTS and not isinstance(value, list) else value
    return result
