"""Numbered aliases for names that people chose."""

from collections import Counter


class Aliases:
    """The aliases of one history."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: Counter[str] = Counter()

    def of(self, kind: str, name: str) -> str:
        """The alias of a name: its kind and a number, always the same one."""
        known = self._known.get((kind, name))
        if known is None:
            self._counts[kind] += 1
            known = self._known[kind, name] = f"{kind}-{self._counts[kind]}"
        return known

    def knows(self, kind: str, name: str) -> bool:
        """Whether the name has an alias already."""
        return (kind, name) in self._known
