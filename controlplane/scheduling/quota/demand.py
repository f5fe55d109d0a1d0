"""What one gang asks of its queue's quotas at one instant, and what is missing."""

from collections.abc import Callable, Mapping

from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.quota.tree import QuotaTree
from controlplane.scheduling.snapshot import Snapshot

_NONE: Mapping[str, int] = {}


class Demand:
    """A gang and the quotas that it would use: now, after leaving gangs have left, or at a later instant.

    `tree` is the quota of the gang's flavour and `total` that of all GPUs, which ceilings count; both without the gang.
    `non_preemptible_milli` returns what the non-preemptible gangs of the queue would use with this one.
    `reserved` is what each queue keeps in `tree` for its head, in thousandths of a GPU.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        gang: Gang,
        *,
        tree: QuotaTree,
        total: QuotaTree,
        non_preemptible_milli: Callable[[], int],
        reserved: Mapping[str, int] = _NONE,
    ) -> None:
        self.snapshot = snapshot
        self.gang = gang
        self.tree = tree
        self.total = total
        self._non_preemptible_milli = non_preemptible_milli
        self._reserved = reserved

    def above_ceiling(self) -> WaitReason | None:
        """QUEUE_LIMIT if the gang would exceed a ceiling of its queue or of a queue above; else None."""
        over = self.gang.milli > self.total.below_ceiling(self.gang.queue)
        return WaitReason.QUEUE_LIMIT if over else None

    def above_quota(self) -> WaitReason | None:
        """Why nominal and borrowed quota do not suffice; None if they do."""
        tree, queue, milli = self.tree, self.gang.queue, self.gang.milli
        own = self._reserved.get(queue, 0)
        if own:
            tree.remove(queue, own)
        available = tree.available(queue)
        if own:
            tree.add(queue, own)
        if milli <= available:
            return None
        if milli <= available + sum(self._reserved.values()) - own:
            return WaitReason.BLOCKED_BY_RESERVED_CAPACITY
        return WaitReason.INSUFFICIENT_QUOTA

    def non_preemptible_above_nominal(self) -> WaitReason | None:
        """Why the gang waits if non-preemptible gangs would use more than the queue's nominal quota; else None."""
        if self.gang.preemptible:
            return None
        over = self._non_preemptible_milli() > self.tree.branches[self.gang.queue].nominal
        return WaitReason.NON_PREEMPTIBLE_OVER_QUOTA if over else None
