"""Extensions of third parties, loaded from Python entry points."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from cli.errors import CliError

_Value = TypeVar("_Value")


def load_group(
    group: str,
    noun: str,
    type_: type[_Value],
    register: Callable[[_Value], None],
    *,
    taken: type[Exception],
) -> None:
    """Register the value of every installed entry point of a group.

    `noun` names such a value in messages, and `taken` is what `register` raises for a name that is
    taken. Raises CliError for an entry point that cannot be loaded or registered.
    """
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        where = f"the {noun} {point.name} ({point.value}){_package(point)}"
        try:
            value = point.load()
        except Exception as error:
            raise _bad(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
        if not isinstance(value, type_):
            raise _bad(f"{where} is not a {type_.__name__} but a {type(value).__name__}")
        try:
            register(value)
        except taken as error:
            raise _bad(f"{where}: {error}") from None


def _package(point: EntryPoint) -> str:
    return "" if point.dist is None else f" of {point.dist.name}"


def _bad(message: str) -> CliError:
    return CliError(message, hint="Mend the package, or uninstall it.")
