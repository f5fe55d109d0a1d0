"""The Clock port on asyncio: real time, or a multiple of it.

The wall clock is read once. After that, time follows the loop's monotonic clock, which never jumps.
"""

import asyncio
import time
from copy import copy

# Longer sleeps are split, because some event loops cannot represent longer timeouts.
SLEEP_S_MAX = 86400.0


class AsyncioClock:
    """A clock that begins at `start` or the wall clock's time, and runs `speed` times as fast.

    The clock begins at `at_least` if that is later: after a fast run the log is ahead of the wall
    clock. Times are Unix times in seconds. It must be created inside a running loop.
    """

    def __init__(
        self, *, start: float | None = None, at_least: float = 0.0, speed: float = 1.0
    ) -> None:
        shown = max(time.time() if start is None else start, at_least)
        self._time = _LoopTime(shown, speed)
        self._bell: asyncio.Future[None] | None = None
        self._woken = False

    def twin(self) -> "AsyncioClock":
        """Return a clock with the same time and its own wake-ups, for another waiter."""
        twin = copy(self)
        twin._bell = None
        twin._woken = False
        return twin

    def now(self) -> float:
        return self._time.now()

    def reach(self, at: float) -> None:
        """Advance this clock and all its twins to `at`, unless they are past it."""
        self._time.reach(at)

    async def wait(self, until: float | None) -> None:
        """Return at `until` or at `wake`, whichever is first; None waits only for `wake`."""
        assert self._bell is None, "a clock has one waiter"
        if self._woken or (until is not None and until <= self.now()):
            # Yield once even so, or a busy engine would starve the server.
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
        """End the current wait, or the next one if there is none."""
        self._woken = True
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)


class _LoopTime:
    """The loop's time, scaled by `speed`, never running backwards; shared by all twins."""

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
        # Computed from the exact time, or the error of early timers would accumulate.
        sleep_s = max(0.0, until - self._exact()) / self._speed
        if sleep_s > SLEEP_S_MAX:
            return self.loop.call_later(SLEEP_S_MAX, _ring, bell)
        return self.loop.call_later(sleep_s, self._reach, until, bell)

    def _reach(self, until: float, bell: "asyncio.Future[None]") -> None:
        # A timer may fire a tick early; the waiter must still see its time reached.
        self._shown = max(self._shown, until)
        _ring(bell)


def _ring(bell: "asyncio.Future[None]") -> None:
    if not bell.done():
        bell.set_result(None)
