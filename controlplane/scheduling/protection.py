"""For how long a gang that starts is safe from eviction.

A policy may protect everyone for a while. And whoever was evicted before is then safe for twice as long
as the longest run that it lost. So each run that is lost to an eviction is at least twice as long as the
one before it, a job of length T loses less than 2 T in all, and nobody is evicted from the same spot
again and again, as the first in line is where short gaps come again and again.
"""

from controlplane.job import Job
from controlplane.model import Cause
from controlplane.scheduling.gangs import gang_of
from controlplane.sharing import Discipline
from controlplane.world import World

# Twice as long each time, as with back-off.
_GROWTH = 2.0


def safe_until(world: World, job: Job, now: float) -> float | None:
    """Until when it cannot be evicted if it starts now; None if nothing protects it."""
    safe_s = protected_s(world, job)
    # Whoever cannot be evicted at all has nothing to be woken up for.
    return now + safe_s if safe_s > 0 and gang_of(world, job).preemptible else None


def protected_s(world: World, job: Job) -> float:
    """Seconds from its placement on during which a gang is safe."""
    policy, restarts = world.policy, job.restarts
    if not restarts or world.discipline(job.spec.queue) is Discipline.LEAST_ATTAINED:
        # Whoever takes turns by what each has had comes back by the same rule, step by step.
        return policy.protected_s
    lost = max([r.lost_s for r in restarts if r.cause is Cause.PREEMPTION], default=0.0)
    return max(policy.protected_s, min(_GROWTH * lost, policy.second_chance_s_max))


def lost_s(ran_s: float, checkpoint_every_s: float | None) -> float:
    """How much of a run is lost when it ends now: what came after its last checkpoint."""
    ran_s = max(0.0, ran_s)
    return ran_s % checkpoint_every_s if checkpoint_every_s else ran_s
