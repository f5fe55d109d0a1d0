"""A log that is only read, held in memory: an export or a bundle that a person looks at.

A bundle begins with a state instead of an empty log; `base` is that state.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NoReturn

from controlplane.model.errors import LogUnavailable
from controlplane.model.events import Recorded
from controlplane.model.rows import Row
from controlplane.ports import EventLog, Head, StateSnapshot

PAGE_ROWS = 10_000


class HeldLog:
    """The rows of a log, with an index by stream. Nothing is written to it."""

    def __init__(self, rows: Sequence[Row], head: Head, base: StateSnapshot | None = None) -> None:
        self._rows = rows
        self._head = head
        self._base = base
        self._offset = rows[0].position if rows else 1
        self._streams: dict[str, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            self._streams[row.stream].append(index)

    @classmethod
    async def of(cls, log: EventLog) -> "HeldLog":
        """Return a copy of `log`; raise what reading it raises."""
        rows: list[Row] = []
        after = 0
        while page := await log.read(after, PAGE_ROWS):
            rows += page
            after = page[-1].position
        base = await log.latest_snapshot()
        begins_later = bool(rows) and rows[0].position > 1
        return cls(rows, await log.head(), base if begins_later or not rows else None)

    async def head(self) -> Head:
        return self._head

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        begin = max(0, after - self._offset + 1)
        return self._rows[begin : begin + limit]

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        indexes = self._streams.get(stream, [])
        begin = bisect_right(indexes, after - self._offset)
        end = bisect_right(indexes, upto - self._offset)
        return [self._rows[index] for index in indexes[begin:end]]

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        base = self._base
        if base is None or (at_most is not None and at_most < base.position):
            return None
        return base

    async def close(self) -> None:
        """Nothing: the rows stay, as a file would."""

    async def lead(self) -> Head:
        self._refuse()

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        self._refuse()

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise LogUnavailable("this log is only looked at; nothing is written to it")
