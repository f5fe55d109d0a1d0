"""An event log that continues another one: its past is a snapshot, its future a list."""

from collections.abc import Sequence

from controlplane.log.codec import to_rows
from controlplane.model.errors import LogConflict
from controlplane.model.events import Recorded
from controlplane.model.rows import Row
from controlplane.ports import Head, StateSnapshot


class BranchLog:
    """The log of one branch. No method suspends, so it works under SimPy."""

    def __init__(self, past: StateSnapshot, hash: bytes) -> None:
        self._past = past
        self._hash = hash
        self._epoch = 0
        self.events: list[Recorded] = []

    async def lead(self) -> Head:
        self._epoch += 1
        return await self.head()

    async def head(self) -> Head:
        # Only an engine that starts calls this, before there is an event to hash.
        position = self._past.position + len(self.events)
        return Head(position, self._hash, self._epoch)

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        end = self._past.position + len(self.events)
        if epoch != self._epoch or (batch and batch[0].position != end + 1):
            raise LogConflict(f"epoch {epoch} may not append behind {end}")
        self.events += batch

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        first = after - self._past.position
        assert first >= 0, "what lies before the fork is in the snapshot"
        rows = to_rows(self.events[: first + limit], self._hash)
        return rows[first:]

    async def save_snapshot(self, snapshot: StateSnapshot) -> None: ...

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        return self._past

    async def close(self) -> None: ...
