"""Priority alone: any gang of lower priority may be preempted, in any queue; guests first, by `away_priority`."""

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.rules import search_below_ceilings
from controlplane.scheduling.preemption.victim_search import Eviction, in_order, running
from controlplane.scheduling.quota_models.quota_model import QuotaModel
from controlplane.scheduling.snapshot import Snapshot


class HomeAway(QuotaModel):
    name = "home_away"
    description = "the highest priority goes first, and preempts lower ones in any queue, guests before owners"
    preempts_by_default = True

    def victims(
        self, snapshot: Snapshot, gang: Gang, flavor: str, *, by_domain: bool
    ) -> Eviction | None:
        candidates = [
            victim
            for queue in sorted(snapshot.queues)
            for victim in running(snapshot, queue)
            if victim.priority < gang.priority
        ]
        search = search_below_ceilings(snapshot, gang, flavor)
        return search.fewest(in_order(snapshot, candidates))
