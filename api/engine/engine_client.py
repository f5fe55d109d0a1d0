"""The asyncio client of the engine: submit a command or ask a question, and await the answer.

The engine behind it changes: after a failure of the log the supervisor installs another one. While
another control plane leads, questions are answered from a world that follows the log. When there is
neither an engine nor such a world, every method raises Unavailable.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Generic, NoReturn, TypeVar

from aiohttp import web

from controlplane.decisions.step import Answer
from controlplane.engine import Engine
from controlplane.model.commands import Request
from controlplane.model.errors import Rejected
from controlplane.model.events import Recorded
from controlplane.ports import SearchableLog
from controlplane.state.image import Receipt
from controlplane.state.world import World

_log = logging.getLogger("muster.api")

T = TypeVar("T")
Listener = Callable[[Sequence[Recorded], World], None]

COMMANDS_MAX = 2_000
ANSWER_S_MAX = 30.0
# How long a question waits for an engine that is taking over.
TAKE_OVER_S_MAX = 10.0


class Unavailable(Rejected):
    """Raised when no engine leads, or the leading one stopped before the answer was known."""

    def __init__(self, message: str) -> None:
        super().__init__("unavailable", message)


class ReplicaRole(StrEnum):
    """The role of this control plane at the moment."""

    LEADER = "leader"
    STANDBY = "standby"
    # It only shows a log: no engine will ever lead here.
    READER = "reader"
    NEITHER = "neither"


class EngineClient:
    """The engine that leads now, if any, or a world that follows the log; and the log.

    `recorded` is the callback to pass to an engine as its `on_recorded`.
    """

    def __init__(
        self,
        log: SearchableLog,
        *,
        commands_max: int = COMMANDS_MAX,
        answer_s_max: float = ANSWER_S_MAX,
    ) -> None:
        self.log = log
        self.engine: Engine | None = None
        # The world as far as the log was followed, while another control plane leads.
        self.followed: World | None = None
        # Whether this process only shows the log: there is no engine, and nothing can be changed.
        self.is_read_only = False
        # The position from which an elected engine reads the rest of the log; questions wait for
        # that engine. None when no engine is taking over.
        self.takes_over_from: int | None = None
        # The URL at which other control planes reach this one.
        self.address = ""
        self.commands_in_flight = 0
        self._commands_max = commands_max
        self._answer_s_max = answer_s_max
        self._listeners: list[Listener] = []
        self._beginners: list[Callable[[int], None]] = []

    @property
    def leads(self) -> bool:
        return self.engine is not None and self.engine.leads

    @property
    def role(self) -> ReplicaRole:
        if self.is_read_only:
            return ReplicaRole.READER
        if self.leads:
            return ReplicaRole.LEADER
        return ReplicaRole.NEITHER if self.followed is None else ReplicaRole.STANDBY

    @property
    def leader(self) -> str:
        """The leader's URL, as far as the log was followed; empty if it is not known."""
        url = "" if self.followed is None else self.followed.leader
        # This control plane was the last leader: no other one has led since.
        return "" if url == self.address else url

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every batch that is in the log, and the world right after it."""
        self._listeners.append(listener)

    def on_skip(self, begin: Callable[[int], None]) -> None:
        self._beginners.append(begin)

    def recorded(self, batch: Sequence[Recorded]) -> None:
        assert self.engine is not None, "an engine runs that was not put here"
        self.publish(batch, self.engine.world)

    def skip_to(self, position: int) -> None:
        """Announce to subscribers the `position` from which the log is followed."""
        for begin in self._beginners:
            begin(position)

    def publish(self, batch: Sequence[Recorded], world: World) -> None:
        """Pass to the listeners a batch that is in the log, written by any control plane."""
        for listener in self._listeners:
            try:
                listener(batch, world)
            except Exception:  # noqa: BLE001 - an error of one listener must not affect the others
                # The remaining listeners must still get the batch, and the events are durable
                # already.
                _log.exception("a listener failed at position %d; going on", batch[-1].position)

    async def submit(self, command: Request) -> Receipt:
        """Submit `command`; return its receipt once its events are in the log. Raises Rejected."""
        return await self.submit_then(command, lambda _, receipt: receipt)

    async def submit_then(self, command: Request, view: Callable[[World, Receipt], T]) -> T:
        """As `submit`, but return `view` of the world in which the command was decided.

        A question asked afterwards would wait for the step that has begun meanwhile.
        """
        engine = self._leader()
        if self.commands_in_flight >= self._commands_max:
            raise Rejected("busy", f"{self.commands_in_flight} commands are waiting to be recorded")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        timer = loop.call_later(self._answer_s_max, _expire, outcome)
        self.commands_in_flight += 1
        try:
            engine.submit(command, lambda answer: _settle(outcome, engine, answer, view))
            return await outcome
        finally:
            self.commands_in_flight -= 1
            timer.cancel()

    async def ask(self, question: Callable[[World], T]) -> T:
        """Return `question(world)` for a world whose events are all durable."""
        if not self.leads and self.followed is not None:
            return question(self.followed)
        asked = _Asked(question)
        if self.takes_over_from is not None and self.engine is not None:
            self.engine.ask(asked)
            async with _patience():
                return await asked.answer()
        self._leader().ask(asked)
        return await asked.answer()

    def show(self, world: World) -> None:
        """Only show a log from here on: `world` is its end, and no command is accepted."""
        self.is_read_only, self.followed = True, world
        self.skip_to(world.position)

    def _leader(self) -> Engine:
        if self.is_read_only:
            message = "this server only shows a log; nothing was done"
            raise Rejected("read_only", message)
        if self.engine is None or not self.engine.leads:
            if self.followed is not None:
                raise Rejected("standby", "another control plane leads; nothing was done")
            raise Unavailable("no engine leads at the moment; nothing was done")
        return self.engine


@asynccontextmanager
async def _patience() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(TAKE_OVER_S_MAX):
            yield
    except TimeoutError:
        raise Unavailable(
            "this control plane is taking over and has not read the log yet"
        ) from None


def _settle(
    outcome: "asyncio.Future[T]",
    engine: Engine,
    answer: Answer,
    view: Callable[[World, Receipt], T],
) -> None:
    """Resolve `outcome` for the submitter. No exception may escape into the calling engine."""
    if outcome.done():
        return
    if answer is None:
        outcome.set_exception(_unknown("the engine stopped"))
    elif isinstance(answer, Rejected):
        outcome.set_exception(answer)
    else:
        try:
            outcome.set_result(view(engine.world, answer))
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            outcome.set_exception(error)


def _expire(outcome: "asyncio.Future[T]") -> None:
    if not outcome.done():
        outcome.set_exception(_unknown("the log took too long"))


def _unknown(what: str) -> Unavailable:
    return Unavailable(
        f"{what} before the outcome was known: it may or may not have happened; "
        "sent again with the same Idempotency-Key, it happens once"
    )


class _Asked(Generic[T]):
    """A question in progress. If it was answered immediately, no future is created."""

    __slots__ = ("_error", "_question", "_value", "_waiter")

    def __init__(self, question: Callable[[World], T]) -> None:
        self._question = question
        self._value: list[T] = []
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __call__(self, world: World | None) -> None:
        try:
            if world is None:
                _raise_stopped()
            self._value.append(self._question(world))
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            self._error = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def answer(self) -> T:
        if self._error is None and not self._value:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._error is not None:
            raise self._error
        return self._value[0]


def _raise_stopped() -> NoReturn:
    raise Unavailable("the engine stopped before it could answer")


ENGINE = web.AppKey("engine", EngineClient)
