"""Progressive filling: the queue with the smallest usage by weight goes first; ceilings are the only limit."""

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.rules import victims_of_own_queue
from controlplane.scheduling.preemption.victim_search import Eviction
from controlplane.scheduling.quota_models.quota_model import QuotaModel
from controlplane.scheduling.quota_models.weights import filling_key
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey


class Progressive(QuotaModel):
    name = "progressive_filling"
    description = "the queue with the smallest usage by weight goes first; jobs preempt within their queue only"

    def order(
        self, snapshot: Snapshot, gang: Gang, place: QueueKey
    ) -> tuple[float, float, str, QueueKey]:
        return filling_key(snapshot, gang, place)

    def victims(
        self, snapshot: Snapshot, gang: Gang, flavor: str, *, by_domain: bool
    ) -> Eviction | None:
        return victims_of_own_queue(snapshot, gang, flavor)
