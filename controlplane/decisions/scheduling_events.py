"""The decisions of a scheduling pass, as events.

A pass decides on one world. Its decisions are applied one after the other in the order in which
they were made, so each finds the world as the pass assumed it.
"""

from controlplane.lifecycle import restart
from controlplane.lifecycle.attained_service import next_tier_at, service_tier
from controlplane.lifecycle.draft import Decision, Draft
from controlplane.lifecycle.job import Job, attained_gpu_s
from controlplane.lifecycle.settle import settle, stop_attempt
from controlplane.model import events as e
from controlplane.model.constraints import asks_of
from controlplane.model.failures import Cause, Restart
from controlplane.model.phases import ACTIVE, WITH_DEVICES
from controlplane.model.reasons import LossReason, RestartFacts, Wait, WaitReason
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.decisions import (
    Claim,
    Evict,
    GiveUp,
    Grow,
    KeepWaiting,
    Replace,
    SchedulingDecision,
    Shrink,
    Start,
)
from controlplane.scheduling.placement.fit import Fit, gpus_of
from controlplane.scheduling.preemption.make_room import claim_wait
from controlplane.scheduling.preemption.protection import lost_s, safe_until
from controlplane.state.world import World


def enact(world: World, decision: SchedulingDecision, now: float) -> Decision:
    """The events of one scheduling decision; empty if it changes nothing."""
    job = world.jobs[decision.job]
    match decision:
        case Start():
            return Decision([_placed(world, job, decision.fit, now)])
        case Evict():
            moved = decision.moves_to is not None
            cause = Cause.CONSOLIDATION if moved else Cause.PREEMPTION
            return _stop(world, job, cause, decision.facts, now)
        case GiveUp():
            return _stop(world, job, Cause.NODE_LOST, decision.facts, now)
        case Shrink():
            return _shrink(world, job, decision, now)
        case Replace():
            assert job.attempt is not None
            number = job.attempt.number
            return Decision([e.RanksReplaced(job.id, number, decision.ranks, decision.slots)])
        case Grow():
            assert job.attempt is not None
            number, placement = job.attempt.number, decision.placement
            return Decision([e.RanksAdded(job.id, number, decision.first, placement)])
        case KeepWaiting():
            first = decision.reasons[0]
            if job.wait_reason == first.code:
                return Decision([])
            return _waits(job, first)
        case Claim():
            # The claim is only a reason; the next pass places gangs with a claim first.
            if job.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
                return Decision([])
            return _waits(job, claim_wait(ClusterView(world), decision))


def _waits(job: Job, wait: Wait) -> Decision:
    return Decision([e.GangWaiting(job.id, wait.code, wait.needed, wait.available, wait.facts)])


def _placed(world: World, job: Job, fit: Fit, now: float) -> e.GangPlaced:
    discipline = world.discipline(job.spec.queue)
    number, had = 1, 0.0
    if job.attempt is not None:
        number = job.attempt.number + 1
        if discipline.orders_by_attained or world.policy.usage_halflife_s is not None:
            had = attained_gpu_s(job)
    tier_at = None
    if discipline.preempts:
        gpus = gpus_of(fit)
        tier_at = next_tier_at(service_tier(had), had_gpu_s=had, gpus=gpus, at=now)
    safe = safe_until(job, world.policy, discipline, now)
    where, shares, flavor, _ = fit
    return e.GangPlaced(job.id, number, where, shares, flavor, had, tier_at, safe)


def _stop(world: World, job: Job, cause: Cause, facts: RestartFacts, now: float) -> Decision:
    """End the attempt without fault of the job; it may start again as soon as there is room."""
    draft = Draft(job, now, world.position)
    assert job.attempt is not None, job
    assert job.phase in ACTIVE, job
    spends = restart.spends_budget(job.spec.restart, cause)
    every = asks_of(job.spec).checkpoint_every_s
    lost = lost_s(now - job.attempt.placed_at, every) if cause is Cause.PREEMPTION else 0.0
    number = job.attempt.number
    ledger = Restart(now, number, cause, spends, facts=facts, lost_s=lost)
    stop_attempt(draft, restart.again(job, ledger, now))
    return settle(draft)


def _shrink(world: World, job: Job, decision: Shrink, now: float) -> Decision:
    """Release ranks that the gang can continue without; it gets others when there is room again.

    A rank that has exited has no devices to release, and stays unchanged.
    """
    draft = Draft(job, now, world.position)
    assert job.attempt is not None, job
    ranks = tuple(i for i in decision.ranks if job.attempt.ranks[i].state in WITH_DEVICES)
    if not ranks:
        return draft
    draft.add(e.RanksReleased(job.id, job.attempt.number, ranks, LossReason.PREEMPTED))
    return settle(draft)
