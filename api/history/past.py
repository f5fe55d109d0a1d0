"""The world at a past instant: GET /v1/state.

Every request folds the log again, and only a few run at once.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from api.engine.engine_client import ENGINE
from api.requests.instants import POSITION_MAX, Instant, seconds
from api.routes import Route, answer_bytes, encode, route
from controlplane.decisions.decider import find_job
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model.errors import Rejected
from controlplane.model.rows import Row
from controlplane.ports import EventLog, Head, LogReader, StateSnapshot
from controlplane.queries.queries import job_detail, job_view, node_view, nodes, queue_view, why
from controlplane.queries.views import JobDetail, JobView, NodeView, QueueView, Why
from controlplane.state.world import World

AT_ONCE_MAX = 2
WAITING_MAX = 8

T = TypeVar("T")


class StateQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    position: (
        Annotated[int, Meta(ge=0, le=POSITION_MAX, description="After this event.")] | UnsetType
    ) = UNSET
    at: Instant | UnsetType = UNSET
    job: (
        Annotated[str, Meta(max_length=127, description="NAMESPACE/NAME: this job in full, too.")]
        | UnsetType
    ) = UNSET


class JobThen(Struct, frozen=True, kw_only=True):
    """One job in full: its ranks with their devices, its restarts, and the reasons of its state."""

    detail: JobDetail
    why: Why


class State(Struct, frozen=True, kw_only=True):
    """The whole state at a position. Equal states have equal hashes."""

    position: int
    at: float
    state_hash: str
    jobs: list[JobView]
    nodes: list[NodeView]
    queues: list[QueueView]
    # The requested job; null if none was requested.
    job: JobThen | None = None


class Past:
    """Answers about the past, each in a thread, a few at a time: one takes seconds of CPU time."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting = 0

    async def state(self, *, position: int | None, at: float | None, job: str = "") -> bytes:
        """Return the state at `position` or at time `at`, as JSON."""
        return await self.look(lambda log: _state(log, position=position, at=at, job=job))

    async def look(self, question: Callable[[LogReader], Coroutine[Any, Any, T]]) -> T:
        """Return what `question` reads from the log, in a thread with its own event loop."""
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
    """A log of the server's event loop, readable from a thread with an event loop of its own."""

    def __init__(self, log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._loop = loop

    async def head(self) -> Head:
        return await self._there(self._log.head())

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        return await self._there(self._log.read(after, limit))

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        return await self._there(self._log.latest_snapshot(at_most))

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


async def _state(log: LogReader, *, position: int | None, at: float | None, job: str) -> bytes:
    rebuilt = await rebuild(log, position=position, at=at)
    return encode(state_of(rebuilt.world, job))


def state_of(world: World, job: str = "") -> State:
    """Return `world` as the API shows it; `job` is NAMESPACE/NAME of a job to show in full."""
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
    """Return one job in full; raise Rejected if there was no such job."""
    namespace, _, plain = name.rpartition("/")
    job = find_job(world, namespace or "default", plain)
    return JobThen(detail=job_detail(job), why=why(world, job))


async def get_state(request: web.Request, query: StateQuery) -> web.Response:
    """Answer with the state now, or at a position or time; with both, at the earlier of the two."""
    position = None if query.position is UNSET else query.position
    head = (await request.app[ENGINE].log.head()).position
    if position is not None and position > head:
        raise Rejected("no_such_position", f"the log ends at {head}", field="position")
    job = "" if query.job is UNSET else query.job
    at = seconds(query.at)
    state = await request.app[PAST].state(position=position, at=at, job=job)
    return answer_bytes(state)


PAST = web.AppKey("past", Past)

ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/state", get_state, "The world after an event, or at an instant",
        query=StateQuery, answers={200: State},
        problems=("invalid_parameter", "no_such_position", "no_such_job", "busy"),
    ),
)  # fmt: skip
