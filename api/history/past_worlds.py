"""Questions about the past: the same views as of the present, at a position or an instant.

A question about the past gets a world that is folded from the nearest earlier state: one that was
asked for lately, a checkpoint of the history index, or a snapshot of the log. Worlds that were asked
for lately are kept, since a page asks several questions about the same instant. Folding and
answering happen in a thread, one question at a time.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from aiohttp import web
from msgspec import UNSET

from api.engine.engine_client import ENGINE
from api.history.history_index import HistoryFollower
from api.requests.headers import AT_HEADER, POSITION_HEADER
from api.requests.instants import PastQuery, seconds
from controlplane.log.codec import from_row
from controlplane.log.replay import position_at
from controlplane.log.snapshots import SnapshotUnreadable, read_snapshot
from controlplane.model.errors import Rejected
from controlplane.model.rows import Row
from controlplane.ports import SearchableLog
from controlplane.state.image import StateImage
from controlplane.state.state import State
from controlplane.state.world import World

WORLDS_MAX = 4
WAITING_MAX = 64
PAGE_ROWS = 5_000

T = TypeVar("T")


class PastWorlds:
    """Worlds at past positions, a few of which are kept."""

    def __init__(self, log: SearchableLog, follower: HistoryFollower) -> None:
        self._log = log
        self._follower = follower
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._worlds: OrderedDict[int, World] = OrderedDict()

    async def ask(self, position: int, question: Callable[[World], T]) -> T:
        """Return `question(world)` for the world after `position`, which must be in the log."""
        if self._waiting >= WAITING_MAX:
            raise Rejected("busy", "many ask about the past; it takes a while")
        self._waiting += 1
        try:
            async with self._turn:
                world = await self._world(position)
                return await asyncio.to_thread(question, world)
        finally:
            self._waiting -= 1

    async def _world(self, position: int) -> World:
        known = self._worlds.get(position)
        if known is not None:
            self._worlds.move_to_end(position)
            return known
        image = await self._nearest(position)
        state = State(image)
        while state.position < position:
            count = min(PAGE_ROWS, position - state.position)
            rows = await self._log.read(state.position, count)
            if not rows:
                raise Rejected("no_such_position", f"the log ends at {state.position}")
            await asyncio.to_thread(_apply, state, rows)
        world = await asyncio.to_thread(lambda: World(state=state))
        self._worlds[position] = world
        if len(self._worlds) > WORLDS_MAX:
            self._worlds.popitem(last=False)
        return world

    async def _nearest(self, position: int) -> StateImage | None:
        """Return the latest known state at `position` or before it; None is the empty one."""
        checkpoint = self._follower.index.checkpoints.before(position)
        lately = max((known for known in self._worlds if known <= position), default=0)
        nearest = checkpoint
        if lately > (0 if nearest is None else nearest.position):
            nearest = self._worlds[lately].image(with_receipts=False)
        snapshot = await self._log.latest_snapshot(position) if nearest is None else None
        if snapshot is not None:
            try:
                nearest = await asyncio.to_thread(read_snapshot, snapshot)
            except SnapshotUnreadable:
                # It is a cache: the first event leads to the same state.
                return None
        return nearest


def _apply(state: State, rows: Sequence[Row]) -> None:
    for row in rows:
        state.apply(from_row(row))


PAST_WORLDS = web.AppKey("past_worlds", PastWorlds)


async def ask_when(
    request: web.Request, query: PastQuery, question: Callable[[World], T]
) -> tuple[T, dict[str, str]]:
    """Return the answer to `question` now or then, and headers that say as of which event."""

    def ask(world: World) -> tuple[T, int, float]:
        return question(world), world.position, world.at

    if query.is_past:
        position = await resolved(request, query)
        answer, position, at = await request.app[PAST_WORLDS].ask(position, ask)
    else:
        answer, position, at = await request.app[ENGINE].ask(ask)
    return answer, {POSITION_HEADER: str(position), AT_HEADER: f"{at:.6f}"}


async def resolved(request: web.Request, query: PastQuery) -> int:
    """Return the position that the query names: the earlier one, if it names two."""
    log = request.app[ENGINE].log
    head = (await log.head()).position
    position = head if query.position is UNSET else query.position
    if position > head:
        raise Rejected("no_such_position", f"the log ends at {head}", field="position")
    at = seconds(query.at)
    if at is not None:
        position = min(position, await position_at(log, at))
    # A bundle begins with the state before its first event.
    first = await log.read(0, 1)
    return max(position, first[0].position - 1) if first else position


PAST_PROBLEMS = ("invalid_parameter", "no_such_position", "busy")
