"""How a gang that does not fit gets room: it waits for who is leaving, or others give way or move."""

from controlplane.scheduling.consolidation import Consolidation, consolidate
from controlplane.scheduling.decisions import Claim, Decision, Evict, Shrink
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.giving_way import evict_for
from controlplane.scheduling.preemption import candidates_over_share
from controlplane.scheduling.quota_gate import UNPREEMPTIBLE, QuotaGate
from controlplane.scheduling.smaller import scaled_gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Eviction, Victim, no_doubles
from controlplane.sharing import QuotaModel

_SHARED_BY_CLUSTER = (QuotaModel.DESERVED, QuotaModel.FAIR_PREEMPT)


class RoomMaker:
    def __init__(self, snapshot: Snapshot, gate: QuotaGate, decisions: list[Decision]) -> None:
        self._snapshot = snapshot
        self._gate = gate
        self._decisions = decisions

    def make_room(self, gang: Gang) -> bool:
        """Waits for those who are leaving, or makes others leave or move; False if neither helps."""
        snapshot, gate = self._snapshot, self._gate
        least = scaled_gang(snapshot, gang)
        for flavor in gate.flavors(gang):
            if snapshot.coming is not snapshot.free or snapshot.evicted:
                found = self._fit_later(least, flavor)
                if found is not None:
                    self._claim(least, found)
                    return True
        for flavor in gate.flavors(gang):
            if gate.code(least, flavor, coming=True) == UNPREEMPTIBLE:
                # What stands in its way cannot be evicted, so evicting others would help nobody.
                continue
            if self._move_or_evict(least, flavor):
                return True
        return False

    def _move_or_evict(self, gang: Gang, flavor: str) -> bool:
        """Where gangs may be moved: without victims, then with the preferred ones, then with others."""
        snapshot = self._snapshot
        consolidates = snapshot.world.policy.consolidate
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
        eviction = evict_for(self._snapshot, gang, flavor, by_domain=by_domain)
        # Without victims it is not room that is missing, but what its queue may hold.
        return eviction is not None and bool(eviction.victims) and self._evict(gang, eviction)

    def _fit_later(self, gang: Gang, flavor: str) -> Fit | None:
        if self._gate.code(gang, flavor, coming=True):
            return None
        return fit(self._snapshot.world, self._snapshot.coming, gang, flavor)

    def _claim(self, gang: Gang, found: Fit) -> None:
        self._snapshot.claim(gang, found)
        self._decisions.append(Claim(gang.id, found))

    def _evict(self, gang: Gang, eviction: Eviction) -> bool:
        for victim in eviction.victims:
            self._evict_one(gang, victim)
        self._claim(gang, eviction.fit)
        return True

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
