"""What classic and fair sharing have in common: a gang needs nominal quota, or borrows what other queues lend."""

from controlplane.model.reasons import QuotaShort, Wait, WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.quota.demand import Demand
from controlplane.scheduling.quota_models.quota_model import QuotaModel
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE

_QUOTA_CODES = (WaitReason.INSUFFICIENT_QUOTA, WaitReason.BLOCKED_BY_RESERVED_CAPACITY)


class NominalQuota(QuotaModel):
    def admits(self, demand: Demand) -> WaitReason | None:
        return demand.above_ceiling() or demand.above_quota()

    def explain(self, snapshot: Snapshot, gang: Gang, flavor: str, code: WaitReason) -> list[Wait]:
        if code is WaitReason.QUEUE_LIMIT:
            return []
        tree = snapshot.tree(snapshot.quota_key(gang.queue, flavor))
        available, potential = tree.available(gang.queue), tree.potential(gang.queue)
        if gang.milli <= available:
            return []
        return [
            Wait(
                code=code if code in _QUOTA_CODES else WaitReason.INSUFFICIENT_QUOTA,
                needed=-(-gang.milli // WHOLE),
                available=max(0, available) // WHOLE,
                facts=QuotaShort(potential // WHOLE) if gang.milli > potential else None,
            )
        ]
