"""A registry of named objects: disciplines and quota models."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class NameTaken(Exception):
    """Two registered objects have the same name."""


class UnknownName(LookupError):
    """No object is registered under this name; the message lists those that are."""


class Registry(Generic[T]):
    """Objects by name, in the order in which they were registered. `what` is their noun in messages."""

    def __init__(self, what: str, *items: T) -> None:
        self.what = what
        self._items: dict[str, T] = {}
        for item in items:
            self.register(item)

    def register(self, item: T) -> None:
        """Add an object; registering one of the same class again changes nothing.

        Raises NameTaken if an object of another class has the name.
        """
        known = self._items.get(item.name)
        if known is None:
            self._items[item.name] = item
        elif type(known) is not type(item):
            raise NameTaken(f"there is already a {self.what} {item.name}; choose another name")

    def __getitem__(self, name: str) -> T:
        """The object of this name. Raises UnknownName."""
        item = self._items.get(name)
        if item is None:
            known = ", ".join(self._items)
            raise UnknownName(f"there is no {self.what} {name!r} here; there are: {known}")
        return item

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._items)
