"""A log that numbers events, refuses a wrong writer, and keeps nothing.

A study needs the engine's decisions and not their record, and a million events would fill the
memory. What was before a study begins may be given, as a few events or as a snapshot.
"""

from collections.abc import Sequence

from controlplane.codec import GENESIS, Row, to_rows
from controlplane.errors import LogConflict
from controlplane.events import Event, Recorded
from controlplane.ports import Head, Snapshot


class ForgetfulLog:
    def __init__(
        self, *, past: Sequence[Event] = (), at: float = 0.0, snapshot: Snapshot | None = None
    ) -> None:
        """Begins after events that happened at this time, or where a snapshot was taken."""
        assert not past or snapshot is None, "one past is enough"
        self._snapshot = snapshot
        recorded = [Recorded(i, at, event) for i, event in enumerate(past, 1)]
        self._rows = to_rows(recorded, GENESIS)
        self._end = len(self._rows) if snapshot is None else snapshot.position
        self._epoch = 0

    @property
    def end(self) -> int:
        """How many events there have been."""
        return self._end

    async def lead(self) -> Head:
        self._epoch += 1
        return await self.head()

    async def head(self) -> Head:
        last = self._rows[-1][-1] if len(self._rows) == self._end and self._rows else GENESIS
        return Head(self._end, last, self._epoch)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if epoch != self._epoch or batch[0].position != self._end + 1:
            raise LogConflict(f"epoch {epoch} may not append at {batch[0].position}")
        self._end += len(batch)

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return self._rows[after : after + limit]

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        kept = self._snapshot
        return kept if kept is None or at_most is None or kept.position <= at_most else None

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Not kept: nobody will ask."""

    async def close(self) -> None:
        """Nothing is open."""
