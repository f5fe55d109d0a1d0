"""Virtual time for the engine: the Clock port on SimPy, and a coroutine as a SimPy process.

The engine must decide about everything that happens at one instant in one step. So a waiter of this
clock resumes after every other event of the instant (priority `LAST`).
"""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar, cast

from simpy.events import Event, Process
from simpy.exceptions import Interrupt

from simulator.kernel.virtual_time import AFTER_LAST, LAST, VirtualTime

T = TypeVar("T")


class Killed(BaseException):
    """The process was interrupted.

    Like asyncio's CancelledError it is not an Exception, so code that catches Exception does not
    catch it.
    """


def as_process(env: VirtualTime, coroutine: Coroutine[Any, Any, T]) -> Process:
    """Run a coroutine that awaits only SimPy events; the value of the process is its result.

    Interrupting the process raises `Killed` in the coroutine.
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
    """An event at the environment's time `at`, after everything else of that instant."""
    return env.at(at, AFTER_LAST)


class SimpyClock:
    """A clock on a SimPy environment; it shows `origin` at the environment's time 0."""

    def __init__(self, env: VirtualTime, *, origin: float = 0.0) -> None:
        self._env = env
        self._origin = origin
        # Adding the origin may round a deadline down; its waiter must still see it reached.
        self._reached = float("-inf")
        self._waiting: _WakeUp | None = None
        self._until: float | None = None
        self._woken = False
        # The times of the scheduled calls, the next one last. A wait schedules another call only if
        # none of them is early enough, so a far deadline costs nothing at each wake-up.
        self._alarms: list[float] = []

    def now(self) -> float:
        return max(self._reached, self._origin + self._env.now)

    async def wait(self, until: float | None) -> None:
        """Return at `until` or at `wake`, whichever is first; None waits only for `wake`."""
        assert self._waiting is None, "a clock has one waiter"
        self._waiting, self._until = _WakeUp(self._env), until
        if self._woken or (until is not None and until <= self.now()):
            self._resume()
        elif until is not None:
            self._set_alarm(until)
        try:
            await self._waiting
        finally:
            self._waiting, self._woken = None, False

    def wake(self) -> None:
        """End the current wait, or the next one if there is none."""
        self._woken = True
        self._resume()

    def _resume(self) -> None:
        """Resume the waiter, if there is one, after everything else of this instant."""
        waiting = self._waiting
        if waiting is not None and not waiting.triggered:
            waiting._ok, waiting._value = True, None
            self._env.schedule(waiting, LAST)

    def _set_alarm(self, until: float) -> None:
        if self._alarms and self._alarms[-1] <= until:
            return
        self._alarms.append(until)
        self._env.call_at(until - self._origin, self._on_alarm)

    def _on_alarm(self) -> None:
        at = self._alarms.pop()
        if self._waiting is None or self._until is None:
            return
        if self._until <= max(at, self.now()):
            self._reached = max(self._reached, self._until)
            self._resume()
        else:
            self._set_alarm(self._until)


class _WakeUp(Event):
    """An event that a coroutine can await."""

    def __await__(self) -> Generator[Event, Any, None]:
        yield self
