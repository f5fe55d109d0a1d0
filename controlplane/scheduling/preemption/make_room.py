"""How a gang that does not fit gets room: by waiting for leaving gangs, by moves, or by preemption.

`RoomMaker.make_room` tries in this order, and stops at the first that works:

1. a placement on devices that leaving gangs will release: the gang claims it and waits;
2. where the policy consolidates, moves of running gangs without any victim;
3. victims by the rules of the quota model;
4. where the policy consolidates, victims from queues above their fair share together with moves,
   and then victims by domain.

An elastic gang gets the largest number of replicas that a claim or preemption allows.
"""

from controlplane.lifecycle.job import Job
from controlplane.model.cluster import Slot
from controlplane.model.phases import ACTIVE, WITH_DEVICES
from controlplane.model.reasons import (
    JobName,
    MovedAside,
    Preempted,
    VictimsLeaving,
    Wait,
    WaitReason,
)
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.decisions import Claim, Evict, SchedulingDecision, Shrink
from controlplane.scheduling.elastic.shrink import most_replicas, replicas_asked, scaled_gang
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.preemption.consolidation import Consolidation, consolidate
from controlplane.scheduling.preemption.victim_search import Eviction, Victim, no_doubles
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot

# An elastic gang at its later size, where it then fits, and its replicas.
Later = tuple[Gang, Fit, int]


def claim_wait(cluster: ClusterView, claim: Claim) -> Wait:
    """Why a gang with a claim waits: the number of jobs that still have devices of its placement."""
    leaving: set[str] = set()
    for rank, slot in enumerate(claim.fit.placement):
        shared = bool(claim.fit.shares and claim.fit.shares[rank])
        jobs = [cluster.jobs[job_id] for job_id in cluster.jobs_by_node.get(slot.node, ())]
        # A shared device may keep some of its ranks.
        leaving |= {
            job.id
            for job in jobs
            if not (shared and job.phase in ACTIVE) and _holds_some(job, slot)
        }
    facts = VictimsLeaving(len(leaving)) if leaving else None
    return Wait(code=WaitReason.WAITING_FOR_VICTIMS, facts=facts)


def _holds_some(job: Job, slot: Slot) -> bool:
    attempt = job.live_attempt
    if attempt is None:
        return False
    return any(
        held.node == slot.node
        and rank.state in WITH_DEVICES
        and not set(slot.devices).isdisjoint(held.devices)
        for held, rank in zip(attempt.placement, attempt.ranks, strict=True)
    )


