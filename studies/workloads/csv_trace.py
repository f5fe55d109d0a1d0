"""Muster's own trace format: CSV with a header and at least `id,submit,gpus,duration`, in seconds.

A trace is accepted as a whole or refused as a whole, with the number of the first bad line.
"""

import csv
import gzip
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from studies.workloads.shares import demand
from studies.workloads.trace import LABELS, BadTrace, Trace, make_trace

REQUIRED = ("id", "submit", "gpus", "duration")
NUMBERS = ("estimate", "priority", "min_replicas", "max_replicas")
COLUMNS = (*REQUIRED, *NUMBERS, *LABELS)

GPUS_MAX = 1_000_000
# Over thirty thousand years, far beyond any real time in seconds since 1970.
SECONDS_MAX = 1e12
DURATION_MAX = 10 * 365 * 86_400
PRIORITY_MAX = 1_000_000_000
# The length to which an unknown header is cut in messages.
HEADER_SHOWN = 200


def open_text(path: Path) -> io.TextIOBase:
    """Open a file as UTF-8 text, unpacked if it is gzip.

    Raise BadTrace if it cannot be read; reading raises UnicodeDecodeError if it is not UTF-8.
    """
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file as bytes, unpacked if it is gzip; raise BadTrace if it cannot be read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise BadTrace(str(path), None, f"cannot be read: {error.strerror}") from None
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def read_csv(path: Path) -> Trace:
    """Read a trace in Muster's own format; raise BadTrace with the first bad line."""
    with open_text(path) as file:
        try:
            return parse_csv(path.name, file)
        except UnicodeDecodeError as error:
            raise BadTrace(path.name, None, f"is not UTF-8 text: {error.reason}") from None
        except (OSError, EOFError) as error:
            raise BadTrace(path.name, None, f"cannot be unpacked: {error}") from None


def parse_csv(name: str, lines: Iterator[str] | io.TextIOBase) -> Trace:
    table = Table(name, lines)
    columns = table.columns(REQUIRED)
    unused = [column for column in table.header if column not in COLUMNS]
    notes = [f"columns that a study does not use: {_listed(unused)}"] if unused else []
    ids = columns["id"]
    if not ids:
        raise table.bad(None, "has no jobs: nothing follows the line that names the columns")
    table.require_distinct(ids)
    numbers = {
        column: table.numbers(column, columns[column], check)
        for column, check in _CHECKS.items()
        if column in columns
    }
    labels: dict[str, Sequence[str]] = {
        column: columns[column] for column in LABELS if column in columns
    }
    table.require_shares(numbers["gpus"].tolist(), labels.get("shares", ()))
    return make_trace(name, ids, labels=labels, notes=notes, **numbers)


def _listed(header: Sequence[str]) -> str:
    """Return the column names in a form that is safe to print on a terminal, and not too long."""
    names = ", ".join(header)
    names = names if names.isprintable() else repr(names)[1:-1]
    return names if len(names) <= HEADER_SHOWN else names[:HEADER_SHOWN] + "..."


