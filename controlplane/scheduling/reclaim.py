"""From whom a gang may take back quota in its tree: Kueue's rules for cohorts of any depth.

On the way up from its queue there may be a branch that has enough of its own for the gang. From there on
the gang is nearer to that quota than whoever uses it from outside: it takes it back, whatever its own
queue borrows. From those met before, it may take only as the queue's rules for borrowing say.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import Branch, QuotaTree
from controlplane.scheduling.quotas import Quotas
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Victim, running
from controlplane.sharing import Reclaim


class Others(NamedTuple):
    """Running gangs of other queues: those that use what is nearer to the preemptor, and the rest."""

    nearer: list[Victim]
    rest: list[Victim]

    @property
    def all(self) -> list[Victim]:
        return [*self.nearer, *self.rest]


def others_in_tree(
    snapshot: Snapshot, gang: Gang, quotas: Quotas, lacking: Sequence[QuotaTree], reclaim: Reclaim
) -> Others:
    """Whom the gang may evict in other queues that have more than their own of what it lacks."""
    found = Others([], [])
    path = quotas.gpus.branches[gang.queue].path()[::-1]
    if reclaim is Reclaim.NEVER:
        return found
    wanted = list(quotas.limited)
    is_nearer = _fits_in(wanted, gang.queue)
    for branch, above in pairwise(path):
        victims = found.nearer if is_nearer else found.rest
        for name in _queues_over(lacking, above, skip=branch):
            if name in snapshot.queues:
                victims += [
                    victim
                    for victim in running(snapshot, name)
                    if reclaim is Reclaim.ANY or victim.priority < gang.priority
                ]
        is_nearer = _fits_in(wanted, above.name) or is_nearer
    return found


def somebody_is_over(branch: Branch) -> bool:
    """Whether, on the way up from a queue, anything beside the way has more than its own."""
    above = branch.parent
    while above is not None:
        for child in above.children:
            if child.used > child.subtree and child is not branch:
                return True
        branch, above = above, above.parent
    return False


def _fits_in(wanted: list[tuple[QuotaTree, int]], name: str) -> bool:
    """Whether a branch has enough of its own for what is wanted; then what is left to want above it."""
    fits = True
    for index, (tree, amount) in enumerate(wanted):
        branch = tree.branches[name]
        fits = fits and branch.used + amount <= branch.subtree
        left = max(0, amount - max(0, branch.local - branch.used))
        wanted[index] = tree, left
    return fits


def _queues_over(lacking: Sequence[QuotaTree], branch: Branch, skip: Branch) -> Iterator[str]:
    """The queues below a branch that have more than their own, and all between has, too."""
    for child in branch.children:
        if child is skip:
            continue
        if any(tree.branches[child.name].borrows for tree in lacking):
            yield child.name
            yield from _queues_over(lacking, child, skip)
