"""Least attained service with preemption, as in Tiresias (NSDI 2019).

A job that has had less GPU time preempts one that has had more. Tiers only grow, so no job gets its devices back by
the same rule from the job that took them. A pass is run when a running job enters its next tier.
"""

from controlplane.disciplines.las import Las
from controlplane.lifecycle.attained_service import service_tier
from controlplane.lifecycle.job import Job, attained_by


class Tiresias(Las):
    name = "tiresias"
    description = (
        "least GPU time so far first; a job that has had less preempts one that has had more"
    )
    preempts = True

    def running_key(self, job: Job, now: float) -> float:
        # The margin absorbs rounding: at the time at which a job enters a tier, it has its GPU time.
        return service_tier(attained_by(job, now) * (1 + 1e-9) + 1e-6)