class Table:
    """The rows of a CSV file, each with its line; every error names the file and the line."""

    def __init__(self, name: str, lines: Iterator[str] | io.TextIOBase) -> None:
        self.name = name
        reader = csv.reader(lines, strict=True)
        self.header: list[str] = []
        self.rows: list[list[str]] = []
        # The line on which each row ends; it differs from the row's number where a quoted field
        # contains a line break.
        self.lines: list[int] = []
        try:
            for row in reader:
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                if not self.header:
                    self.header = [cell.strip() for cell in row]
                    continue
                self.rows.append(row)
                self.lines.append(reader.line_num)
        except csv.Error as error:
            raise self.bad(reader.line_num, f"is not CSV: {error}") from None
        if not self.header:
            raise BadTrace(name, None, "is empty: the first line must name the columns")

    def bad(self, line: int | None, problem: str) -> BadTrace:
        return BadTrace(self.name, line, problem)

    def columns(self, required: Sequence[str]) -> dict[str, list[str]]:
        """Return the cells by column.

        Raise BadTrace if a required column is missing, a column is repeated, or a row is uneven.
        """
        header = self.header
        for column in required:
            if column not in header:
                raise self.bad(1, f"there is no column {column!r}; it has {_listed(header)}")
        for place, column in enumerate(header):
            if header.index(column) != place:
                raise self.bad(1, f"the column {column!r} is there twice")
        width = len(header)
        for row, line in zip(self.rows, self.lines, strict=True):
            if len(row) != width:
                raise self.bad(line, f"has {len(row)} fields; the header names {width}")
        cells = list(zip(*self.rows, strict=True)) if self.rows else [()] * width
        return {column: list(cells[i]) for i, column in enumerate(header)}

    def require_distinct(self, ids: Sequence[str]) -> None:
        """Raise BadTrace for an empty or repeated id."""
        if all(ids) and len(set(ids)) == len(ids):
            return
        first: dict[str, int] = {}
        for text, line in zip(ids, self.lines, strict=True):
            if not text.strip():
                raise self.bad(line, "the id is empty")
            if text in first:
                raise self.bad(line, f"the id {text!r} is that of line {first[text]} too")
            first[text] = line

    def require_shares(self, gpus: Sequence[float], shares: Sequence[str]) -> None:
        """Raise BadTrace for invalid shares."""
        for number, text, line in zip(gpus, shares, self.lines, strict=False):
            try:
                demand(number, text)
            except ValueError as error:
                raise self.bad(line, str(error)) from None

    def numbers(self, column: str, cells: Sequence[str], check: "Check") -> Any:
        """Return a column as an array; raise BadTrace with the first bad line.

        The whole column is converted at once, and line by line only to find a bad cell.
        """
        try:
            values = np.array([cell or "nan" for cell in cells], dtype=np.float64)
        except ValueError:
            values = None
        if values is None or not bool(check.all_fine(values)):
            filled = [self._number(column, cell, line, check) for cell, line in self._lined(cells)]
            values = np.array(filled, dtype=np.float64)
        return values if check.optional_nan else np.nan_to_num(values).astype(check.kind)

    def _lined(self, cells: Sequence[str]) -> Iterator[tuple[str, int]]:
        return zip(cells, self.lines, strict=True)

    def _number(self, column: str, cell: str, line: int, check: "Check") -> float:
        if not cell.strip():
            if check.may_be_empty:
                return math.nan
            raise self.bad(line, f"{column} is empty")
        try:
            value = float(cell)
        except ValueError:
            raise self.bad(line, f"{column} is {cell!r}, which is not a number") from None
        if not bool(check.all_fine(np.array([value]))):
            raise self.bad(line, f"{column} is {cell.strip()}; it must be {check.rule}")
        return value


class Check:
    """The permitted numbers of a column."""

    def __init__(
        self,
        least: float,
        most: float,
        rule: str,
        *,
        whole: bool = False,
        milli: bool = False,
        may_be_empty: bool = False,
        optional_nan: bool = False,
    ) -> None:
        self.least, self.most, self.rule = least, most, rule
        self.milli = milli
        self.whole, self.may_be_empty, self.optional_nan = whole, may_be_empty, optional_nan
        self.kind: type[np.generic] = np.int64 if whole else np.float64

    def all_fine(self, values: Any) -> Any:
        fine = (values >= self.least) & (values <= self.most)
        if self.whole:
            fine &= values == np.floor(values)
        if self.milli:
            # A thousandth has no exact double, so a written value may miss it slightly.
            fine &= np.abs(values * 1_000 - np.rint(values * 1_000)) < 1e-6
        if self.may_be_empty:
            fine |= np.isnan(values)
        return fine.all()


_SECONDS = f"a number of seconds from 0 to {SECONDS_MAX:g}"
_RUN = f"a number of seconds from 0 to {DURATION_MAX:g} (ten years)"
_REPLICAS = f"a whole number from 0 to {GPUS_MAX}"
_CHECKS = {
    "submit": Check(0, SECONDS_MAX, _SECONDS),
    "gpus": Check(0, GPUS_MAX, f"a number from 0 to {GPUS_MAX}, in thousandths", milli=True),
    "duration": Check(0, DURATION_MAX, _RUN),
    "estimate": Check(0, DURATION_MAX, _RUN, may_be_empty=True, optional_nan=True),
    "priority": Check(-PRIORITY_MAX, PRIORITY_MAX, "a whole number", whole=True, may_be_empty=True),
    "min_replicas": Check(0, GPUS_MAX, _REPLICAS, whole=True, may_be_empty=True),
    "max_replicas": Check(0, GPUS_MAX, _REPLICAS, whole=True, may_be_empty=True),
}


def write_csv(trace: Trace, file: io.TextIOBase) -> None:
    """Write the trace in Muster's own format; whole numbers are written without a fraction."""
    optional = [name for name in NUMBERS if getattr(trace, name) is not None]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*REQUIRED, *optional, *trace.labels])
    columns = [
        [number_text(value) for value in getattr(trace, name).tolist()]
        for name in ("submit", "gpus", "duration", *optional)
    ]
    writer.writerows(zip(trace.ids, *columns, *trace.labels.values(), strict=True))


def number_text(value: float) -> str:
    """Return the shortest text that reads back as the same number; "" for NaN."""
    if value != value:
        return ""
    return str(int(value)) if value == int(value) else repr(value)
