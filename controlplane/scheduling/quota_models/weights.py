"""Usage of a queue in relation to its weight, by which several models order queues."""

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.fair_shares import capacity_milli
from controlplane.scheduling.quota.tree import RESOURCE, Branch
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey

_WEIGHT_MIN = 1e-9


def usage_by_weight(snapshot: Snapshot, branch: Branch) -> float:
    """What the queue uses, with decayed past usage, divided by its weight."""
    return snapshot.usage_with_history(branch) / max(branch.weight, _WEIGHT_MIN)


def filling_key(
    snapshot: Snapshot, gang: Gang, place: QueueKey
) -> tuple[float, float, str, QueueKey]:
    """Progressive filling: the smallest weighted usage, with the gang counted in, comes first."""
    branch = snapshot.tree().branches[gang.queue]
    used = snapshot.usage_with_history(branch)
    with_gang = max(used + gang.milli, *_dominant_usage(snapshot, gang))
    return with_gang / max(branch.weight, _WEIGHT_MIN), used, gang.queue, place


def _dominant_usage(snapshot: Snapshot, gang: Gang) -> list[float]:
    """The queue's usage of each other resource with the gang, converted to GPUs.

    A resource of which half is used counts as half of the cluster's GPUs. So the resource of which
    the queue has the largest share decides (dominant resource fairness).
    """
    usages = [0.0]
    for key in snapshot.resources:
        tree = snapshot.tree(key)
        total = sum(branch.nominal for branch in tree.branches.values())
        if total:
            amount = tree.branches[gang.queue].used_below + gang.amount(key.removeprefix(RESOURCE))
            usages.append(amount / total * capacity_milli(snapshot))
    return usages
