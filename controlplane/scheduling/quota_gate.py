"""Whether quotas let a gang start now, and what heads that wait keep of them for themselves."""

from controlplane.devices import WHOLE
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import ANY, RESOURCE, QuotaTree
from controlplane.scheduling.snapshot import Snapshot
from controlplane.sharing import QuotaModel, Reclaim

_ALL_ALIKE = (ANY,)

OVER_QUOTA = "insufficient_quota"
UNPREEMPTIBLE = "non_preemptible_over_quota"


def lacking(snapshot: Snapshot, gang: Gang, *, coming: bool = False) -> str:
    """The first resource beside GPUs of which the queue's quota leaves too little, or nothing."""
    for quota in snapshot.queues[gang.queue].resources:
        key = RESOURCE + quota.name
        tree = snapshot.coming_tree(key) if coming else snapshot.tree(key)
        if gang.amount(quota.name) > tree.available(gang.queue):
            return quota.name
    return ""


class QuotaGate:
    """Quotas as one pass sees them. `started` is who it has started, for as long as it runs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.started: list[Gang] = []
        # What the heads of queues keep from borrowers: (flavour, queue) -> quota.
        self._kept: dict[tuple[str, str], int] = {}

    def flavors(self, gang: Gang) -> tuple[str, ...]:
        """The flavours to try, in order; the empty one where the queue does not tell them apart."""
        if gang.asks.flavors:
            return gang.asks.flavors
        flavors = self._snapshot.queues[gang.queue].flavors
        return tuple([quota.name for quota in flavors]) if flavors else _ALL_ALIKE

    def code(self, gang: Gang, flavor: str, *, coming: bool = False) -> str:
        """Nothing if the quota allows the gang, else the code of the reason."""
        found = self._of_gpus(gang, flavor, coming=coming)
        if not found and lacking(self._snapshot, gang, coming=coming):
            return OVER_QUOTA
        return found

    def _of_gpus(self, gang: Gang, flavor: str, *, coming: bool) -> str:
        snapshot, queue = self._snapshot, gang.queue
        if not snapshot.has_quotas:
            ceiling = snapshot.queues[queue].gpus_max
            if ceiling is None:
                return ""
            over = snapshot.used_milli(queue) + gang.milli > ceiling * WHOLE
            return "queue_limit" if over else ""
        key = snapshot.quota_key(queue, flavor)
        tree = snapshot.coming_tree(key) if coming else snapshot.tree(key)
        model = snapshot.world.policy.model
        # Before the ceiling: room below that can be made, and quota for this cannot.
        if model is QuotaModel.DESERVED and self._is_too_fixed(gang, tree):
            return UNPREEMPTIBLE
        # A ceiling counts GPUs of all flavours together.
        of_all = snapshot.coming_tree() if coming else snapshot.tree()
        if gang.milli > of_all.below_ceiling(queue):
            return "queue_limit"
        if model in (QuotaModel.CLASSIC, QuotaModel.FAIR):
            own = self._kept.get((key, queue), 0)
            if own:
                tree.remove(queue, own)
            left = tree.available(queue)
            if own:
                tree.add(queue, own)
            if gang.milli > left:
                kept = sum(n for (f, q), n in self._kept.items() if f == key and q != queue)
                return "blocked_by_reserved_capacity" if gang.milli <= left + kept else OVER_QUOTA
        return ""

    def _is_too_fixed(self, gang: Gang, tree: QuotaTree) -> bool:
        """Whether the queue would have more that nobody can take from it than is its own."""
        if gang.preemptible:
            return False
        snapshot, queue = self._snapshot, gang.queue
        holders = snapshot.world.holders.get(queue, ())
        gangs = [snapshot.gang(job_id) for job_id in holders if job_id != gang.id]
        gangs += [other for other in self.started if other.queue == queue]
        fixed = sum(other.milli for other in gangs if not other.preemptible)
        # Of one that runs, these are ranks that it gets besides: it counts once, as a whole.
        own = snapshot.gang(gang.id).milli if gang.id in holders else gang.milli
        return fixed + own > tree.branches[queue].nominal

    def keep(self, gang: Gang) -> None:
        """A head that may not take back what others borrow keeps its queue's own for itself.

        It does so against other queues only. Where it may reclaim, nothing need be kept.
        """
        snapshot = self._snapshot
        if not snapshot.has_quotas or snapshot.world.policy.model is not QuotaModel.CLASSIC:
            return
        flavor = snapshot.quota_key(gang.queue, self.flavors(gang)[0])
        tree = snapshot.tree(flavor)
        branch = tree.branches[gang.queue]
        key = flavor, gang.queue
        if branch.parent is None or key in self._kept or gang.milli > branch.subtree:
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
            self._kept[key] = keeps
            snapshot.reserve_quota(gang.queue, keeps, flavor)
