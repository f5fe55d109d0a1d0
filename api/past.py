"""The world as it was: GET /v1/state.

It is folded anew from the log for every question, and for few at once.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.control import CONTROL
from api.events import POSITION_MAX
from api.routes import Route, answer_bytes, encode, route
from controlplane.codec import Row
from controlplane.decider import find_job
from controlplane.errors import Rejected
from controlplane.page import Page
from controlplane.ports import EventLog, Head, LogReader, PageReader, Snapshot
from controlplane.queries import job_detail, job_view, node_view, nodes, queue_view, why
from controlplane.replay import rebuild, state_hash
from controlplane.views import JobDetail, JobView, NodeView, QueueView, Why
from controlplane.world import World

AT_ONCE_MAX = 2
WAITING_MAX = 8
SECONDS_MAX = 1e11

T = TypeVar("T")


class StateQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    position: (
        Annotated[int, Meta(ge=0, le=POSITION_MAX, description="After this event.")] | UnsetType
    ) = UNSET
    at: (
        Annotated[float, Meta(ge=0, le=SECONDS_MAX, description="UTC seconds, or ISO 8601.")]
        | Annotated[datetime, Meta(tz=True)]
        | UnsetType
    ) = UNSET
    job: (
        Annotated[str, Meta(max_length=127, description="NAMESPACE/NAME: this job in full, too.")]
        | UnsetType
    ) = UNSET


class JobThen(Struct, frozen=True, kw_only=True):
    """One job in full: its ranks with their devices, its restarts, and why it was as it was."""

    detail: JobDetail
    why: Why


class State(Struct, frozen=True, kw_only=True):
    """All that was at a position. Equal states have equal hashes."""

    position: int
    at: float
    state_hash: str
    jobs: list[JobView]
    nodes: list[NodeView]
    queues: list[QueueView]
    # The job that was asked for; null if none was.
    job: JobThen | None = None


class Past:
    """Answers about the past, few at a time, and each in a thread: it costs seconds of work."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting = 0

    async def state(self, *, position: int | None, at: float | None, job: str = "") -> bytes:
        """The state as JSON."""
        return await self.look(lambda log: _state(log, position=position, at=at, job=job))

    async def look(self, question: Callable[[LogReader], Coroutine[Any, Any, T]]) -> T:
        """What a question finds in the log; it is asked in a thread of its own."""
        if self._waiting >= WAITING_MAX:
            raise Rejected("busy", "many ask about the past; it takes a while")
        log = _FromAnotherLoop(self._log, asyncio.get_running_loop())
        self._waiting += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(lambda: asyncio.run(question(log)))
        finally:
            self._waiting -= 1


class _FromAnotherLoop:
    """A log that belongs to the server's loop, to be read from a thread with a loop of its own."""

    def __init__(self, log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._loop = loop

    async def head(self) -> Head:
        return await self._there(self._log.head())

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return await self._there(self._log.read(after, limit))

    async def read_pages(self, after: int, limit: int) -> Sequence[Page]:
        if isinstance(self._log, PageReader):
            return await self._there(self._log.read_pages(after, limit))
        return []

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        return await self._there(self._log.latest_snapshot(at_most))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


async def _state(log: LogReader, *, position: int | None, at: float | None, job: str) -> bytes:
    rebuilt = await rebuild(log, position=position, at=at)
    return encode(state_of(rebuilt.world, job))


def state_of(world: World, job: str = "") -> State:
    """The world as people see it; `job` is NAMESPACE/NAME of one to see in full."""
    queues = (queue_view(world, name) for name in sorted(world.queues))
    return State(
        position=world.position,
        at=world.at,
        state_hash=state_hash(world),
        jobs=[job_view(job) for job in world.jobs.values()],
        nodes=[node_view(world, node) for node in nodes(world)],
        queues=[queue for queue in queues if queue is not None],
        job=job_then(world, job) if job else None,
    )


def job_then(world: World, name: str) -> JobThen:
    """Raises Rejected if there was no such job."""
    namespace, _, plain = name.rpartition("/")
    found = find_job(world, namespace or "default", plain)
    return JobThen(detail=job_detail(found), why=why(world, found))


async def get_state(request: web.Request, query: StateQuery) -> web.Response:
    """Without a position or time it is the state now; with both, whichever comes first."""
    position = None if query.position is UNSET else query.position
    at = query.at.timestamp() if isinstance(query.at, datetime) else query.at
    head = (await request.app[CONTROL].log.head()).position
    if position is not None and position > head:
        raise Rejected("no_such_position", f"the log ends at {head}", field="position")
    job = "" if query.job is UNSET else query.job
    instant = None if at is UNSET else at
    state = await request.app[PAST].state(position=position, at=instant, job=job)
    return answer_bytes(state)


PAST = web.AppKey("past", Past)

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/state", get_state, "The world after an event, or at an instant",
        query=StateQuery, answers={200: State},
        problems=("invalid_parameter", "no_such_position", "no_such_job", "busy"),
    ),
)  # fmt: skip
