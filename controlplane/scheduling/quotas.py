"""All quotas that a gang needs at once: of GPUs, and of what its pods request beside them.

Victims leave and come back in all of them together. Who borrows is asked of those quotas in which the
gang lacks something; a share is the largest part that a queue has of anything (dominant resource fairness).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import RESOURCE, Branch, QuotaTree, share, split
from controlplane.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from controlplane.scheduling.victims import Victim


class Quotas:
    """Quotas as they will be when those are gone who have been told to go; put back after use."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str) -> None:
        self._snapshot = snapshot
        self.gang = gang
        self.queue = gang.queue
        resources = snapshot.resources if snapshot.world.by_request else []
        # GPUs come first; what follows are other resources, in the same order in all lists here.
        self.trees: list[QuotaTree] = [snapshot.coming_tree(key) for key in (flavor, *resources)]
        self._needs = [
            gang.milli,
            *[gang.amount(key.removeprefix(RESOURCE)) for key in resources],
        ]
        limits = {RESOURCE + quota.name for quota in snapshot.queues[gang.queue].resources}
        self._limited = [i for i, key in enumerate(("", *resources)) if not i or key in limits]
        self._amounts: dict[tuple[str, tuple[int, ...]], list[int]] = {}

    @property
    def gpus(self) -> QuotaTree:
        return self.trees[0]

    # -- coming and going ----------------------------------------------------------------------

    def remove(self, victims: Iterable["Victim"]) -> None:
        for victim in victims:
            self.gpus.remove(victim.queue, victim.milli)
            if len(self.trees) > 1:
                for tree, amount in zip(self.trees[1:], self._of(victim), strict=True):
                    tree.remove(victim.queue, amount)

    def add(self, victims: Iterable["Victim"]) -> None:
        """The opposite of `remove`; last gone, first back."""
        for victim in victims:
            self.gpus.add(victim.queue, victim.milli)
            if len(self.trees) > 1:
                for tree, amount in zip(self.trees[1:], self._of(victim), strict=True):
                    tree.add(victim.queue, amount)

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
            and gpus <= self.gpus.below_ceiling(self.queue)
            and self.has_others()
        )

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

    def share(self, branch: str) -> float:
        """The largest part that the branch has of anything, beyond its own and by weight."""
        return max([share(tree.branches[branch]) for tree in self.trees])

    def share_with(self, branch: str) -> float:
        """The same with the gang counted in."""
        return max(
            [
                share(tree.branches[branch], need)
                for tree, need in zip(self.trees, self._needs, strict=True)
            ]
        )


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