class RoomMaker:
    """Makes room for waiting gangs in one pass, and appends the decisions for that."""

    def __init__(
        self, snapshot: Snapshot, gate: QuotaGate, decisions: list[SchedulingDecision]
    ) -> None:
        self._snapshot = snapshot
        self._gate = gate
        self._decisions = decisions

    def make_room(self, gang: Gang, starts_with: int = 0, *, evicts: bool = True) -> bool:
        """Claim devices of leaving gangs, or evict or move others; False if neither helps.

        An elastic gang gets the most replicas that this allows. `starts_with` is the number with
        which it could start at once: it waits only for more. Without `evicts` it only waits.
        """
        if gang.elastic is not None:
            return self._make_room_for_more(gang, starts_with, evicts=evicts)
        flavors = self._gate.flavors(gang)
        if self._some_are_leaving:
            for flavor in flavors:
                place = self._fit_later(gang, flavor)
                if place is not None:
                    return self._claim(gang, place)
        return evicts and any(self._move_or_evict(gang, flavor) for flavor in flavors)

    @property
    def _some_are_leaving(self) -> bool:
        return self._snapshot.future_free is not self._snapshot.free or bool(self._snapshot.evicted)

    def _make_room_for_more(self, gang: Gang, starts_with: int, *, evicts: bool) -> bool:
        assert gang.elastic is not None
        flavors, asked = self._gate.flavors(gang), replicas_asked(gang)
        low = max(gang.elastic[1], starts_with + 1)

        def later_with(count: int) -> Later | None:
            smaller = scaled_gang(self._snapshot, gang, count)
            fits = ((smaller, self._fit_later(smaller, flavor)) for flavor in flavors)
            return next(((g, place, count) for g, place in fits if place is not None), None)

        def evicted_with(count: int) -> tuple[Gang, Eviction] | None:
            smaller = scaled_gang(self._snapshot, gang, count)
            evictions = (self._eviction(smaller, flavor, by_domain=True) for flavor in flavors)
            return next(
                ((smaller, eviction) for eviction in evictions if eviction is not None), None
            )

        later = most_replicas(low, asked, later_with) if self._some_are_leaving else None
        low = low if later is None else later[2] + 1
        eviction = most_replicas(low, asked, evicted_with) if evicts else None
        if eviction is not None:
            return self._evict(*eviction)
        if later is not None:
            return self._claim(later[0], later[1])
        if starts_with or not evicts:
            return False
        least = scaled_gang(self._snapshot, gang)
        return any(self._move_or_evict(least, flavor) for flavor in flavors)

    def _move_or_evict(self, gang: Gang, flavor: str) -> bool:
        """Make room by moves without victims, then with preferred victims, then with any victims.

        Gangs are moved only where the policy consolidates.
        """
        snapshot = self._snapshot
        consolidates = snapshot.cluster.policy.consolidate
        if self._cannot_help(gang, flavor):
            return False
        if consolidates and not self._gate.code(gang, flavor):
            plan = consolidate(snapshot, gang, flavor, snapshot.future_free)
            if plan is not None:
                return self._move_aside(gang, plan)
        if self._evict_some(gang, flavor, by_domain=not consolidates):
            return True
        if not consolidates:
            return False
        if self._reclaim_and_move(gang, flavor):
            return True
        return self._evict_some(gang, flavor, by_domain=True)

    def _evict_some(self, gang: Gang, flavor: str, *, by_domain: bool) -> bool:
        eviction = self._eviction(gang, flavor, by_domain=by_domain)
        return eviction is not None and self._evict(gang, eviction)

    def _eviction(self, gang: Gang, flavor: str, *, by_domain: bool) -> Eviction | None:
        if self._cannot_help(gang, flavor):
            return None
        model = self._snapshot.cluster.quota_model
        eviction = model.victims(self._snapshot, gang, flavor, by_domain=by_domain)
        # Without victims, what is missing is not room but permission of the queue's quota.
        return eviction if eviction is not None and eviction.victims else None

    def _cannot_help(self, gang: Gang, flavor: str) -> bool:
        """Whether non-preemptible gangs use up the quota, so that evicting others would not help."""
        code = self._gate.code(gang, flavor, after_releases=True)
        return code is WaitReason.NON_PREEMPTIBLE_OVER_QUOTA

    def _fit_later(self, gang: Gang, flavor: str) -> Fit | None:
        if self._gate.code(gang, flavor, after_releases=True):
            return None
        return fit(self._snapshot.cluster, self._snapshot.future_free, gang, flavor)

    def _claim(self, gang: Gang, place: Fit) -> bool:
        self._snapshot.claim(gang, place)
        self._decisions.append(Claim(gang.id, place))
        return True

    def _evict(self, gang: Gang, eviction: Eviction) -> bool:
        for victim in eviction.victims:
            self._evict_one(gang, victim)
        return self._claim(gang, eviction.fit)

    def _evict_one(self, gang: Gang, victim: Victim) -> None:
        snapshot = self._snapshot
        if victim.ranks:
            snapshot.shrink(victim.job, victim.ranks)
            self._shrink(victim, gang.id)
            return
        snapshot.evict(victim.job)
        self._forget_shrink(victim.job.id)
        waiting = snapshot.job(gang.id)
        known = waiting.namespace == victim.job.namespace
        name = JobName(waiting.namespace, waiting.name) if known else None
        facts = Preempted(gang.gpus, gang.priority, name)
        self._decisions.append(Evict(victim.job.id, gang.id, facts))

    def _shrink(self, victim: Victim, preemptor: str) -> None:
        """Record one decision for all the ranks that a gang gives back."""
        for index, known in enumerate(self._decisions):
            if isinstance(known, Shrink) and known.job == victim.job.id:
                ranks = tuple(sorted((*known.ranks, *victim.ranks)))
                self._decisions[index] = known._replace(ranks=ranks)
                return
        self._decisions.append(Shrink(victim.job.id, victim.ranks, preemptor))

    def _forget_shrink(self, job_id: str) -> None:
        """Drop the decision to shrink a gang that is now evicted whole."""
        self._decisions[:] = [
            d for d in self._decisions if not (isinstance(d, Shrink) and d.job == job_id)
        ]

    def _move_aside(self, gang: Gang, plan: Consolidation) -> bool:
        for move in plan.moves:
            self._snapshot.evict(move.victim.job)
            self._forget_shrink(move.victim.job.id)
            facts = MovedAside(gang.gpus)
            self._decisions.append(Evict(move.victim.job.id, gang.id, facts, move.fit))
        self._claim(gang, plan.fit)
        for move in plan.moves:
            # Claim its planned place before any other gang gets it.
            self._snapshot.claim(move.victim.gang, move.fit)
        return True

    def _reclaim_and_move(self, gang: Gang, flavor: str) -> bool:
        """Evict gangs of queues above their fair share, and move gangs that are still in the way."""
        snapshot = self._snapshot
        victims = snapshot.cluster.quota_model.reclaim_candidates(snapshot, gang, flavor)
        for count in range(1, len(victims) + 1):
            view, chosen = snapshot.future_free.copy(), no_doubles(victims[:count])
            for victim in chosen:
                snapshot.release(view, victim.job, victim.ranks)
            gone = [victim.job.id for victim in chosen]
            plan = consolidate(snapshot, gang, flavor, view, gone)
            if plan is not None:
                for victim in chosen:
                    self._evict_one(gang, victim)
                return self._move_aside(gang, plan)
        return False
