"""First in, first out, with jobs that fit ahead of a blocked head: Kueue's BestEffortFIFO."""

from controlplane.disciplines.discipline import Discipline, OnBlocked


class BestEffortFifo(Discipline):
    name = "fit"
    description = "first in, first out; any job that fits may start ahead of a blocked one"
    on_blocked = OnBlocked.SKIP
