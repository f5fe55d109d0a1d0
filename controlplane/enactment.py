"""What a scheduling pass decided, as events.

A pass decides on one world; its decisions are taken in one after the other in the order in which they
were made, so each finds the world as the pass had left it.
"""

from controlplane import events as e
from controlplane import restart
from controlplane.asks import asks_of
from controlplane.draft import Decided, Draft
from controlplane.job import ACTIVE, CLAIMED, Job
from controlplane.model import Cause, Restart
from controlplane.scheduling.cycle import placed
from controlplane.scheduling.decisions import (
    Claim,
    Decision,
    Evict,
    GiveUp,
    Hold,
    Replace,
    Shrink,
    Start,
)
from controlplane.scheduling.protection import lost_s
from controlplane.settling import settle, stop_attempt
from controlplane.world import World


def enact(world: World, decision: Decision, now: float) -> Decided:
    """The events that a decision makes happen."""
    job = world.jobs[decision.job]
    match decision:
        case Start():
            return Decided([placed(world, job, decision.fit, now)])
        case Evict():
            moved = decision.moves_to is not None
            cause = Cause.CONSOLIDATION if moved else Cause.PREEMPTION
            return _stop(world, job, cause, decision.message, now)
        case GiveUp():
            return _stop(world, job, Cause.NODE_LOST, decision.message, now)
        case Shrink():
            return _shrink(world, job, decision, now)
        case Replace():
            assert job.attempt is not None
            number = job.attempt.number
            return Decided([e.RanksReplaced(job.id, number, decision.ranks, decision.slots)])
        case Hold():
            first = decision.reasons[0]
            if job.held == first.code:
                return Decided([])
            needed, available = first.needed, first.available
            return Decided([e.GangHeld(job.id, first.code, first.message, needed, available)])
        case Claim():
            # Nothing happens yet, but the next pass lets whoever claims have its place first.
            if job.held == CLAIMED:
                return Decided([])
            message = "it starts as soon as those have left who make room for it"
            return Decided([e.GangHeld(job.id, CLAIMED, message)])


def _stop(world: World, job: Job, cause: Cause, message: str, now: float) -> Decided:
    """The attempt ends for no fault of its own; it may start again as soon as there is room."""
    draft = Draft(job, now, world.position)
    assert job.attempt is not None, job
    assert job.phase in ACTIVE, job
    spends = restart.spends_budget(job.spec.restart, cause)
    every = asks_of(job.spec).checkpoint_every_s
    lost = lost_s(now - job.attempt.placed_at, every) if cause is Cause.PREEMPTION else 0.0
    number = job.attempt.number
    ledger = Restart(now, number, cause, spends, message=message, lost_s=lost)
    stop_attempt(draft, restart.again(job, ledger, now))
    return settle(draft)


def _shrink(world: World, job: Job, decision: Shrink, now: float) -> Decided:
    """Ranks that the gang can do without are let go; it gets others when there is room again."""
    draft = Draft(job, now, world.position)
    assert job.attempt is not None, job
    told = "others need the room more"
    number = job.attempt.number
    draft.add(e.RanksLost(job.id, number, decision.ranks, told, Cause.SCALED))
    return settle(draft)
