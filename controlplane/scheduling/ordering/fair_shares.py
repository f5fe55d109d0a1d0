"""The fair share of the cluster that each queue may claim: by weight, or by max-min fairness.

The capacity of the cluster is divided among the roots of the queue tree, and each share in turn
among the children, down to the leaves. A queue wants what its subtree uses and waits for, up to its
ceiling. There are two rules for dividing a pool among siblings:

- `divide_by_deserved` (as in KAI): first each sibling gets what it wants up to its own quota. The
  rest goes to the siblings of the highest rank, then to the next rank, and within a rank by
  weighted max-min fairness: shares grow in proportion to weight, a sibling that has all it wants
  drops out, and its part is divided among the others (water filling).
- `divide_by_weight`: by weight among the siblings that use or want anything, whether or not they can
  use the whole share.

Water filling hands out whole devices, since a fraction of a device in a share is of no use. Devices
that remain go one by one to the siblings with the largest parts that were rounded down.
"""

from collections.abc import Callable, Mapping, Sequence

from controlplane.scheduling.quota.tree import Branch, QuotaTree
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE

# Divides a pool of thousandths of a GPU among siblings that want these amounts.
Divide = Callable[[Sequence[Branch], float, Mapping[str, int]], dict[Branch, float]]


def fair_shares(snapshot: Snapshot, tree: QuotaTree, divide: Divide) -> dict[str, int]:
    """Map each queue to its present fair share, in thousandths of a GPU."""
    capacity = capacity_milli(snapshot)
    wanted = _wanted(snapshot, tree)
    shares: dict[str, int] = {}
    roots = [b for b in tree.branches.values() if b.parent is None]
    _descend(roots, capacity, wanted, shares, divide)
    return shares


def capacity_milli(snapshot: Snapshot) -> int:
    """The devices of all nodes that take work, in thousandths of a GPU."""
    return snapshot.cluster.node_facts.capacity_milli


def _wanted(snapshot: Snapshot, tree: QuotaTree) -> dict[str, int]:
    """Map each queue to what its whole subtree uses and waits for."""
    wanted: dict[str, int] = dict.fromkeys(tree.branches, 0)
    for name in snapshot.queues:
        branch = tree.branches[name]
        inner = sum(child.used_below for child in branch.children)
        own = branch.used_below - inner
        own += sum(snapshot.gang(place.job).milli for place in snapshot.queue_index(name).order)
        for above in branch.path():
            wanted[above.name] += own
    return wanted


def _descend(
    siblings: Sequence[Branch],
    pool: float,
    wanted: Mapping[str, int],
    shares: dict[str, int],
    divide: Divide,
) -> None:
    for branch, milli in divide(siblings, pool, wanted).items():
        shares[branch.name] = int(milli + 1e-6)
        if branch.children:
            _descend(branch.children, milli, wanted, shares, divide)


def _most(branch: Branch, wanted: Mapping[str, int]) -> float:
    return min(wanted[branch.name], branch.ceiling)


def divide_by_deserved(
    siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
) -> dict[Branch, float]:
    """Give each sibling its own quota first, then divide the rest by rank and weight."""
    given: dict[Branch, float] = {}
    for branch in siblings:
        given[branch] = min(_most(branch, wanted), branch.nominal)
    left = pool - sum(given.values())
    for rank in sorted({branch.rank for branch in siblings}, reverse=True):
        left = _water_fill([b for b in siblings if b.rank == rank], left, wanted, given)
    return given


def divide_by_weight(
    siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
) -> dict[Branch, float]:
    """Give each active sibling its part by weight, whether it can use all of it or not."""
    active = [branch for branch in siblings if wanted[branch.name]]
    weights = sum(branch.weight for branch in active)
    return {
        branch: (pool * branch.weight / weights if branch in active and weights else 0.0)
        for branch in siblings
    }


def _water_fill(
    siblings: Sequence[Branch],
    left: float,
    wanted: Mapping[str, int],
    given: dict[Branch, float],
) -> float:
    """Divide `left` by weight among siblings that want more, and return the remainder.

    Shares are whole devices. Devices that remain go one by one, the largest part first.
    """
    unsatisfied = [b for b in siblings if _most(b, wanted) > given[b] and b.weight > 0]
    while left > 1e-6 and unsatisfied:
        unit = left / sum(branch.weight for branch in unsatisfied)
        parts = {b: min(unit * b.weight, _most(b, wanted) - given[b]) for b in unsatisfied}
        whole = {b: _whole(part, _most(b, wanted) - given[b]) for b, part in parts.items()}
        if not any(whole.values()):
            # No sibling's part is a whole device.
            for branch in sorted(unsatisfied, key=lambda b: (-parts[b], b.name)):
                more = min(WHOLE, left, _most(branch, wanted) - given[branch])
                given[branch] += more
                left -= more
            return left
        for branch, more in whole.items():
            given[branch] += more
            left -= more
        unsatisfied = [b for b in unsatisfied if _most(b, wanted) - given[b] > 1e-6]
    return left


def _whole(part: float, wish: float) -> float:
    """Round a part down to whole devices; a part that meets the `wish` is returned exactly."""
    return part if part >= wish - 1e-6 else (part + 1e-6) // WHOLE * WHOLE
