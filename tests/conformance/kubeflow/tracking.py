"""Expectations that know which parts of them were looked at, so that none passes unseen."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any


class Expected(dict[str, Any]):
    """A part of a scenario's expectation; reading a key marks it as looked at."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__({name: tracked(value) for name, value in given.items()})
        self._seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - `get` would call itself

    def __iter__(self) -> Iterator[str]:
        # With an iterator of its own, `{**expected}` reads key by key.
        return super().__iter__()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._seen.update(self)
        return super().items()  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        self._mark()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _mark(self) -> None:
        self._seen.update(self)
        for value in super().values():
            _mark(value)

    def unseen(self, path: str = "expect") -> list[str]:
        """The parts that nothing looked at."""
        paths = []
        for name, value in super().items():
            where = f"{path}.{name}"
            paths += _unseen(value, where) if name in self._seen else [where]
        return paths


def tracked(value: Any) -> Any:
    if isinstance(value, dict):
        return Expected(value)
    return [tracked(each) for each in value] if isinstance(value, list) else value


def _mark(value: Any) -> None:
    if isinstance(value, Expected):
        value._mark()
    elif isinstance(value, list):
        for each in value:
            _mark(each)


def _unseen(value: Any, path: str) -> list[str]:
    if isinstance(value, Expected):
        return value.unseen(path)
    if isinstance(value, list):
        return [x for i, each in enumerate(value) for x in _unseen(each, f"{path}[{i}]")]
    return []
