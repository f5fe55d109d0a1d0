"""Deserved quotas, as in KAI: each queue gets its quota first, and the rest of the cluster is divided by rank and weight.

Gangs that cannot be preempted may use no more than the queue's quota, since nothing could take back what they borrow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.model.policy import Preempt, WithinQueue
from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.fair_shares import divide_by_deserved
from controlplane.scheduling.quota.demand import Demand
from controlplane.scheduling.quota.tree import Branch
from controlplane.scheduling.quota_models.cluster_shares import ClusterShares
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey


class Deserved(ClusterShares):
    name = "deserved_plus_weight"
    description = (
        "each queue gets its quota first; the rest of the cluster is divided by rank and weight"
    )
    default_preempt = Preempt(within_queue=WithinQueue.LOWER)

    def divide(
        self, siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
    ) -> dict[Branch, float]:
        return divide_by_deserved(siblings, pool, wanted)

    def order(self, snapshot: Snapshot, gang: Gang, place: QueueKey) -> Any:
        """Within quota first, then by rank, then by the used part of the quota; level by level.

        The gang counts in that part, as in KAI's order; of equal ones the part without the gang decides.
        """
        path = snapshot.tree().branches[gang.queue].path()
        return tuple(_level_key(snapshot, branch, gang.milli) for branch in path), place

    def admits(self, demand: Demand) -> WaitReason | None:
        # This comes before the ceiling: preemption can make room below a ceiling, but cannot help here.
        return demand.non_preemptible_above_nominal() or demand.above_ceiling()


def _level_key(snapshot: Snapshot, branch: Branch, more: int) -> tuple[bool, int, float, float]:
    over = branch.used_below + more > branch.nominal
    own = max(1.0, branch.nominal) * max(branch.weight, 1e-9)
    used = snapshot.usage_with_history(branch)
    return over, -branch.rank, (used + more) / own, used / own
