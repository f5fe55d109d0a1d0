"""SimPy's environment, with an agenda of our own.

Processes, events and runs are SimPy's. Who has something done later, and wants to know nothing of
it, asks the agenda itself, which is compiled with the rest of the core; see docs/adr/0019.
"""

import simpy

from simulator.agenda import Agenda


class VirtualTime(simpy.Environment):
    def __init__(self, initial_time: float = 0.0) -> None:
        super().__init__(initial_time)
        self.agenda = Agenda(float(initial_time))
        # Straight to the agenda: a method here would be one more call for each event.
        self.schedule = self.agenda.schedule  # type: ignore[method-assign]
        self.step = self.agenda.step  # type: ignore[method-assign]
        self.peek = self.agenda.peek  # type: ignore[method-assign]

    @property
    def now(self) -> float:
        return self.agenda.now
