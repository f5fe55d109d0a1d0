"""The log as a list, for tests and for worlds in virtual time.

An append costs what extending a list costs: rows, and the hash chain through them, are made when a reader asks
for them. No method ever suspends, so the log works under SimPy too. Engines that share one MemoryLog are
distinguished by their epochs.
"""

from collections.abc import Iterable, Sequence

from controlplane.log.codec import to_rows
from controlplane.model.errors import LogConflict
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import Head, StateSnapshot, spare_snapshots


class MemoryLog:
    def __init__(self, events: Iterable[Recorded] = ()) -> None:
        self._events = list(events)
        self._rows: list[Row] = []
        self._epoch = 0
        self._snapshots: dict[int, StateSnapshot] = {}

    @property
    def events(self) -> Sequence[Recorded]:
        """What was appended, for a reader in the same process that needs no rows."""
        return self._events

    async def lead(self) -> Head:
        self._epoch += 1
        return await self.head()

    async def head(self) -> Head:
        rows = self._rows_up_to(len(self._events))
        return Head(len(rows), rows[-1].hash if rows else GENESIS, self._epoch)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if not batch:
            return
        end = len(self._events)
        if epoch != self._epoch or batch[0].position != end + 1:
            raise LogConflict(
                f"epoch {epoch} may not append at {batch[0].position}: "
                f"epoch {self._epoch} leads and the log ends at {end}"
            )
        assert batch[-1].position == end + len(batch), "a batch has no holes"
        self._events += batch

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return self._rows_up_to(after + limit)[after : after + limit]

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        return [row for row in self._rows_up_to(upto)[after:upto] if row.stream == stream]

    def _rows_up_to(self, position: int) -> list[Row]:
        missing = self._events[len(self._rows) : position]
        if missing:
            self._rows += to_rows(missing, self._rows[-1].hash if self._rows else GENESIS)
        return self._rows

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        self._snapshots[snapshot.position] = snapshot
        sizes = {position: len(kept.body) for position, kept in self._snapshots.items()}
        for position in spare_snapshots(sizes):
            del self._snapshots[position]

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        fitting = [p for p in self._snapshots if at_most is None or p <= at_most]
        return self._snapshots[max(fitting)] if fitting else None

    async def close(self) -> None:
        """Nothing: the list stays, as a file or a database would."""
