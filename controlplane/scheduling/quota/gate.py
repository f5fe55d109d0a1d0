"""Whether quotas let a gang start now, and what waiting heads reserve of them.

`QuotaGate.code` checks one gang and one flavour in this order:

1. without quotas, only the queue's own ceiling (`gpus_max`); else what the quota model admits: always ceilings, and
   quotas of GPUs as the model defines it (`QuotaModel.admits`);
2. the quotas of other resources.

As in Kueue, a classic queue whose head cannot reclaim lent quota reserves quota for that head, so
that other queues do not borrow it before the head can start (`keep`).
"""

from controlplane.model.policy import Reclaim
from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.quota.demand import Demand
from controlplane.scheduling.quota.tree import ANY, RESOURCE
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE

_ALL_ALIKE = (ANY,)
_NONE: dict[str, int] = {}


def lacking(snapshot: Snapshot, gang: Gang, *, after_releases: bool = False) -> str:
    """The first resource other than GPUs whose quota is too small for the gang; empty if none is.

    With `after_releases`, quota counts as after all leaving gangs have left.
    """
    for quota in snapshot.queues[gang.queue].resources:
        key = RESOURCE + quota.name
        tree = snapshot.future_tree(key) if after_releases else snapshot.tree(key)
        if gang.amount(quota.name) > tree.available(gang.queue):
            return quota.name
    return ""


class QuotaGate:
    """The quotas in one scheduling pass. `started` lists the gangs that the pass has started."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.started: list[Gang] = []
        # What the heads of queues reserve from borrowers: flavour -> queue -> quota in thousandths.
        self._reserved: dict[str, dict[str, int]] = {}

    def flavors(self, gang: Gang) -> tuple[str, ...]:
        """The flavours to try, in order; `(ANY,)` where the queue does not distinguish flavours."""
        if gang.asks.flavors:
            return gang.asks.flavors
        flavors = self._snapshot.queues[gang.queue].flavors
        return tuple(quota.name for quota in flavors) if flavors else _ALL_ALIKE

    def code(self, gang: Gang, flavor: str, *, after_releases: bool = False) -> WaitReason | None:
        """None if the quotas allow the gang, else the reason why it waits.

        With `after_releases`, quotas count as after all leaving gangs have left.
        """
        reason = self._of_gpus(gang, flavor, after_releases=after_releases)
        if reason is None and lacking(self._snapshot, gang, after_releases=after_releases):
            return WaitReason.INSUFFICIENT_QUOTA
        return reason

    def _of_gpus(self, gang: Gang, flavor: str, *, after_releases: bool) -> WaitReason | None:
        snapshot, queue = self._snapshot, gang.queue
        if not snapshot.has_quotas:
            ceiling = snapshot.queues[queue].gpus_max
            if ceiling is None:
                return None
            over = snapshot.used_milli(queue) + gang.milli > ceiling * WHOLE
            return WaitReason.QUEUE_LIMIT if over else None
        key = snapshot.quota_key(queue, flavor)
        demand = Demand(
            snapshot,
            gang,
            tree=snapshot.future_tree(key) if after_releases else snapshot.tree(key),
            # A ceiling counts GPUs of all flavours together.
            total=snapshot.future_tree() if after_releases else snapshot.tree(),
            non_preemptible_milli=lambda: self._non_preemptible_milli(gang),
            reserved=self._reserved.get(key, _NONE),
        )
        return snapshot.cluster.quota_model.admits(demand)

    def _non_preemptible_milli(self, gang: Gang) -> int:
        """What the queue's non-preemptible gangs would use, with this gang."""
        snapshot, queue = self._snapshot, gang.queue
        holders = snapshot.cluster.holders.get(queue, ())
        gangs = [snapshot.gang(job_id) for job_id in holders if job_id != gang.id]
        gangs += [other for other in self.started if other.queue == queue]
        used = sum(other.milli for other in gangs if not other.preemptible)
        # A running gang gets these ranks in addition: it counts once, as a whole.
        return used + (snapshot.gang(gang.id).milli if gang.id in holders else gang.milli)

    def keep(self, gang: Gang) -> None:
        """Reserve the queue's own quota for its waiting head, if it cannot reclaim what is lent.

        The reservation holds against other queues only. A head that may reclaim needs none.
        """
        snapshot = self._snapshot
        if not snapshot.has_quotas or not snapshot.cluster.quota_model.reserves_for_head:
            return
        flavor = snapshot.quota_key(gang.queue, self.flavors(gang)[0])
        tree = snapshot.tree(flavor)
        branch = tree.branches[gang.queue]
        reserved = self._reserved.setdefault(flavor, {})
        if branch.parent is None or gang.queue in reserved or gang.milli > branch.subtree:
            return
        if snapshot.preempt(gang.queue).reclaim is Reclaim.ANY:
            return
        keeps = gang.milli
        if not tree.borrowing_with(gang.queue, gang.milli):
            keeps = min(keeps, branch.subtree - branch.used)
        elif branch.borrow_max is not None:
            keeps = min(keeps, branch.subtree + branch.borrow_max - branch.used)
        keeps = min(keeps, max(0, tree.available(gang.queue)))
        if keeps > 0:
            reserved[gang.queue] = keeps
            snapshot.reserve_quota(gang.queue, keeps, flavor)
