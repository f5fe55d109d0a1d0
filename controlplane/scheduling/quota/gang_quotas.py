"""All quotas that one gang needs: of GPUs, and of the other resources that its pods request.

The victim search removes victims from all these quotas together, tests the gang, and adds them
back. Whether a queue borrows is decided by the quotas in which the gang lacks something. The share
of a queue is its largest share of any resource (dominant resource fairness).
"""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.quota.tree import ANY, RESOURCE, Branch, QuotaTree, share, split
from controlplane.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from controlplane.scheduling.preemption.victim_search import Victim


# The weighted share; and the unweighted share, which compares branches of weight 0.
Share = tuple[float, float]


class Quotas:
    """The quotas after all leaving gangs have left. Callers must undo their changes."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str) -> None:
        self._snapshot = snapshot
        self.gang = gang
        self.queue = gang.queue
        resources = snapshot.resources if snapshot.cluster.by_request else []
        # GPUs come first, then other resources, in the same order in all lists here.
        flavor = snapshot.quota_key(gang.queue, flavor)
        self.trees: list[QuotaTree] = [snapshot.future_tree(key) for key in (flavor, *resources)]
        # A ceiling counts GPUs of all flavours together.
        self._of_all = None if flavor == ANY else snapshot.future_tree()
        self._needs = [
            gang.milli,
            *[gang.amount(key.removeprefix(RESOURCE)) for key in resources],
        ]
        limits = {RESOURCE + quota.name for quota in snapshot.queues[gang.queue].resources}
        self._limited = [i for i, key in enumerate(("", *resources)) if not i or key in limits]
        self._amounts: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    @property
    def limited(self) -> list[tuple[QuotaTree, int]]:
        """The quotas that the gang's queue has, each with the gang's need."""
        return [(self.trees[i], self._needs[i]) for i in self._limited]

    @property
    def gpus(self) -> QuotaTree:
        """The quota of GPUs, of the gang's flavour or of all."""
        return self.trees[0]

    # -- usage ----------------------------------------------------------------------

    def remove(self, victims: Iterable["Victim"]) -> None:
        """Count the victims as gone."""
        for victim in victims:
            if self._of_all is not None:
                self._of_all.remove(victim.queue, victim.milli)
            self.gpus.remove(victim.queue, self._gpus_of(victim))
            if len(self.trees) > 1:
                for tree, amount in zip(self.trees[1:], self._of(victim), strict=True):
                    tree.remove(victim.queue, amount)

    def add(self, victims: Iterable["Victim"]) -> None:
        """Undo `remove`; pass the victims in reverse order."""
        for victim in victims:
            if self._of_all is not None:
                self._of_all.add(victim.queue, victim.milli)
            self.gpus.add(victim.queue, self._gpus_of(victim))
            if len(self.trees) > 1:
                for tree, amount in zip(self.trees[1:], self._of(victim), strict=True):
                    tree.add(victim.queue, amount)

    def useful(self, victims: Iterable["Victim"], lacking: Iterable[QuotaTree]) -> "list[Victim]":
        """The victims that use something of the quotas in `lacking`.

        For GPUs, only usage of the flavour that the gang would use counts.
        """
        wanted = list(lacking)
        if wanted == [self.gpus] and self.gpus.flavor == ANY:
            return list(victims)
        return [
            victim
            for victim in victims
            if any(
                amount and tree in wanted
                for tree, amount in zip(
                    self.trees, [self._gpus_of(victim), *self._of(victim)], strict=True
                )
            )
        ]

    def _gpus_of(self, victim: "Victim") -> int:
        """The victim's GPUs of this flavour, in thousandths; 0 if it uses another flavour."""
        if self.gpus.flavor == ANY:
            return victim.milli
        attempt = victim.job.attempt
        assert attempt is not None
        return victim.milli if attempt.flavor == self.gpus.flavor else 0

    def _of(self, victim: "Victim") -> list[int]:
        """The victim's requests of each resource other than GPUs."""
        key = victim.job.id, victim.ranks
        known = self._amounts.get(key)
        if known is None:
            held = self._snapshot.amount_held
            ranks = victim.ranks or None
            known = [held(victim.job, tree.flavor, ranks) for tree in self.trees[1:]]
            self._amounts[key] = known
        return known

    def enter(self) -> None:
        """Count the gang itself as running."""
        for tree, need in zip(self.trees, self._needs, strict=True):
            tree.add(self.queue, need)

    def leave(self) -> None:
        """Undo `enter`."""
        for tree, need in zip(self.trees, self._needs, strict=True):
            tree.remove(self.queue, need)

    # -- may it? -------------------------------------------------------------------------------

    def has_others(self) -> bool:
        """Whether the quotas of all resources other than GPUs suffice for the gang."""
        return all(self._is_enough(index) for index in self._limited[1:])

    def has_quota(self) -> bool:
        """Whether all quotas and ceilings suffice for the gang."""
        gpus = self._needs[0]
        return (
            gpus <= self.gpus.available(self.queue)
            and self.is_below_ceiling()
            and self.has_others()
        )

    def is_below_ceiling(self) -> bool:
        """Whether the gang stays below the hard ceilings of its queue and of the queues above."""
        tree = self.gpus if self._of_all is None else self._of_all
        return self._needs[0] <= tree.below_ceiling(self.queue)

    def _is_enough(self, index: int) -> bool:
        return self._needs[index] <= self.trees[index].available(self.queue)

    def would_borrow(self) -> bool:
        """Whether the queue would use more than its own quota of any resource with the gang."""
        return any(self.trees[i].borrowing_with(self.queue, self._needs[i]) for i in self._limited)

    def lacking(self) -> list[QuotaTree]:
        """The quotas that are too small for the gang; that of GPUs if all of them suffice."""
        trees = [self.trees[i] for i in self._limited if not self._is_enough(i)]
        return trees or [self.gpus]

    # -- shares --------------------------------------------------------------------------------

    def meet(self, queue: str) -> tuple[str, str] | None:
        """The names of the branches of the gang's queue and of `queue` below their common ancestor.

        Return None if there is no common ancestor, or if one is an ancestor of the other.
        """
        branches = self.gpus.branches
        met = split(branches[self.queue], branches[queue])
        return None if met is None else (met[0].name, met[1].name)

    def share(self, branch: str) -> Share:
        """The branch's largest weighted share of any resource, beyond its own quota."""
        return max(_share(tree.branches[branch]) for tree in self.trees)

    def share_with(self, branch: str) -> Share:
        """The same with the gang counted in."""
        return max(
            [
                _share(tree.branches[branch], need)
                for tree, need in zip(self.trees, self._needs, strict=True)
            ]
        )

    def way_down(self, queue: str) -> list[tuple[float, float, bool]]:
        """Sort keys of the branches from below the root to `queue`; the largest share sorts first.

        Of equal shares a branch with children sorts first: below it the largest share can be
        chosen.
        """
        path = self.gpus.branches[queue].path()
        keys = []
        for branch in path[1:] or path:
            by_weight, plain = self.share(branch.name)
            keys.append((-by_weight, -plain, branch is path[-1]))
        return keys

    def stays_within_own(self) -> bool:
        """Whether the queue, with the gang counted in, borrows nothing of any resource.

        Testing only the resources that it lacks is not enough: two queues could then evict each
        other in turns, each for the resource of which it has less than its own quota.
        """
        return not any(self.trees[i].branches[self.queue].borrows for i in self._limited)


def _share(branch: Branch, more: int = 0) -> Share:
    by_weight = share(branch, more)
    if by_weight != inf:
        return by_weight, 0.0
    pool = branch.parent.subtree if branch.parent is not None else branch.subtree
    return by_weight, (branch.used + more - branch.subtree) / max(1, pool)


def is_over(trees: Iterable[QuotaTree], victim: str, preemptor: str) -> bool:
    """Whether the victim's queue borrows a resource that the preemptor's queue lacks."""
    return any(_is_over(tree.branches[victim], tree.branches[preemptor]) for tree in trees)


def is_under(trees: Iterable[QuotaTree], queue: str) -> bool:
    """Whether the queue uses less than its own quota in each of the `trees`."""
    branches = [tree.branches[queue] for tree in trees]
    return all(branch.used < branch.subtree for branch in branches)


def _is_over(victim: Branch, preemptor: Branch) -> bool:
    """Whether the victim's queue and all its ancestors below the common ancestor borrow."""
    if not victim.borrows:
        return False
    met = split(victim, preemptor)
    if met is None:
        return False
    branch: Branch | None = victim
    while branch is not None:
        if not branch.borrows:
            return False
        if branch is met[0]:
            return True
        branch = branch.parent
    return True
