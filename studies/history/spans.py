"""Spans of time in one table with typed columns, of bounded length.

A span is opened with its values and closed later; an open one ends at infinity. When the table is
full, the quarter of the spans that ended first is dropped. Spans are numbered in the order of their
opening and keep their numbers; only open spans can be changed.
"""

from array import array
from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
# Columns of the same length, by name.
Table = dict[str, Column]


class Spans:
    """A table with the columns `begin`, `end` and those of `columns`, which have type codes."""

    def __init__(self, columns: Mapping[str, str], spans_max: int) -> None:
        codes = {"begin": "d", "end": "d", **columns}
        self._columns: dict[str, array[Any]] = {name: array(code) for name, code in codes.items()}
        self._spans_max = spans_max
        self._next = 0
        # The place in the columns of each open span, by number.
        self._open: dict[int, int] = {}
        # The end of the last span that was dropped: the table is complete after it.
        self.complete_after = -inf

    def __len__(self) -> int:
        return len(self._columns["begin"])

    def open(self, begin: float, **values: float) -> int:
        """Add a span that has not ended, with a value for each column; return its number."""
        if len(self) >= self._spans_max:
            self._drop_oldest()
        number = self._next
        self._next += 1
        self._open[number] = len(self)
        self._columns["begin"].append(begin)
        self._columns["end"].append(inf)
        for name, value in values.items():
            self._columns[name].append(value)
        return number

    def set(self, number: int, **values: float) -> None:
        """Change values of an open span; with `end` it is closed."""
        place = self._open.get(number)
        if place is None:
            return
        for name, value in values.items():
            self._columns[name][place] = value
        if "end" in values:
            del self._open[number]

    def column(self, name: str) -> Column:
        """Return a copy of a column, in the order of opening."""
        return np.array(self._columns[name])

    def replace(self, name: str, values: Column) -> None:
        """Replace a column."""
        code = self._columns[name].typecode
        self._columns[name] = array(code, values.tolist())

    def between(self, begin: float, end: float) -> Table:
        """Return the spans that overlap the time from `begin` to `end`, in the order of opening."""
        chosen = np.flatnonzero((self.column("begin") < end) & (self.column("end") > begin))
        return {name: self.column(name)[chosen] for name in self._columns}

    def _drop_oldest(self) -> None:
        ends = self.column("end")
        quarter = len(ends) // 4
        cut = float(np.partition(ends, quarter)[quarter])
        if cut == inf:
            # Too many are open: the spans that began first go.
            kept = np.arange(len(ends)) >= quarter
        else:
            kept = ends > cut
            self.complete_after = cut
        for name in self._columns:
            self.replace(name, self.column(name)[kept])
        moved = np.cumsum(kept) - 1
        self._open = {
            number: int(moved[place]) for number, place in self._open.items() if kept[place]
        }


def take(table: Table, chosen: Column) -> Table:
    """Return the chosen rows of a table; `chosen` has their indices."""
    return {name: column[chosen] for name, column in table.items()}
