"""All quotas that a gang needs at once: of GPUs, and of what its pods request beside them.

Victims leave and come back in all of them together. Who borrows is asked of those quotas in which the
gang lacks something; a share is the largest part that a queue has of anything (dominant resource fairness).
"""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import ANY, RESOURCE, Branch, QuotaTree, share, split
from controlplane.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from controlplane.scheduling.victims import Victim


# By weight; and without it, where both have no weight at all.
Share = tuple[float, float]


class Quotas:
    """Quotas as they will be when those are gone who have been told to go; put back after use."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str) -> None:
        self._snapshot = snapshot
        self.gang = gang
        self.queue = gang.queue
        resources = snapshot.resources if snapshot.world.by_request else []
        # GPUs come first; what follows are other resources, in the same order in all lists here.
        flavor = snapshot.quota_key(gang.queue, flavor)
        self.trees: list[QuotaTree] = [snapshot.coming_tree(key) for key in (flavor, *resources)]
        # A ceiling counts GPUs of all flavours together.
        self._of_all = None if flavor == ANY else snapshot.coming_tree()
        self._needs = [
            gang.milli,
            *[gang.amount(key.removeprefix(RESOURCE)) for key in resources],
        ]
        limits = {RESOURCE + quota.name for quota in snapshot.queues[gang.queue].resources}
        self._limited = [i for i, key in enumerate(("", *resources)) if not i or key in limits]
        self._amounts: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    @property
    def limited(self) -> list[tuple[QuotaTree, int]]:
        """The quotas that the gang's queue has, and how much the gang wants of each."""
        return [(self.trees[i], self._needs[i]) for i in self._limited]

    @property
    def gpus(self) -> QuotaTree:
        return self.trees[0]

    # -- coming and going ----------------------------------------------------------------------

    def remove(self, victims: Iterable["Victim"]) -> None:
        for victim in victims:
            if self._of_all is not None:
                self._of_all.remove(victim.queue, victim.milli)
            self.gpus.remove(victim.queue, self._gpus_of(victim))
            if len(self.trees) > 1:
                for tree, amount in zip(self.trees[1:], self._of(victim), strict=True):
                    tree.remove(victim.queue, amount)

    def add(self, victims: Iterable["Victim"]) -> None:
        """The opposite of `remove`; last gone, first back."""
        for victim in victims:
            if self._of_all is not None:
                self._of_all.add(victim.queue, victim.milli)
            self.gpus.add(victim.queue, self._gpus_of(victim))
            if len(self.trees) > 1:
                for tree, amount in zip(self.trees[1:], self._of(victim), strict=True):
                    tree.add(victim.queue, amount)

    def useful(self, victims: Iterable["Victim"], lacking: Iterable[QuotaTree]) -> "list[Victim]":
        """Those who have some of what is lacking; of GPUs, of the flavour that the gang would use."""
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
        """What it has of the GPUs that this is about: of another flavour it has none of them."""
        if self.gpus.flavor == ANY:
            return victim.milli
        attempt = victim.job.attempt
        assert attempt is not None
        return victim.milli if attempt.flavor == self.gpus.flavor else 0

    def _of(self, victim: "Victim") -> list[int]:
        """What it has requested of each resource beside GPUs."""
        key = victim.job.id, victim.ranks
        known = self._amounts.get(key)
        if known is None:
            held = self._snapshot.amount_held
            ranks = victim.ranks or None
            known = [held(victim.job, tree.flavor, ranks) for tree in self.trees[1:]]
            self._amounts[key] = known
        return known

    def enter(self) -> None:
        """The gang itself is counted in."""
        for tree, need in zip(self.trees, self._needs, strict=True):
            tree.add(self.queue, need)

    def leave(self) -> None:
        for tree, need in zip(self.trees, self._needs, strict=True):
            tree.remove(self.queue, need)

    # -- may it? -------------------------------------------------------------------------------

    def has_others(self) -> bool:
        """Whether there is enough of all resources beside GPUs."""
        return all(self._is_enough(index) for index in self._limited[1:])

    def has_quota(self) -> bool:
        gpus = self._needs[0]
        return (
            gpus <= self.gpus.available(self.queue)
            and self.is_below_ceiling()
            and self.has_others()
        )

    def is_below_ceiling(self) -> bool:
        """Whether the gang stays below the hard ceilings of its queue and of those above it."""
        tree = self.gpus if self._of_all is None else self._of_all
        return self._needs[0] <= tree.below_ceiling(self.queue)

    def _is_enough(self, index: int) -> bool:
        return self._needs[index] <= self.trees[index].available(self.queue)

    def would_borrow(self) -> bool:
        """Whether the queue would use more than its own of anything with the gang."""
        return any(self.trees[i].borrowing_with(self.queue, self._needs[i]) for i in self._limited)

    def lacking(self) -> list[QuotaTree]:
        """The quotas that are too small for the gang as it is; that of GPUs if it is not quota."""
        found = [self.trees[i] for i in self._limited if not self._is_enough(i)]
        return found or [self.gpus]

    # -- shares --------------------------------------------------------------------------------

    def meet(self, queue: str) -> tuple[str, str] | None:
        """The two branches right below the place where the ways of both queues meet, by name."""
        branches = self.gpus.branches
        met = split(branches[self.queue], branches[queue])
        return None if met is None else (met[0].name, met[1].name)

    def share(self, branch: str) -> Share:
        """The largest part that the branch has of anything, beyond its own and by weight."""
        return max([_share(tree.branches[branch]) for tree in self.trees])

    def share_with(self, branch: str) -> Share:
        """The same with the gang counted in."""
        return max(
            [
                _share(tree.branches[branch], need)
                for tree, need in zip(self.trees, self._needs, strict=True)
            ]
        )

    def way_down(self, queue: str) -> list[tuple[float, float, bool]]:
        """The shares of the branches from below the root to a queue, largest first when sorted.

        Of equal ones a branch with others below it comes first: there the most unfair can be chosen.
        """
        path = self.gpus.branches[queue].path()
        found = []
        for branch in path[1:] or path:
            by_weight, plain = self.share(branch.name)
            found.append((-by_weight, -plain, branch is path[-1]))
        return found

    def stays_within_own(self) -> bool:
        """Whether the queue, with the gang counted in, has no more than its own of anything.

        Of what it lacks alone would not do: then two queues could take turns at evicting each other,
        each for the resource of which it has not got its own.
        """
        return not any(self.trees[i].branches[self.queue].borrows for i in self._limited)


def _share(branch: Branch, more: int = 0) -> Share:
    by_weight = share(branch, more)
    if by_weight != inf:
        return by_weight, 0.0
    pool = branch.parent.subtree if branch.parent is not None else branch.subtree
    return by_weight, (branch.used + more - branch.subtree) / max(1, pool)


def is_over(trees: Iterable[QuotaTree], victim: str, preemptor: str) -> bool:
    """Whether the victim's queue has more than its own of something that the preemptor lacks."""
    return any(_is_over(tree.branches[victim], tree.branches[preemptor]) for tree in trees)


def is_under(trees: Iterable[QuotaTree], queue: str) -> bool:
    """Whether the queue has less than its own of everything that it lacks."""
    branches = [tree.branches[queue] for tree in trees]
    return all(branch.used < branch.subtree for branch in branches)


def _is_over(victim: Branch, preemptor: Branch) -> bool:
    """Whether the victim's queue, and all above it up to where the ways meet, borrow."""
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
