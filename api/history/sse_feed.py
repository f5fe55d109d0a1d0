"""Live events after a position, for many watchers at once.

How it works:

1. A write to a watcher begins right after the watcher's position, and advances it. So every
   watcher gets every event once and in order, from the live feed or from the log.
2. Watchers that keep up are parked, and one loop writes the same bytes to all of them. A watcher
   that falls behind is woken, and catches up from the ring or the log in its own task.
3. The feed does not wait for a watcher that does not read: its buffer is bounded, and it is
   dropped when nothing of it was read for `stuck_s_max`. It may resume where it stopped.

Events are encoded once, and only while there is a watcher.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from time import perf_counter

from aiohttp import web

from api.history.sse_connection import Watcher
from api.history.sse_frames import BLOCK_BYTES_MAX, Block, Frame, blocks_of, frame_of, frame_of_row
from controlplane.model.errors import LogCorrupt, LogUnavailable, Rejected
from controlplane.model.events import Recorded
from controlplane.ports import SearchableLog
from controlplane.state.world import World

# How many watchers are written to before other tasks of this process get their turn.
WRITES_PER_TURN = 200
PAGE_ROWS = 500
# The number of rows in one search of the log for events of one job.
SEARCHED_ROWS = 20_000
# The pause after writing to all watchers, as a fraction of the time that took. Under a high rate of
# events it leaves CPU time to the engine, and what arrives during the pause is written in one
# block.
REST_SHARE = 1.0

_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "muster",
    # nginx would buffer events.
    "X-Accel-Buffering": "no",
}
_HELLO = b"retry: 2000\n\n"
_upto = attrgetter("upto")


@dataclass(frozen=True, slots=True)
class FeedLimits:
    watchers_max: int = 10_000
    ring_bytes_max: int = 8 << 20
    # How long a full buffer may stay full, in seconds.
    stuck_s_max: float = 20.0
    heartbeat_s: float = 15.0
    # How many watchers may read old events from the log at once.
    readers_max: int = 4


class Feed:
    """Distributes recorded events to watchers. `publish` is a listener of the engine."""

    def __init__(self, log: SearchableLog, limits: FeedLimits | None = None) -> None:
        self.watchers = 0
        self.dropped = 0
        self._log = log
        self._limits = limits or FeedLimits()
        # Positions: `_published` is the last event published to the feed; `_sent` the last one offered
        # to the parked watchers. The events between them are in `_fresh`, or are being offered.
        self._published = 0
        self._sent = 0
        self._fresh: list[Frame] = []
        self._ring: list[Block] = []
        self._ring_bytes = 0
        self._parked: dict[Watcher, None] = {}
        self._news = asyncio.Event()
        self._readers = asyncio.Semaphore(self._limits.readers_max)
        self._is_closed = False

    # -- the engine's side -------------------------------------------------------------------

    def publish(self, batch: Sequence[Recorded], world: World | None = None) -> None:
        """Queue a batch that is in the log. `run` writes it out later."""
        follows = batch[0].position == self._published + 1
        self._published = batch[-1].position
        if self.watchers and follows:
            self._fresh += [frame_of(recorded) for recorded in batch]
            self._news.set()
        else:
            # There was no watcher, or another engine wrote meanwhile: watchers read the gap from
            # the log.
            self._skip_to(self._published)

    def begin_at(self, position: int) -> None:
        """Skip to `position`, the end of the log, unless the feed has reached it already."""
        if position > self._published:
            self._published = position
            self._skip_to(position)

    def _skip_to(self, position: int) -> None:
        self._sent = position
        self._fresh.clear()
        self._ring.clear()
        self._ring_bytes = 0
        for watcher in list(self._parked):
            self._wake(watcher)

    async def run(self) -> None:
        """Write to all watchers that keep up, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            while True:
                await self._news.wait()
                began = perf_counter()
                self._news.clear()
                frames, self._fresh = self._fresh, []
                for block in blocks_of(frames):
                    await self._offer(block)
                await asyncio.sleep(REST_SHARE * (perf_counter() - began))

    async def _offer(self, block: Block) -> None:
        if block.after != self._sent:
            # The feed has skipped ahead; watchers that wait for this block read it from the log.
            return
        self._sent = block.upto
        self._keep(block)
        async for watcher in self._in_turns():
            if watcher.position == block.after and watcher.keeps_up:
                watcher.write(block)
            elif watcher.position < block.upto:
                self._wake(watcher)

    def _keep(self, block: Block) -> None:
        self._ring.append(block)
        self._ring_bytes += len(block.data)
        while self._ring_bytes > self._limits.ring_bytes_max:
            self._ring_bytes -= len(self._ring.pop(0).data)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._limits.heartbeat_s)
            async for watcher in self._in_turns():
                if watcher.is_gone:
                    self._wake(watcher)
                elif watcher.keeps_up:
                    watcher.beat()

    async def _in_turns(self) -> AsyncIterator[Watcher]:
        """Yield each watcher that is still parked at its turn, with pauses for other tasks."""
        parked = list(self._parked)
        for start in range(0, len(parked), WRITES_PER_TURN):
            for watcher in parked[start : start + WRITES_PER_TURN]:
                if watcher in self._parked:
                    yield watcher
            await asyncio.sleep(0)

    def _wake(self, watcher: Watcher) -> None:
        # From here on only its own task writes to it.
        self._parked.pop(watcher, None)
        watcher.wake()

    def close(self) -> None:
        """End all streams, so that the server can stop."""
        self._is_closed = True
        for watcher in list(self._parked):
            self._wake(watcher)

    # -- the watchers' side ------------------------------------------------------------------

    async def serve(
        self, request: web.Request, *, after: int, stream: str | None = None
    ) -> web.StreamResponse:
        """Stream the events after position `after`, of one stream or all, until the client goes."""
        if self.watchers >= self._limits.watchers_max:
            raise Rejected("busy", f"{self.watchers} are watching; no more are taken")
        response = web.StreamResponse(headers=_HEADERS)
        self.watchers += 1
        try:
            # A client that is gone, or a failure of the log, ends the stream; the client may resume
            # it.
            with suppress(ConnectionError, LogUnavailable, LogCorrupt):
                await response.prepare(request)
                if request.method != "HEAD":
                    await response.write(_HELLO)
                    await self._follow(Watcher(request, position=after, stream=stream))
        finally:
            self.watchers -= 1
        return response

    async def _follow(self, watcher: Watcher) -> None:
        while not watcher.is_gone and not self._is_closed:
            if watcher.position >= self._sent:
                await self._park(watcher)
                continue
            for block in await self._after(watcher.position, watcher.stream):
                if not watcher.keeps_up and not await watcher.drained(self._limits.stuck_s_max):
                    self.dropped += 1
                    return
                watcher.write(block)
            await asyncio.sleep(0)

    async def _park(self, watcher: Watcher) -> None:
        self._parked[watcher] = None
        try:
            await watcher.rest()
        finally:
            self._parked.pop(watcher, None)

    async def _after(self, position: int, stream: str | None) -> list[Block]:
        """Return some blocks after `position`, which must be less than `_sent`."""
        if self._ring and position >= self._ring[0].after:
            return self._from_ring(position)
        async with self._readers:
            if stream is not None:
                upto = min(self._sent, position + SEARCHED_ROWS)
                rows = await self._log.read_stream(stream, position, upto)
                return [Block([frame_of_row(row) for row in rows], after=position, upto=upto)]
            rows = await self._log.read(position, min(PAGE_ROWS, self._sent - position))
        if not rows:
            raise LogUnavailable(f"the log has nothing after {position}")
        return list(blocks_of([frame_of_row(row) for row in rows]))

    def _from_ring(self, position: int) -> list[Block]:
        first = bisect_right(self._ring, position, key=_upto)
        blocks = [self._ring[first].since(position)]
        size = len(blocks[0].data)
        for block in islice(self._ring, first + 1, None):
            size += len(block.data)
            if size > BLOCK_BYTES_MAX:
                break
            blocks.append(block)
        return blocks


FEED = web.AppKey("feed", Feed)
