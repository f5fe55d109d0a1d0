"""Virtual time: SimPy's clock as ours, and a coroutine as a SimPy process.

All that happens at one instant is decided in one step of the engine: whoever waits on this clock
resumes after every other event of that instant.
"""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar, cast

from simpy.events import Event, Process
from simpy.exceptions import Interrupt

from simulator.agenda import AFTER_LAST, LAST
from simulator.virtual_time import VirtualTime

T = TypeVar("T")


class Killed(BaseException):
    """The process was interrupted from outside. As asyncio's CancelledError it is no Exception, so whoever
    outlives errors does not outlive this."""


def as_process(env: VirtualTime, coroutine: Coroutine[Any, Any, T]) -> Process:
    """Runs a coroutine that awaits nothing but SimPy events; the process's value is its result.

    To interrupt the process raises `Killed` in the coroutine.
    """
    return env.process(cast(Generator[Event, Any, T], _Steps(coroutine)))


class _Steps:
    """A coroutine as the generator that SimPy resumes."""

    __slots__ = ("__name__", "_steps", "send")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.__name__ = getattr(coroutine, "__name__", "")
        self._steps = cast(Generator[Event, Any, T], coroutine.__await__())
        self.send = self._steps.send

    def throw(self, error: BaseException) -> Event:
        if isinstance(error, Interrupt):
            error = Killed(*error.args)
        return self._steps.throw(error)


def closing(env: VirtualTime, at: float) -> Event:
    """An event at the environment's time `at`, after all else that happens then."""
    event = Event(env)
    event._ok, event._value = True, None
    env.agenda.schedule(event, AFTER_LAST, max(0.0, at - env.now))
    return event


class SimpyClock:
    """`origin` is the time that is shown when the environment's time is 0."""

    def __init__(self, env: VirtualTime, *, origin: float = 0.0) -> None:
        self._env = env
        self._agenda = env.agenda
        self._origin = origin
        # Adding the origin may round a deadline down; who waited for it still sees it reached.
        self._reached = float("-inf")
        self._bell: _Bell | None = None
        # One that has rung is hung up again for the next wait.
        self._spare: _Bell | None = None
        self._rung = False
        self._until: float | None = None
        self._woken = False
        # The times of the timeouts that are under way, the next one last. A wait makes a new one
        # only if none of them comes in time, so a far deadline costs nothing at each wake-up.
        self._alarms: list[float] = []

    def now(self) -> float:
        return max(self._reached, self._origin + self._agenda.now)

    async def wait(self, until: float | None) -> None:
        assert self._bell is None, "a clock has one waiter"
        bell, self._spare = self._spare or _Bell(self._env), None
        bell.callbacks = []
        self._bell, self._rung, self._until = bell, False, until
        if self._woken or (until is not None and until <= self.now()):
            self._ring()
        elif until is not None:
            self._set_alarm(until)
        try:
            await bell
            self._spare = bell
        finally:
            self._bell, self._woken = None, False

    def wake(self) -> None:
        self._woken = True
        self._ring()

    def _ring(self) -> None:
        """Resumes whoever waits, after all else that happens at this instant."""
        bell = self._bell
        if bell is not None and not self._rung:
            self._rung = True
            bell._ok, bell._value = True, None
            self._agenda.schedule(bell, LAST)

    def _set_alarm(self, until: float) -> None:
        if self._alarms and self._alarms[-1] <= until:
            return
        self._alarms.append(until)
        self._agenda.call_at(until - self._origin, self._alarmed)

    def _alarmed(self) -> None:
        at = self._alarms.pop()
        if self._bell is None or self._until is None:
            return
        if self._until <= max(at, self.now()):
            self._reached = max(self._reached, self._until)
            self._ring()
        else:
            self._set_alarm(self._until)


class _Bell(Event):
    """What a coroutine awaits."""

    def __await__(self) -> Generator[Event, Any, None]:
        yield self
