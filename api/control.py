"""The asyncio side of the engine: hand a command in and wait, ask a question and wait.

The engine behind it changes: after the log failed, whoever runs the server puts another one here.
While none leads there is no truth to tell, so everything here raises Unavailable.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, NoReturn, TypeVar

from aiohttp import web

from controlplane.commands import Request
from controlplane.engine import Answer, Engine
from controlplane.errors import Rejected
from controlplane.events import Recorded
from controlplane.ports import EventLog
from controlplane.state import Receipt
from controlplane.world import World

T = TypeVar("T")
Listener = Callable[[Sequence[Recorded], World], None]

COMMANDS_MAX = 2_000
ANSWER_S_MAX = 30.0


class Unavailable(Rejected):
    """No engine leads, or the one that did stopped before the answer was known."""

    def __init__(self, message: str) -> None:
        super().__init__("unavailable", message)


class Control:
    """The engine that leads now, if any, and the log that it writes.

    `recorded` is what an engine gets as its `on_recorded`.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        commands_max: int = COMMANDS_MAX,
        answer_s_max: float = ANSWER_S_MAX,
    ) -> None:
        self.log = log
        self.engine: Engine | None = None
        self.commands_in_flight = 0
        self._commands_max = commands_max
        self._answer_s_max = answer_s_max
        self._listeners: list[Listener] = []

    @property
    def leads(self) -> bool:
        return self.engine is not None and self.engine.leads

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with every batch that is in the log, and the world right after it."""
        self._listeners.append(listener)

    def recorded(self, batch: Sequence[Recorded]) -> None:
        assert self.engine is not None, "an engine runs that was not put here"
        for listener in self._listeners:
            listener(batch, self.engine.world)

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
        asked = _Asked(question)
        self._leader().ask(asked)
        return await asked.answer()

    def _leader(self) -> Engine:
        if self.engine is None or not self.engine.leads:
            raise Unavailable("no engine leads at the moment; nothing was done")
        return self.engine


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
