"""Preemption by fair shares of the whole cluster, as KAI's reclaim.

A gang whose branch stays within its fair share (`ordering/fair_shares.py`) takes from branches above theirs: first
gangs without which the branch still has its share, then any gang of a branch above its share.
"""

from collections.abc import Mapping, Sequence

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.fair_shares import Divide, fair_shares
from controlplane.scheduling.preemption.rules import search_below_ceilings
from controlplane.scheduling.preemption.victim_domains import fewest_victims
from controlplane.scheduling.preemption.victim_search import (
    Eviction,
    Victim,
    in_order,
    ranks_given_by,
    running,
)
from controlplane.scheduling.quota.tree import Branch, QuotaTree, split
from controlplane.scheduling.snapshot import Snapshot


class OverShare:
    """The gangs of branches above their fair share that a waiting gang may evict."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str, divide: Divide) -> None:
        self._gang = gang
        self._tree = tree = snapshot.future_tree(snapshot.quota_key(gang.queue, flavor))
        self.fair_milli = fair_shares(snapshot, tree, divide)
        self._names = sorted(n for n in tree.branches if n != gang.queue and n in snapshot.queues)
        # Candidates of all other queues, since evictions from near queues may let the gang take
        # from queues further away.
        self.pool: list[Victim] = []
        if self._may_take_from(self._names, self._used()):
            victims = [victim for name in self._names for victim in running(snapshot, name)]
            self.pool = in_order(snapshot, victims)

    def _used(self) -> dict[str, int]:
        return {name: branch.used_below for name, branch in self._tree.branches.items()}

    def _may_take_from(self, names: Sequence[str], used: Mapping[str, int]) -> list[str]:
        """The queues that the gang may take from.

        With the gang, its side must stay within its fair share up to the common ancestor.
        """
        branches, milli = self._tree.branches, self._gang.milli
        own = branches[self._gang.queue]
        return [
            name
            for name in names
            if all(
                used[b.name] + milli <= self.fair_milli[b.name]
                for b in _between(own, branches[name])
            )
        ]

    def admissible(self, victims: Sequence[Victim]) -> list[Victim]:
        """Those of `victims` that the gang may evict, in order."""
        used, names, order = self._used(), self._names, list[Victim]()
        own = self._tree.branches[self._gang.queue]
        while True:
            # Evictions from near queues may let the gang take from queues further away.
            may_take_from = self._may_take_from(names, used)
            if not may_take_from:
                return order
            names = [name for name in names if name not in may_take_from]
            queues = set(may_take_from)
            left = [victim for victim in victims if victim.queue in queues]
            _take_over_share(left, own, self._tree, used, self.fair_milli, order)


def candidates_over_share(
    snapshot: Snapshot, gang: Gang, flavor: str, divide: Divide
) -> list[Victim]:
    """Candidates above their fair share, in order; empty if the gang may not preempt."""
    over = OverShare(snapshot, gang, flavor, divide)
    return over.admissible(over.pool)


def _take_over_share(
    left: list[Victim],
    own: Branch,
    tree: QuotaTree,
    used: dict[str, int],
    fair_milli: Mapping[str, int],
    order: list[Victim],
) -> None:
    """Append victims to `order`, and deduct them from `used`.

    First come victims whose branches keep their share, then any victim of a branch above its share.
    """
    for may_fall_below in (False, True):
        rest = []
        for victim in left:
            above = _between(tree.branches[victim.queue], own)
            over = [used[b.name] - fair_milli[b.name] for b in above]
            # A gang that is evicted whole replaces its ranks that were taken before.
            given = sum(other.milli for other in ranks_given_by(victim, order))
            if all(o + given > 0 and (may_fall_below or o >= victim.milli - given) for o in over):
                order.append(victim)
                for branch in tree.branches[victim.queue].path():
                    used[branch.name] -= victim.milli - given
            else:
                rest.append(victim)
        left = rest


def _between(victim: Branch, preemptor: Branch) -> list[Branch]:
    """The victim's branch and its ancestors below the common ancestor; the whole path without one."""
    met = split(victim, preemptor)
    path = victim.path()
    return path if met is None else path[path.index(met[0]) :]


def victims_over_share(
    snapshot: Snapshot, gang: Gang, flavor: str, divide: Divide, *, by_domain: bool
) -> Eviction | None:
    """Victims from branches above their fair share, or None."""
    over = OverShare(snapshot, gang, flavor, divide)
    if not over.pool:
        return None
    search = search_below_ceilings(snapshot, gang, flavor)
    tree, is_below_ceiling = search.quotas.gpus, search.is_allowed
    fair_milli = over.fair_milli
    own = tree.branches[gang.queue]

    def is_within_share(victims: Sequence[Victim]) -> bool:
        """With just these gone, its side stays within its share up to each of them."""
        queues = {victim.queue for victim in victims}
        return is_below_ceiling(victims) and all(
            branch.used_below + gang.milli <= fair_milli[branch.name]
            for name in queues
            for branch in _between(own, tree.branches[name])
        )

    search.is_allowed = is_within_share
    return fewest_victims(search, over.pool, over.admissible, by_domain=by_domain)
