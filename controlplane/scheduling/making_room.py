"""How a gang that does not fit gets room: it waits for who is leaving, or others give way or move."""

from controlplane.scheduling.consolidation import Consolidation, consolidate
from controlplane.scheduling.decisions import Claim, Decision, Evict, Shrink
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.giving_way import evict_for
from controlplane.scheduling.preemption import candidates_over_share
from controlplane.scheduling.quota_gate import UNPREEMPTIBLE, QuotaGate
from controlplane.scheduling.smaller import most_replicas, replicas_asked, scaled_gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Eviction, Victim, no_doubles
from controlplane.sharing import QuotaModel

# An elastic gang as large as it will be, where it then fits, and its replicas.
Later = tuple[Gang, Fit, int]

_SHARED_BY_CLUSTER = (QuotaModel.DESERVED, QuotaModel.FAIR_PREEMPT)


class RoomMaker:
    def __init__(self, snapshot: Snapshot, gate: QuotaGate, decisions: list[Decision]) -> None:
        self._snapshot = snapshot
        self._gate = gate
        self._decisions = decisions

    def make_room(self, gang: Gang, starts_with: int = 0, *, evicts: bool = True) -> bool:
        """Waits for those who are leaving, or makes others leave or move; False if neither helps.

        An elastic gang gets the most replicas that this brings it. `starts_with` is how many it could
        start with at once: it waits only for more than these. Unless it `evicts` it only waits.
        """
        if gang.elastic is not None:
            return self._make_room_for_more(gang, starts_with, evicts=evicts)
        flavors = self._gate.flavors(gang)
        if self._some_are_leaving:
            for flavor in flavors:
                found = self._fit_later(gang, flavor)
                if found is not None:
                    return self._claim(gang, found)
        return evicts and any(self._move_or_evict(gang, flavor) for flavor in flavors)

    @property
    def _some_are_leaving(self) -> bool:
        return self._snapshot.coming is not self._snapshot.free or bool(self._snapshot.evicted)

    def _make_room_for_more(self, gang: Gang, starts_with: int, *, evicts: bool) -> bool:
        assert gang.elastic is not None
        flavors, asked = self._gate.flavors(gang), replicas_asked(gang)
        low = max(gang.elastic[1], starts_with + 1)

        def later_with(count: int) -> Later | None:
            smaller = scaled_gang(self._snapshot, gang, count)
            fits = ((smaller, self._fit_later(smaller, flavor)) for flavor in flavors)
            return next(((g, found, count) for g, found in fits if found is not None), None)

        def evicted_with(count: int) -> tuple[Gang, Eviction] | None:
            smaller = scaled_gang(self._snapshot, gang, count)
            evictions = (self._eviction(smaller, flavor, by_domain=True) for flavor in flavors)
            return next(((smaller, found) for found in evictions if found is not None), None)

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
        """Where gangs may be moved: without victims, then with the preferred ones, then with others."""
        snapshot = self._snapshot
        consolidates = snapshot.world.policy.consolidate
        if self._is_in_vain(gang, flavor):
            return False
        if consolidates and not self._gate.code(gang, flavor):
            plan = consolidate(snapshot, gang, flavor, snapshot.coming)
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
        if self._is_in_vain(gang, flavor):
            return None
        eviction = evict_for(self._snapshot, gang, flavor, by_domain=by_domain)
        # Without victims it is not room that is missing, but what its queue may hold.
        return eviction if eviction is not None and eviction.victims else None

    def _is_in_vain(self, gang: Gang, flavor: str) -> bool:
        """Whether what stands in its way cannot be evicted, so that evicting others would not help."""
        return self._gate.code(gang, flavor, coming=True) == UNPREEMPTIBLE

    def _fit_later(self, gang: Gang, flavor: str) -> Fit | None:
        if self._gate.code(gang, flavor, coming=True):
            return None
        return fit(self._snapshot.world, self._snapshot.coming, gang, flavor)

    def _claim(self, gang: Gang, found: Fit) -> bool:
        self._snapshot.claim(gang, found)
        self._decisions.append(Claim(gang.id, found))
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
        who = "a job of another namespace"
        if waiting.namespace == victim.job.namespace:
            who = f"{waiting.namespace}/{waiting.name}"
        message = f"gave way to {who}, which needs {gang.gpus} GPUs with priority {gang.priority}"
        self._decisions.append(Evict(victim.job.id, gang.id, message))

    def _shrink(self, victim: Victim, preemptor: str) -> None:
        """One decision for all the ranks that a gang gives back."""
        for index, known in enumerate(self._decisions):
            if isinstance(known, Shrink) and known.job == victim.job.id:
                ranks = tuple(sorted((*known.ranks, *victim.ranks)))
                self._decisions[index] = known._replace(ranks=ranks)
                return
        self._decisions.append(Shrink(victim.job.id, victim.ranks, preemptor))

    def _forget_shrink(self, job_id: str) -> None:
        """Ranks that a gang was to give back leave with the whole of it."""
        self._decisions[:] = [
            d for d in self._decisions if not (isinstance(d, Shrink) and d.job == job_id)
        ]

    def _move_aside(self, gang: Gang, plan: Consolidation) -> bool:
        for move in plan.moves:
            self._snapshot.evict(move.victim.job)
            self._forget_shrink(move.victim.job.id)
            message = f"moves aside, so that a gang of {gang.gpus} GPUs finds its room in one piece"
            self._decisions.append(Evict(move.victim.job.id, gang.id, message, move.fit))
        self._claim(gang, plan.fit)
        for move in plan.moves:
            # It comes back where it was planned to, before anyone else gets that.
            self._snapshot.claim(move.victim.gang, move.fit)
        return True

    def _reclaim_and_move(self, gang: Gang, flavor: str) -> bool:
        """Takes back what others have beyond their share, and moves who is still in the way."""
        snapshot = self._snapshot
        if snapshot.world.policy.model not in _SHARED_BY_CLUSTER:
            return False
        victims = candidates_over_share(snapshot, gang, flavor)
        for count in range(1, len(victims) + 1):
            view, chosen = snapshot.coming.copy(), no_doubles(victims[:count])
            for victim in chosen:
                snapshot.let_go(view, victim.job, victim.ranks)
            gone = [victim.job.id for victim in chosen]
            plan = consolidate(snapshot, gang, flavor, view, gone)
            if plan is not None:
                for victim in chosen:
                    self._evict_one(gang, victim)
                return self._move_aside(gang, plan)
        return False
