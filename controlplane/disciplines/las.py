"""Least attained service first: the job that has had the least GPU time, by tiers (`attained_service.py`)."""

from controlplane.disciplines.discipline import Discipline, OnBlocked
from controlplane.lifecycle.attained_service import service_tier
from controlplane.lifecycle.job import Job, attained_gpu_s


class Las(Discipline):
    name = "las"
    description = "least GPU time so far first; any job that fits may start ahead of a blocked one"
    on_blocked = OnBlocked.SKIP
    orders_by_attained = True

    def key(self, job: Job, planned_s: float) -> float:
        return service_tier(attained_gpu_s(job))
