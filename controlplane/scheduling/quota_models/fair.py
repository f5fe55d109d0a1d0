"""Fair sharing of borrowed quota, as in Kueue. `preemption/fair_sharing.py` has the search for victims."""

from typing import Any

from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.fair_sharing import victims_by_share
from controlplane.scheduling.preemption.victim_search import Eviction
from controlplane.scheduling.quota.tree import RESOURCE, Branch, share
from controlplane.scheduling.quota_models.nominal import NominalQuota
from controlplane.scheduling.quota_models.weights import usage_by_weight
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey


class Fair(NominalQuota):
    name = "quota_fair"
    description = "nominal quota with borrowing; idle quota is divided by weight, and reclaimed by fair shares"
    preempts_by_default = True
    no_victims = WaitReason.FAIR_SHARE

    def order(self, snapshot: Snapshot, gang: Gang, place: QueueKey) -> Any:
        """The smaller share, with the gang counted in, comes first; level by level down the tree."""
        path = snapshot.tree().branches[gang.queue].path()
        shares = _shares(path, gang.milli)
        for key in snapshot.resources:
            path_of = snapshot.tree(key).branches[gang.queue].path()
            shares_of = _shares(path_of, gang.amount(key.removeprefix(RESOURCE)))
            shares = tuple(map(max, shares, shares_of))
        if snapshot.cluster.policy.usage_halflife_s is None:
            return shares, place
        return shares, place.priority_key, usage_by_weight(snapshot, path[-1]), place

    def victims(
        self, snapshot: Snapshot, gang: Gang, flavor: str, *, by_domain: bool
    ) -> Eviction | None:
        return victims_by_share(snapshot, gang, flavor, by_domain=by_domain)


def _shares(path: list[Branch], more: int) -> tuple[float, ...]:
    return tuple(share(branch, more) for branch in path[1:] or path)
