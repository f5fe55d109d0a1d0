"""An exported log behind the interface of EventLog: one event per line, forwards only, read-only.

Input from a pipe is kept in an unnamed file, so that it can be read more than once.
"""

import gzip
import shutil
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from controlplane.audit.bundle import MAGIC, Header, read_head
from controlplane.log.codec import from_line
from controlplane.log.replay import open_snapshot
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import Head, StateSnapshot

LINE_BYTES_MAX = 64 * 2**20
MARK_EVERY = 1_000
GZIP_MAGIC = b"\x1f\x8b"
_TAIL_BYTES = 2**16


class _Mark(NamedTuple):
    """The byte offset right after the event at a position."""

    position: int
    offset: int
    line: int


class ExportedLog:
    """An exported log. `header` and `base` are those of a bundle; other exports have none."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.header: Header | None = None
        self.base: StateSnapshot | None = None
        if file.read(len(MAGIC)) == MAGIC:
            file.seek(0)
            self.header, self.base = read_head(file.readline(), file.readline())
            self._start = _Mark(self.base.position, file.tell(), 2)
        else:
            self._start = _Mark(0, 0, 0)
        # Some offsets that were passed, so that a rewind need not start at the beginning.
        self._marks = [self._start]
        self._line = self._position = 0
        self._rewind()

    @classmethod
    def open(cls, path: Path) -> "ExportedLog":
        try:
            file = _opened(path)
        except OSError as error:
            raise LogUnavailable(f"{path}: {(error.strerror or str(error)).lower()}") from None
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    @classmethod
    def from_stdin(cls) -> "ExportedLog":
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the log
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.seek(0)
        return cls(kept)

    def first_position(self) -> int:
        """Return the first position in the export; 0 if it is empty."""
        self._rewind()
        row = self._next()
        self._rewind()
        return 0 if row is None else row.position

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        if after < self._position:
            self._rewind(after)
        rows: list[Row] = []
        while len(rows) < limit and (row := self._next()) is not None:
            if row.position > after:
                rows.append(row)
        return rows

    async def head(self) -> Head:
        """Return the head according to the last line; the export may end before the log did."""
        line = self._last_line()
        if not line:
            return Head(0, GENESIS, 0) if self.base is None else _head_of(self.base)
        try:
            row = from_line(line)
        except ValueError as error:
            raise LogCorrupt(0, f"the last line cannot be read: {error}") from None
        return Head(row.position, row.hash, 0)

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        base = self.base
        if base is None or (at_most is not None and at_most < base.position):
            return None
        return base

    async def close(self) -> None:
        self._file.close()

    async def lead(self) -> Head:
        self._refuse()

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        self._refuse()

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LogUnavailable("an exported log is only read; import it to write to it")

    def _rewind(self, after: int = 0) -> None:
        """Seek to the last mark at or before position `after`."""
        here = bisect_right(self._marks, after, key=lambda mark: mark.position) - 1
        mark = self._marks[max(0, here)]
        self._file.seek(mark.offset)
        self._line, self._position = mark.line, mark.position

    def _mark(self) -> None:
        if self._line % MARK_EVERY == 0 and self._position > self._marks[-1].position:
            self._marks.append(_Mark(self._position, self._file.tell(), self._line))

    def _next(self) -> Row | None:
        line = self._file.readline(LINE_BYTES_MAX)
        self._line += 1
        if not line:
            return None
        if not line.strip():
            return self._next()
        try:
            row = from_line(line)
        except ValueError as error:
            bad = self._position + 1
            raise LogCorrupt(bad, f"line {self._line} cannot be read: {error}") from None
        self._position = row.position
        self._mark()
        return row

    def _last_line(self) -> bytes:
        """Return the last line, read from the end in steps that double until a whole line is in."""
        size, step = self._file.seek(0, 2) - self._start.offset, _TAIL_BYTES
        while True:
            self._file.seek(self._start.offset + max(0, size - step))
            lines = self._file.read().strip().splitlines()
            if len(lines) > 1 or step >= size:
                break
            step *= 2
        self._rewind()
        return lines[-1] if lines else b""


def _opened(path: Path) -> IO[bytes]:
    """Open the file, decompressed if it is compressed."""
    file = path.open("rb")
    packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    file.seek(0)
    if not packed:
        return file
    kept = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the log
    try:
        with file, gzip.open(file) as unpacked:
            shutil.copyfileobj(unpacked, kept)
    except (OSError, EOFError) as error:
        kept.close()
        raise LogUnavailable(f"{path}: cannot be unpacked: {error}") from None
    kept.seek(0)
    return kept


def _head_of(base: StateSnapshot) -> Head:
    return Head(base.position, open_snapshot(base).hash, 0)
