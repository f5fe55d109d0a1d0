"""Who holds something while it waits for more, and until when.

A deadlock needs gangs that hold devices while they wait for others'. Waiting gangs hold nothing: they
get all their devices in one decision. Gangs that are being stopped wait for no other. That leaves running
gangs whose lost ranks are to be replaced, and gangs that would like more ranks than they have. The
latter run on without them; the former let go of everything when their recovery time-out has passed.
So every wait that holds something ends at a known time, and that is what is checked here.
"""

from typing import NamedTuple

from controlplane.lifecycle.attempt import goes_on
from controlplane.lifecycle.timers import deadline
from controlplane.state.world import World


class HeldWait(NamedTuple):
    """A gang that holds devices and waits for others, and when it will have let go at the latest."""

    job: str
    gpus: float
    until: float


def held_waits(world: World) -> list[HeldWait]:
    """Raises AssertionError if one of them has no end: then there could be a deadlock."""
    waits = []
    for job_id in sorted(world.devices.degraded):
        job = world.jobs[job_id]
        if job.attempt is not None and goes_on(job.spec, job.attempt, coming=True):
            # It runs with the ranks that are left, so it ends without waiting for anything.
            continue
        until = deadline(job)
        assert job.attempt is not None
        assert until is not None, f"{job_id} holds devices and waits without end"
        waits.append(HeldWait(job_id, job.attempt.gpus, until))
    for line in world.waiting.queues.values():
        for place in line.order:
            assert world.jobs[place.job].live_attempt is None, f"{place.job} waits and holds"
    return waits
