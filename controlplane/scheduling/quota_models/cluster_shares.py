"""What deserved quotas and fair preemption have in common: every queue has a fair share of the whole cluster.

A gang whose queue stays within its share takes from queues above theirs, as KAI's reclaim does; else it may preempt
gangs of its own queue. Models differ in how they divide the cluster (`divide`, see `ordering/fair_shares.py`).
"""

from collections.abc import Mapping, Sequence

from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.over_share import (
    candidates_over_share,
    victims_over_share,
)
from controlplane.scheduling.preemption.rules import victims_of_own_queue
from controlplane.scheduling.preemption.victim_search import Eviction, Victim
from controlplane.scheduling.quota.tree import Branch
from controlplane.scheduling.quota_models.quota_model import QuotaModel
from controlplane.scheduling.snapshot import Snapshot


class ClusterShares(QuotaModel):
    preempts_by_default = True
    no_victims = WaitReason.FAIR_SHARE

    def divide(
        self, siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
    ) -> dict[Branch, float]:
        """Divide a pool of GPUs, in thousandths, among siblings that want these amounts."""
        raise NotImplementedError

    def victims(
        self, snapshot: Snapshot, gang: Gang, flavor: str, *, by_domain: bool
    ) -> Eviction | None:
        eviction = victims_over_share(snapshot, gang, flavor, self.divide, by_domain=by_domain)
        if eviction is not None:
            return eviction
        return victims_of_own_queue(snapshot, gang, flavor)

    def reclaim_candidates(self, snapshot: Snapshot, gang: Gang, flavor: str) -> list[Victim]:
        return candidates_over_share(snapshot, gang, flavor, self.divide)
