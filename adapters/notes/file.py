"""Notes in files beside a SQLite log, one file a book.

A line is one key and its value, or null once it is gone; the last line of a key counts. A line that
a crash cut short is as if it had never been written.
"""

import json
import logging
from pathlib import Path
from typing import Any

from adapters.notes.book import Book
from controlplane.errors import LogUnavailable

# A file with so many lines more than it needs is written anew.
SPARE_LINES_MAX = 10_000

_log = logging.getLogger("muster")


class FileNotes:
    def __init__(self, log: Path) -> None:
        self._log = log
        self._books: dict[str, Book] = {}
        # How many lines each file has, of the books that this one may write.
        self._lines: dict[str, int] = {}

    def book(self, name: str) -> Book:
        """Empty, and not kept, until `load`."""
        if name not in self._books:
            self._books[name] = Book(lambda key, value: self._add(name, key, value))
        return self._books[name]

    async def load(self) -> None:
        """Begins to keep the books, from what was kept before."""
        for name, book in self._books.items():
            try:
                book.replace(_read(self.path(name)))
                self._write_whole(name)
            except OSError as error:
                told = f"{self.path(name)} cannot be read or written: {error.strerror}"
                raise LogUnavailable(told) from error

    def release(self) -> None:
        """Somebody else keeps them from now on."""
        self._lines.clear()

    def path(self, name: str) -> Path:
        return self._log.with_name(f"{self._log.name}.{name}")

    def _add(self, name: str, key: str, value: Any) -> None:
        if name not in self._lines:
            return
        try:
            with self.path(name).open("a", encoding="utf-8") as file:
                file.write(_line(key, value))
            self._lines[name] += 1
            if self._lines[name] > len(self._books[name]) + SPARE_LINES_MAX:
                self._write_whole(name)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self.path(name), error.strerror)

    def _write_whole(self, name: str) -> None:
        """Without what was overwritten; beside the old file first, so that one of them is whole."""
        path, book = self.path(name), self._books[name]
        if path.exists():
            beside = path.with_name(f"{path.name}.new")
            beside.write_text("".join(_line(*item) for item in book.items()), encoding="utf-8")
            beside.replace(path)
        self._lines[name] = len(book)


def _line(key: str, value: Any) -> str:
    return json.dumps({"key": key, "value": value}) + "\n"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            key, value = str(entry["key"]), entry["value"]
        except (ValueError, TypeError, KeyError):
            continue
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found
