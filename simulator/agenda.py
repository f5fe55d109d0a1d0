"""What is to happen in virtual time, in the order in which it will.

SimPy keeps one heap of everything. Here the heap holds only the instants that are yet to come, and
each of them a list; what is due at this instant waits in a line for each priority. Most of what a
control plane and its cluster say to each other is said at once, so most of it never sees the heap.
The order is SimPy's: by time, then by priority, then as they came.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from simpy.core import EmptySchedule, StopSimulation
from simpy.events import Event

# SimPy's own events are urgent or normal; the first is for one at which a run was stopped.
FIRST, URGENT, NORMAL, LAST, AFTER_LAST = range(-1, 4)

Call = Callable[[], None]
# An event that somebody may wait for, or something to do that nobody waits for, which costs less.
Entry = Event | Call


class Agenda:
    def __init__(self, now: float) -> None:
        self.now = now
        # What is due now, by priority.
        self._due: list[deque[Entry]] = [deque() for _ in range(FIRST, AFTER_LAST + 1)]
        # What is due later, by the time, and a heap of these times.
        self._later: dict[float, list[tuple[int, Entry]]] = {}
        self._times: list[float] = []

    def schedule(self, event: Event, priority: int = NORMAL, delay: float = 0.0) -> None:
        """As SimPy's environment does."""
        self._put(event, priority, delay)

    def call_after(self, delay_s: float, call: Call) -> None:
        assert delay_s >= 0.0, f"nothing can be done {-delay_s} s ago"
        self._put(call, NORMAL, delay_s)

    def call_at(self, at: float, call: Call) -> None:
        """At exactly this time, however early it is asked for; now, if the time has come.

        A delay would be added to the time of asking, and the sum rounded otherwise each time.
        """
        self._put_at(call, NORMAL, at)

    def peek(self) -> float:
        """When the next thing happens."""
        for due in self._due:
            if due:
                return self.now
        return self._times[0] if self._times else float("inf")

    def step(self) -> None:
        """Lets the next thing happen; EmptySchedule if there is none."""
        entry = self._next()
        if isinstance(entry, Event):
            self._happen(entry)
        else:
            entry()

    def _put(self, entry: Entry, priority: int, delay_s: float) -> None:
        self._put_at(entry, priority, self.now + delay_s)

    def _put_at(self, entry: Entry, priority: int, at: float) -> None:
        if at <= self.now:
            self._due[priority - FIRST].append(entry)
            return
        others = self._later.get(at)
        if others is None:
            self._later[at] = [(priority, entry)]
            heappush(self._times, at)
        else:
            others.append((priority, entry))

    def _next(self) -> Entry:
        for due in self._due:
            if due:
                return due.popleft()
        if not self._times:
            raise EmptySchedule
        self.now = heappop(self._times)
        for priority, entry in self._later.pop(self.now):
            self._due[priority - FIRST].append(entry)
        return self._next()

    def _happen(self, event: Event) -> None:
        """Calls whoever waits for an event. One that failed, and nobody took care of, is raised."""
        waiting = event.callbacks
        assert waiting is not None, f"{event} happens twice"
        event.callbacks = None  # type: ignore[assignment]
        number = 0
        try:
            for callback in waiting:
                number += 1
                callback(event)
        except StopSimulation:
            # Whoever waits behind the one who stopped the run is called when it goes on.
            event.callbacks = waiting[number:]
            self._put(event, FIRST, 0.0)
            raise
        if not event._ok and not event.defused:
            failure = event._value
            raise type(failure)(*failure.args) from failure
