"""An exported log, read as the engine's log is read: one event a line, only forwards, never written.

What comes through a pipe is kept in an unnamed file, so that it can be read more than once.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

from controlplane.codec import GENESIS, Row, from_line
from controlplane.errors import LogCorrupt, LogUnavailable
from controlplane.events import Recorded
from controlplane.ports import Head, Snapshot

LINE_BYTES_MAX = 64 * 2**20
_TAIL_BYTES = 2**16


class ExportedLog:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._line = 0
        self._position = 0

    @classmethod
    def open(cls, path: Path) -> "ExportedLog":
        try:
            return cls(path.open("rb"))
        except OSError as error:
            raise LogUnavailable(f"{path}: {(error.strerror or str(error)).lower()}") from None

    @classmethod
    def from_stdin(cls) -> "ExportedLog":
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the log
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.seek(0)
        return cls(kept)

    def first_position(self) -> int:
        """Where the export begins; 0 if it is empty."""
        self._rewind()
        row = self._next()
        self._rewind()
        return 0 if row is None else row[0]

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        if after < self._position:
            self._rewind()
        rows: list[Row] = []
        while len(rows) < limit and (row := self._next()) is not None:
            if row[0] > after:
                rows.append(row)
        return rows

    async def head(self) -> Head:
        """What the last line says; whether it is the end of the log, an export cannot tell."""
        line = self._last_line()
        if not line:
            return Head(0, GENESIS, 0)
        try:
            row = from_line(line)
        except ValueError as error:
            raise LogCorrupt(0, f"the last line cannot be read: {error}") from None
        return Head(row[0], row[8], 0)

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        return None

    async def close(self) -> None:
        self._file.close()

    async def lead(self) -> Head:
        self._refuse()

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        self._refuse()

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LogUnavailable("an exported log is only read; import it to write to it")

    def _rewind(self) -> None:
        self._file.seek(0)
        self._line = self._position = 0

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
        self._position = row[0]
        return row

    def _last_line(self) -> bytes:
        """Read from the end, in steps that double until a whole line is in."""
        size, step = self._file.seek(0, 2), _TAIL_BYTES
        while True:
            self._file.seek(max(0, size - step))
            lines = self._file.read().strip().splitlines()
            if len(lines) > 1 or step >= size:
                break
            step *= 2
        self._rewind()
        return lines[-1] if lines else b""
