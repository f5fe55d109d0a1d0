"""Real time, or a multiple of it, under asyncio.

The wall clock is read once. From then on time follows the loop's clock, which never jumps.
"""

import asyncio
import time
from copy import copy

# Longer sleeps are slept in pieces; some loops cannot count that far.
SLEEP_S_MAX = 86400.0


class AsyncioClock:
    """Shows `start`, or the wall clock's time, at first, and then `speed` seconds a second.

    After a fast run the log is ahead of the wall clock: `at_least` is where to begin then. Make it
    inside a running loop.
    """

    def __init__(
        self, *, start: float | None = None, at_least: float = 0.0, speed: float = 1.0
    ) -> None:
        shown = max(time.time() if start is None else start, at_least)
        self._time = _LoopTime(shown, speed)
        self._bell: asyncio.Future[None] | None = None
        self._woken = False

    def twin(self) -> "AsyncioClock":
        """The same time with a bell of its own, for another waiter."""
        twin = copy(self)
        twin._bell = None
        twin._woken = False
        return twin

    def now(self) -> float:
        return self._time.now()

    def reach(self, at: float) -> None:
        """Shows at least this time from here on, on all twins."""
        self._time.reach(at)

    async def wait(self, until: float | None) -> None:
        assert self._bell is None, "a clock has one waiter"
        if self._woken or (until is not None and until <= self.now()):
            # Even so the others get their turn, or a busy engine would starve the server.
            await asyncio.sleep(0)
        while not self._woken and (until is None or until > self.now()):
            await self._sleep(until)
        self._woken = False

    async def _sleep(self, until: float | None) -> None:
        self._bell = self._time.loop.create_future()
        timer = None if until is None else self._time.call_at(until, self._bell)
        try:
            await self._bell
        finally:
            self._bell = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        self._woken = True
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def wake_threadsafe(self) -> None:
        """As `wake`, from any thread."""
        self._time.loop.call_soon_threadsafe(self.wake)


class _LoopTime:
    """The loop's time, stretched, and never running backwards."""

    def __init__(self, shown: float, speed: float) -> None:
        assert speed > 0, speed
        self.loop = asyncio.get_running_loop()
        self._start = shown
        self._start_loop = self.loop.time()
        self._speed = speed
        self._shown = shown

    def now(self) -> float:
        self._shown = max(self._shown, self._exact())
        return self._shown

    def reach(self, at: float) -> None:
        self._start += max(0.0, at - self._exact())

    def _exact(self) -> float:
        return self._start + (self.loop.time() - self._start_loop) * self._speed

    def call_at(self, until: float, bell: "asyncio.Future[None]") -> asyncio.TimerHandle:
        # Counted from the exact time, or timers that come early would add up.
        sleep_s = max(0.0, until - self._exact()) / self._speed
        if sleep_s > SLEEP_S_MAX:
            return self.loop.call_later(SLEEP_S_MAX, _ring, bell)
        return self.loop.call_later(sleep_s, self._reach, until, bell)

    def _reach(self, until: float, bell: "asyncio.Future[None]") -> None:
        # A timer may come a tick early; who waited for a time still sees it reached.
        self._shown = max(self._shown, until)
        _ring(bell)


def _ring(bell: "asyncio.Future[None]") -> None:
    if not bell.done():
        bell.set_result(None)
