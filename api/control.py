"""The asyncio side of the engine: hand a command in and wait, ask a question and wait.

The engine behind it changes: after the log failed, whoever runs the server puts another one here.
While another control plane leads, questions are answered from a world that follows the log. When
there is neither there is no truth to tell, so everything here raises Unavailable.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Generic, NoReturn, TypeVar

from aiohttp import web

from controlplane.commands import Request
from controlplane.engine import Answer, Engine
from controlplane.errors import Rejected
from controlplane.events import Recorded
from controlplane.image import Receipt
from controlplane.ports import SearchableLog
from controlplane.world import World

_log = logging.getLogger("muster.api")

T = TypeVar("T")
Listener = Callable[[Sequence[Recorded], World], None]

COMMANDS_MAX = 2_000
ANSWER_S_MAX = 30.0
# How long a question waits for an engine that is taking over.
TAKE_OVER_S_MAX = 10.0


class Unavailable(Rejected):
    """No engine leads, or the one that did stopped before the answer was known."""

    def __init__(self, message: str) -> None:
        super().__init__("unavailable", message)


class Role(StrEnum):
    """What this control plane is at the moment."""

    LEADER = "leader"
    STANDBY = "standby"
    NEITHER = "neither"


class Control:
    """The engine that leads now, if any, or a world that follows the log; and the log.

    `recorded` is what an engine gets as its `on_recorded`.
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
        # What the log says, as far as it was followed, while another one leads.
        self.followed: World | None = None
        # From where the engine goes on that was elected and reads the rest of the log: worth
        # waiting for. None when none does.
        self.takes_over_from: int | None = None
        # Where the others reach this control plane.
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
    def role(self) -> Role:
        if self.leads:
            return Role.LEADER
        return Role.NEITHER if self.followed is None else Role.STANDBY

    @property
    def leader(self) -> str:
        """Where the leader answers, as far as the log was followed; empty if that is not known."""
        found = "" if self.followed is None else self.followed.leader
        # If the last one was this one, nobody has led since.
        return "" if found == self.address else found

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with every batch that is in the log, and the world right after it."""
        self._listeners.append(listener)

    def on_skip(self, begin: Callable[[int], None]) -> None:
        self._beginners.append(begin)

    def recorded(self, batch: Sequence[Recorded]) -> None:
        assert self.engine is not None, "an engine runs that was not put here"
        self.tell(batch, self.engine.world)

    def skip_to(self, position: int) -> None:
        """Lets those who count positions know how long the log is that is followed from here on."""
        for begin in self._beginners:
            begin(position)

    def tell(self, batch: Sequence[Recorded], world: World) -> None:
        """Lets the listeners hear of events that are in the log, whoever put them there."""
        for listener in self._listeners:
            try:
                listener(batch, world)
            except Exception:  # noqa: BLE001 - one listener's error is no other's
                # The others must still hear of it, and what is recorded is recorded.
                _log.exception("a listener failed at position %d; going on", batch[-1].position)

    async def submit(self, command: Request) -> Receipt:
        """The receipt, once the command's events are in the log; raises Rejected."""
        return await self.submit_then(command, lambda _, receipt: receipt)

    async def submit_then(self, command: Request, view: Callable[[World, Receipt], T]) -> T:
        """As `submit`, with an answer read off the very world in which the command was met.

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
        """What `question` finds in a world that no crash could take back."""
        if not self.leads and self.followed is not None:
            return question(self.followed)
        asked = _Asked(question)
        if self.takes_over_from is not None and self.engine is not None:
            self.engine.ask(asked)
            async with _patience():
                return await asked.answer()
        self._leader().ask(asked)
        return await asked.answer()

    def _leader(self) -> Engine:
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
    """Tells whoever submitted. Nothing may escape from here into the engine that calls it."""
    if outcome.done():
        return
    if answer is None:
        outcome.set_exception(_unknown("the engine stopped"))
    elif isinstance(answer, Rejected):
        outcome.set_exception(answer)
    else:
        try:
            outcome.set_result(view(engine.world, answer))
        except Exception as error:  # noqa: BLE001 - it goes to the one who asked
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
    """A question under way. If it was answered on the spot, no future is ever made."""

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
        except Exception as error:  # noqa: BLE001 - it goes to the one who asked
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


CONTROL = web.AppKey("control", Control)
