"""One book of notes: a mapping in memory, of which whoever keeps it hears every change."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

# What is kept is JSON; nothing (null) is kept of a key that was deleted.
Changed = Callable[[str, Any], None]


class Book(MutableMapping[Any, Any]):
    """Keys are kept as text. The entry that was written last is the last one."""

    def __init__(self, changed: Changed) -> None:
        self._entries: dict[str, Any] = {}
        self._changed = changed

    def replace(self, entries: Mapping[str, Any]) -> None:
        """Takes what was kept instead of what is here; that is no change."""
        self._entries = dict(entries)

    def __getitem__(self, key: object) -> Any:
        return self._entries[str(key)]

    def __setitem__(self, key: object, value: Any) -> None:
        before = self._entries.pop(str(key), None)
        self._entries[str(key)] = value
        if before != value:
            self._changed(str(key), value)

    def __delitem__(self, key: object) -> None:
        del self._entries[str(key)]
        self._changed(str(key), None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
