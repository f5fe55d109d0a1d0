"""An event log that numbers events and fences writers, but stores nothing.

A study needs the engine's decisions and not their record, and a million events would fill the
memory. The past of a study may be given, as a few events or as a snapshot.
"""

from collections.abc import Sequence

from controlplane.log.codec import to_rows
from controlplane.model.errors import LogConflict
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import Head, StateSnapshot


class NullLog:
    """An EventLog port for studies."""

    def __init__(
        self, *, past: Sequence[Recorded] = (), snapshot: StateSnapshot | None = None
    ) -> None:
        """Begin after the events of `past`, or at the position of `snapshot`."""
        assert not past or snapshot is None, "one past is enough"
        self._snapshot = snapshot
        self._rows = to_rows(past, GENESIS)
        self._end = len(self._rows) if snapshot is None else snapshot.position
        self._epoch = 0

    @property
    def end(self) -> int:
        """The number of events appended so far, including the past."""
        return self._end

    async def lead(self) -> Head:
        self._epoch += 1
        return await self.head()

    async def head(self) -> Head:
        last = self._rows[-1].hash if len(self._rows) == self._end and self._rows else GENESIS
        return Head(self._end, last, self._epoch)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if epoch != self._epoch or batch[0].position != self._end + 1:
            raise LogConflict(f"epoch {epoch} may not append at {batch[0].position}")
        self._end += len(batch)

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return self._rows[after : after + limit]

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        kept = self._snapshot
        return kept if kept is None or at_most is None or kept.position <= at_most else None

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        """Do nothing: no caller reads a snapshot of a study."""

    async def close(self) -> None:
        """Do nothing: no resource is open."""
