"""Live events after a position, for many watchers at once.

Laws that hold here:

1. Whatever is written to a watcher is what follows right behind its position, and moves it. So
   every watcher sees every event once and in order, however it came by it.
2. Those who keep up are parked, and one loop writes the same bytes to all of them. Who falls
   behind is woken, and catches up from the ring or the log in its own time.
3. A watcher that reads nothing is not waited for: its buffer is bounded, and it is dropped when
   nothing of it was read for a while. It may resume where it stopped.

Events are encoded once, and only while somebody watches.
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

from api.frames import BLOCK_BYTES_MAX, Block, Frame, blocks_of, frame_of, frame_of_row
from api.watcher import Watcher
from controlplane.errors import LogCorrupt, LogUnavailable, Rejected
from controlplane.events import Recorded
from controlplane.ports import SearchableLog
from controlplane.world import World

# How many watchers are written to before the others in this process get their turn.
WRITES_PER_TURN = 200
PAGE_ROWS = 500
# In so many rows at a time the log looks for those of one job.
SEARCHED_ROWS = 20_000
# How long to rest after writing to everybody, as a share of the time that took. In a storm of
# events it leaves the engine its time, and what comes meanwhile is written at once.
REST_SHARE = 1.0

_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": "muster",
    # nginx would hold events back.
    "X-Accel-Buffering": "no",
}
_HELLO = b"retry: 2000\n\n"
_upto = attrgetter("upto")


@dataclass(frozen=True, slots=True)
class FeedLimits:
    watchers_max: int = 10_000
    ring_bytes_max: int = 8 << 20
    # How long a full buffer may stay full.
    stuck_s_max: float = 20.0
    heartbeat_s: float = 15.0
    # How many may read old events from the log at once.
    readers_max: int = 4


class Feed:
    """Everything that is recorded, for whoever watches. `publish` listens to the engine."""

    def __init__(self, log: SearchableLog, limits: FeedLimits | None = None) -> None:
        self.watchers = 0
        self.dropped = 0
        self._log = log
        self._limits = limits or FeedLimits()
        # Positions: up to `_told` the feed has heard of everything; up to `_sent` it was offered
        # to those who keep up. What lies between is in `_fresh`, or being offered.
        self._told = 0
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
        """Takes events that are in the log. They are written out later, by `run`."""
        follows = batch[0].position == self._told + 1
        self._told = batch[-1].position
        if self.watchers and follows:
            self._fresh += [frame_of(recorded) for recorded in batch]
            self._news.set()
        else:
            # Nobody watched, or another engine wrote meanwhile: the log has what is missing here.
            self._skip_to(self._told)

    def begin_at(self, position: int) -> None:
        """Says how long the log is, to a feed that has heard of nothing yet."""
        if position > self._told:
            self._told = position
            self._skip_to(position)

    def _skip_to(self, position: int) -> None:
        self._sent = position
        self._fresh.clear()
        self._ring.clear()
        self._ring_bytes = 0
        for watcher in list(self._parked):
            self._wake(watcher)

    async def run(self) -> None:
        """Writes to all who keep up, until it is cancelled."""
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
            # The feed has skipped ahead; those who wait for this block find it in the log.
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
        """Those who are parked now, as long as they are, with pauses for everybody else."""
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
        """Ends all streams, so that the server can stop."""
        self._is_closed = True
        for watcher in list(self._parked):
            self._wake(watcher)

    # -- the watchers' side ------------------------------------------------------------------

    async def serve(
        self, request: web.Request, *, after: int, stream: str | None = None
    ) -> web.StreamResponse:
        """Answers with the events after a position, of one stream or all, for as long as asked."""
        if self.watchers >= self._limits.watchers_max:
            raise Rejected("busy", f"{self.watchers} are watching; no more are taken")
        response = web.StreamResponse(headers=_HEADERS)
        self.watchers += 1
        try:
            # A client that is gone, or a log that fails, ends a stream: it may be resumed.
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
        """Some of what follows a position that lies before `_sent`."""
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
        found = [self._ring[first].since(position)]
        size = len(found[0].data)
        for block in islice(self._ring, first + 1, None):
            size += len(block.data)
            if size > BLOCK_BYTES_MAX:
                break
            found.append(block)
        return found


FEED = web.AppKey("feed", Feed)
