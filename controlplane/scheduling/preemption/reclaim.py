"""From which queues a gang may reclaim quota: Kueue's rules for cohorts of any depth.

This follows Kueue's hierarchical preemption (`classical/hierarchical_preemption.go`). The search
goes up from the gang's queue to the root. At each ancestor it looks at the other subtrees below
that ancestor and collects the running gangs of queues that borrow, where every branch in between
borrows too.

Somewhere on the way up there may be a branch whose own quota suffices for the gang. Queues met
above that branch use quota to which the gang has the better claim: it reclaims from them even if
its own queue borrows (`Others.nearer`). Queues met before may be preempted only as the queue's
rules for preemption while borrowing allow (`Others.rest`).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from controlplane.model.policy import Reclaim
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.victim_search import Victim, running
from controlplane.scheduling.quota.gang_quotas import Quotas
from controlplane.scheduling.quota.tree import Branch, QuotaTree
from controlplane.scheduling.snapshot import Snapshot


class Others(NamedTuple):
    """Running gangs of other queues: those that use quota nearer to the preemptor, and the rest."""

    nearer: list[Victim]
    rest: list[Victim]

    @property
    def all(self) -> list[Victim]:
        return [*self.nearer, *self.rest]


def others_in_tree(
    snapshot: Snapshot, gang: Gang, quotas: Quotas, lacking: Sequence[QuotaTree], reclaim: Reclaim
) -> Others:
    """The gangs that the gang may evict in other queues that borrow something that it lacks."""
    others = Others([], [])
    path = quotas.gpus.branches[gang.queue].path()[::-1]
    if reclaim is Reclaim.NEVER:
        return others
    wanted = list(quotas.limited)
    is_nearer = _fits_in(wanted, gang.queue)
    for branch, above in pairwise(path):
        victims = others.nearer if is_nearer else others.rest
        for name in _queues_over(lacking, above, skip=branch):
            if name in snapshot.queues:
                victims += [
                    victim
                    for victim in running(snapshot, name)
                    if reclaim is Reclaim.ANY or victim.priority < gang.priority
                ]
        is_nearer = _fits_in(wanted, above.name) or is_nearer
    return others


def any_branch_borrows(branch: Branch) -> bool:
    """Whether any subtree off the path from `branch` to the root borrows."""
    above = branch.parent
    while above is not None:
        for child in above.children:
            if child.used > child.subtree and child is not branch:
                return True
        branch, above = above, above.parent
    return False


def _fits_in(wanted: list[tuple[QuotaTree, int]], name: str) -> bool:
    """Whether the branch's own quota suffices for `wanted`.

    `wanted` is changed to what remains to be taken from the quota above the branch.
    """
    fits = True
    for index, (tree, amount) in enumerate(wanted):
        branch = tree.branches[name]
        fits = fits and branch.used + amount <= branch.subtree
        left = max(0, amount - max(0, branch.local - branch.used))
        wanted[index] = tree, left
    return fits


def _queues_over(lacking: Sequence[QuotaTree], branch: Branch, skip: Branch) -> Iterator[str]:
    """The queues below `branch`, except `skip`, that borrow together with all branches in between."""
    for child in branch.children:
        if child is skip:
            continue
        if any(tree.branches[child.name].borrows for tree in lacking):
            yield child.name
            yield from _queues_over(lacking, child, skip)
