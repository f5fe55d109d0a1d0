"""Fair preemption: the cluster is divided by weight among the queues that use or want anything."""

from collections.abc import Mapping, Sequence

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.fair_shares import divide_by_weight
from controlplane.scheduling.quota.tree import Branch
from controlplane.scheduling.quota_models.cluster_shares import ClusterShares
from controlplane.scheduling.quota_models.weights import filling_key
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey


class FairPreempt(ClusterShares):
    name = "fair_preempt"
    description = (
        "the cluster is divided by weight; a queue below its share preempts queues above theirs"
    )

    def divide(
        self, siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
    ) -> dict[Branch, float]:
        return divide_by_weight(siblings, pool, wanted)

    def order(
        self, snapshot: Snapshot, gang: Gang, place: QueueKey
    ) -> tuple[float, float, str, QueueKey]:
        return filling_key(snapshot, gang, place)
