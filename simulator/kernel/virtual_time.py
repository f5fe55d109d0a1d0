"""SimPy's environment with what the control plane and the models need besides.

SimPy runs the events, in the order of their times, then of their priorities, then of being
scheduled. This subclass adds calls that no process waits for, exact times, and two priorities:
`LAST` for an engine that decides about an instant after everything else of that instant, and
`AFTER_LAST` for what closes the instant.
"""

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy
from simpy.events import NORMAL, URGENT, Event, EventPriority

LAST = EventPriority(NORMAL + 1)
AFTER_LAST = EventPriority(NORMAL + 2)


class VirtualTime(simpy.Environment):
    def __init__(self, initial_time: float = 0.0) -> None:
        super().__init__(float(initial_time))

    def call_after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call after a delay of 0 or more seconds."""
        assert delay_s >= 0.0, f"a delay of {delay_s} s is in the past"
        self.call_at(self._now + delay_s, call)

    def call_at(self, time_s: float, call: Callable[[], None]) -> None:
        """Call at exactly `time_s`, or now if that time has passed; see `at`."""
        self.at(time_s).callbacks.append(lambda _: call())

    def at(self, time_s: float, priority: EventPriority = NORMAL) -> Event:
        """An event at exactly `time_s`, or now if that time has passed.

        A timeout of `time_s - now` is not the same: the sum of the rounded difference and `now` may
        miss `time_s` by the last bit, and a run that is replayed must come to exactly the same times.
        """
        event = Event(self)
        event._ok, event._value = True, None
        time_s = float(max(self._now, time_s))
        heappush(self._queue, (time_s, priority, next(self._eid), event))
        return event

    def run(self, until: float | Event | None = None) -> Any | None:
        """Run as SimPy does, but reach a number `until` exactly; see `at`."""
        if until is None or isinstance(until, Event):
            return super().run(until)
        if until <= self.now:
            raise ValueError(f"until ({until}) must be greater than the current time ({self.now})")
        return super().run(self.at(until, URGENT))
