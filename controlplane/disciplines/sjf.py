"""Shortest job first, by planned run length. A blocked head blocks its queue."""

from controlplane.disciplines.discipline import Discipline, OnBlocked
from controlplane.lifecycle.job import Job


class Sjf(Discipline):
    name = "sjf"
    description = "shortest job first; a head that does not fit blocks its queue"
    on_blocked = OnBlocked.STOP
    orders_by_estimate = True

    def key(self, job: Job, planned_s: float) -> float:
        return planned_s
