"""Typed access to the fields of a loaded document, with errors that name the path of the field."""

import re
from collections.abc import Collection, Mapping

LABELS_MAX = 64
TEXT_MAX = 253
# Over thirty thousand years in seconds.
NUMBER_MAX = 1e12

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class BadCluster(ValueError):
    """The cluster file cannot be used; `path` names the field, and `problem` what is wrong."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path or 'the document'}: {self.problem}"


class Fields:
    """A mapping of the document whose fields are taken one by one.

    All methods that take a field raise BadCluster for a value of the wrong type or out of range.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise BadCluster(path, "must be a mapping")
        for name in value:
            if not isinstance(name, str):
                raise BadCluster(path, f"has a field that is not named by a string: {name!r}")
        self._left: dict[str, object] = dict(value)
        self._path = path

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        """Whether a field is present, not empty, and not taken yet."""
        return self._left.get(name) is not None

    def done(self) -> None:
        """Raise BadCluster if a field is left that was not taken."""
        for name in self._left:
            raise BadCluster(self.at(name), "is not a field that is known here")

    def number(self, name: str, default: float | None = None, *, least: float = 0.0) -> float:
        """Take a number; without a default the field is required."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadCluster(self.at(name), "must be a number")
        if not least <= value <= NUMBER_MAX:
            raise BadCluster(self.at(name), f"must be from {least:g} to {NUMBER_MAX:g}")
        return float(value)

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """Take a whole number from `least` to `most`."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadCluster(self.at(name), "must be a whole number")
        if not least <= value <= most:
            raise BadCluster(self.at(name), f"must be from {least} to {most}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Take a string; without a default the field is required."""
        value = self._take(name, default)
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise BadCluster(self.at(name), f"must be a string, at most {TEXT_MAX} long")
        return value

    def label(self, name: str) -> str:
        """Take a required DNS label."""
        value = self.text(name)
        if _DNS_LABEL.fullmatch(value) is None:
            raise BadCluster(
                self.at(name), "must be a DNS label: at most 63 of a-z, 0-9 and, inside, -"
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Take a boolean."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise BadCluster(self.at(name), "must be true or false")
        return value

    def choice(self, name: str, default: str, known: Collection[str]) -> str:
        """Take a string that must be one of `known`."""
        value = self.text(name, default)
        if value not in set(known):
            raise BadCluster(self.at(name), f"must be one of {', '.join(known)}")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """Take a mapping of strings to strings; empty if it is missing."""
        fields = self.record(name)
        if len(fields._left) > LABELS_MAX:
            raise BadCluster(self.at(name), f"has more than {LABELS_MAX} entries")
        return {key: fields.text(key) for key in list(fields._left)}

    def amounts(self, name: str, *, most: int) -> dict[str, int]:
        """Take a mapping of names to whole numbers from 0 to `most`."""
        fields = self.record(name)
        if len(fields._left) > LABELS_MAX:
            raise BadCluster(self.at(name), f"has more than {LABELS_MAX} entries")
        return {key: fields.integer(key, 0, least=0, most=most) for key in list(fields._left)}

    def record(self, name: str) -> "Fields":
        """Take a mapping; empty if it is missing."""
        return Fields(self._take(name, {}), self.at(name))

    def records(self, name: str, most: int) -> "list[Fields]":
        """Take a list of at most `most` mappings; empty if it is missing."""
        value = self._take(name, [])
        if not isinstance(value, list):
            raise BadCluster(self.at(name), "must be a list")
        if len(value) > most:
            raise BadCluster(self.at(name), f"has more than {most} entries")
        return [Fields(entry, f"{self.at(name)}[{i}]") for i, entry in enumerate(value)]

    def _take(self, name: str, default: object) -> object:
        """Take a field; a field left empty in YAML counts as missing."""
        value = self._left.pop(name, None)
        if value is not None:
            return value
        if default is None:
            raise BadCluster(self.at(name), "is missing")
        return default
