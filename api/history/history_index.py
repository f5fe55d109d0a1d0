"""Keeps the history index up to date with the log.

While the engine (or a standby) passes on batches that follow what the index has, the index takes
them in as they come, with the world that they lead to. After a start, or when batches were missed, a
task reads the rows of the log, folds them into a state of its own, and stops where live batches
follow. It works half of the time and rests as long, so that the engine gets its share.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from time import perf_counter

from aiohttp import web

from controlplane.log.codec import from_row
from controlplane.log.replay import beginning
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.events import Recorded
from controlplane.ports import LogReader
from controlplane.state.state import State
from controlplane.state.world import World
from studies.history.index import HistoryIndex

_log = logging.getLogger("muster.api")

PAGE_ROWS = 2_000
# How many events are folded before other tasks of this process get their turn.
EVENTS_PER_TURN = 200
RETRY_S = 5.0


class HistoryFollower:
    """The index, and the task that brings it up to date. `record` is a listener of the engine."""

    def __init__(self, log: LogReader, now: Callable[[], float] | None = None) -> None:
        self.index = HistoryIndex()
        self._log = log
        self._now = now
        # The fold up to the index's position, while it reads the log; None while it is live.
        self._state: State | None = State()
        self._missed = asyncio.Event()
        self._missed.set()

    @property
    def is_live(self) -> bool:
        """Whether the index has everything that was passed on."""
        return self._state is None

    def now(self) -> float:
        """Return the time of the cluster's clock; without one, the time of the last event."""
        at = self.index.at
        return at if self._now is None else max(at, self._now())

    def record(self, batch: Sequence[Recorded], world: World) -> None:
        if batch[0].position == self.index.position + 1:
            self.index.observe(batch, world)
            self._state = None
        elif batch[-1].position > self.index.position:
            self._missed.set()

    async def run(self) -> None:
        """Read what was missed, again and again, until cancelled."""
        while True:
            await self._missed.wait()
            self._missed.clear()
            try:
                await self._catch_up()
            except LogUnavailable:
                await asyncio.sleep(RETRY_S)
                self._missed.set()
            except (LogCorrupt, AssertionError, LookupError) as error:
                _log.error("the history ends at %d: %s", self.index.position, error)
                return

    async def _catch_up(self) -> None:
        if self._state is None:
            # Another engine wrote meanwhile, so there is no state at the index's position.
            self.index, self._state = HistoryIndex(), State()
        if self._state.position == 0:
            await self._begin_later()
        state, index = self._state, self.index
        while rows := await self._log.read(state.position, PAGE_ROWS):
            for start in range(0, len(rows), EVENTS_PER_TURN):
                if self.is_live:
                    # The engine has passed on what is left of this page.
                    return
                began = perf_counter()
                decoded = [from_row(row) for row in rows[start : start + EVENTS_PER_TURN]]
                for _, batch in groupby(decoded, key=lambda recorded: recorded.at):
                    _fold(index, state, list(batch))
                await asyncio.sleep(perf_counter() - began)

    async def _begin_later(self) -> None:
        """Begin with the state of a bundle, whose first event is not the first of its log."""
        rows = await self._log.read(0, 1)
        if rows and rows[0].position > 1:
            begun = await beginning(self._log)
            self._state = State(begun.world.image(begun.hash))
            self.index.begin(self._state, rows[0].at)


def _fold(index: HistoryIndex, state: State, batch: Sequence[Recorded]) -> None:
    for recorded in batch:
        state.apply(recorded)
    index.observe(batch, state)


HISTORY_FOLLOWER = web.AppKey("history_follower", HistoryFollower)
