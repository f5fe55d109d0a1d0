"""How long a gang that starts is protected from preemption.

A policy may protect every gang for `protected_s` seconds (Slurm: PreemptExemptTime). A job that was
preempted before is then protected for twice as long as the longest run that it lost, up to
`second_chance_s_max`. Up to that limit each run that preemption ends is at least twice as long as
the one before it, and a job of length T loses less than 2 T in all. Otherwise a job at the head of
its queue could be preempted again and again where only short gaps become free.
"""

from controlplane.disciplines.discipline import Discipline
from controlplane.lifecycle.job import Job
from controlplane.model.constraints import asks_of
from controlplane.model.failures import Cause
from controlplane.model.policy import Policy

# Doubling, as with back-off.
_GROWTH = 2.0


def safe_until(job: Job, policy: Policy, discipline: Discipline, now: float) -> float | None:
    """Until when the job cannot be preempted if it starts now; None if nothing protects it."""
    safe_s = protected_s(job, policy, discipline)
    # A job that is never preempted needs no timer for the end of its protection.
    return now + safe_s if safe_s > 0 and asks_of(job.spec).preemptible else None


def protected_s(job: Job, policy: Policy, discipline: Discipline) -> float:
    """Seconds after its placement during which a gang cannot be preempted."""
    restarts = job.restarts
    if not restarts or discipline.preempts:
        # Such a discipline alternates between jobs by its own rule.
        return policy.protected_s
    lost = max((r.lost_s for r in restarts if r.cause is Cause.PREEMPTION), default=0.0)
    return max(policy.protected_s, min(_GROWTH * lost, policy.second_chance_s_max))


def lost_s(ran_s: float, checkpoint_every_s: float | None) -> float:
    """Seconds of work that are lost when a run of `ran_s` seconds ends now.

    These are the seconds since its last checkpoint, or all of them without checkpoints.
    """
    ran_s = max(0.0, ran_s)
    return ran_s % checkpoint_every_s if checkpoint_every_s else ran_s
