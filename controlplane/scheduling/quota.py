"""The tree of queues: who owns how much, who borrows, and what is left for whom.

Everything counts thousandths of a GPU. A queue's own quota that it does not lend is local; the rest
is stored with its parent, where siblings may borrow it, and so on upwards. This is Kueue's
arithmetic for trees of cohorts of any depth; a hard ceiling (`gpus_max`) holds for the whole subtree.
"""

from collections.abc import Iterable, Mapping

from controlplane.devices import WHOLE
from controlplane.sharing import Queue

UNLIMITED = 1 << 60
# Quota that is not told apart by flavours.
ANY = ""
# Quota of something else than GPUs goes by this and its name, where others have a flavour.
RESOURCE = "resource/"


class Branch:
    """One queue in the tree, for one flavour."""

    __slots__ = (
        "below", "borrow_max", "ceiling", "children", "depth", "free_for_all", "local", "name", "nominal",
        "parent", "rank", "subtree", "used", "used_below", "weight",
    )  # fmt: skip

    def __init__(self, name: str, queue: Queue | None, flavor: str = ANY) -> None:
        self.name = name
        self.parent: Branch | None = None
        self.children: list[Branch] = []
        # For a root, the names of all branches of its tree, once somebody has asked.
        self.below: list[str] = []
        self.depth = 0
        self.weight = 1.0 if queue is None else queue.weight
        self.rank = 0 if queue is None else queue.rank
        of_gpus = not flavor.startswith(RESOURCE)
        limit = queue.gpus_max if queue is not None and of_gpus else None
        self.ceiling = UNLIMITED if limit is None else limit * WHOLE
        self.nominal = 0
        self.local = 0
        self.subtree = 0
        self.borrow_max: int | None = None
        # No quota was ever stated: the queue takes whatever is free.
        self.free_for_all = False
        # Usage as the tree counts it (what exceeds the local quota also counts at the parent), and
        # all that the subtree holds.
        self.used = 0
        self.used_below = 0

    @property
    def borrows(self) -> bool:
        return self.used > self.subtree

    def root(self) -> "Branch":
        branch = self
        while branch.parent is not None:
            branch = branch.parent
        return branch

    def path(self) -> "list[Branch]":
        """The branches from the root to this one."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


class QuotaTree:
    """One tree of quotas. Copies are cheap to make, and meant to be scribbled on."""

    def __init__(self, queues: Mapping[str, Queue], flavor: str = ANY) -> None:
        self.flavor = flavor
        self.branches: dict[str, Branch] = {}
        for name in sorted(queues):
            self._branch(name, queues)
        for branch in sorted(self.branches.values(), key=lambda b: -b.depth):
            self._add_up(branch, queues.get(branch.name))

    def _branch(self, name: str, queues: Mapping[str, Queue]) -> Branch:
        known = self.branches.get(name)
        if known is not None:
            return known
        queue = queues.get(name)
        branch = self.branches[name] = Branch(name, queue, self.flavor)
        if queue is not None and queue.parent:
            branch.parent = self._branch(queue.parent, queues)
            branch.parent.children.append(branch)
            branch.depth = branch.parent.depth + 1
        return branch

    def _add_up(self, branch: Branch, queue: Queue | None) -> None:
        """Children come before their parents here."""
        nominal, borrow, lend = _quota(queue, self.flavor)
        branch.nominal = 0 if nominal is None else round(nominal * WHOLE)
        branch.borrow_max = None if borrow is None else round(borrow * WHOLE)
        branch.subtree = branch.nominal + sum(c.subtree - c.local for c in branch.children)
        if lend is not None and branch.parent is not None:
            branch.local = max(0, branch.subtree - round(lend * WHOLE))
        branch.free_for_all = nominal is None and branch.parent is None and not branch.children

    def twin(self, queues: Mapping[str, Queue]) -> "QuotaTree":
        """A copy to scribble on."""
        twin = QuotaTree(queues, self.flavor)
        for name, branch in self.branches.items():
            twin.branches[name].used = branch.used
            twin.branches[name].used_below = branch.used_below
        return twin

    # -- usage -------------------------------------------------------------------------------

    def add(self, name: str, milli: int) -> None:
        branch: Branch | None = self.branches[name]
        below = branch
        while below is not None:
            below.used_below += milli
            below = below.parent
        while branch is not None and milli:
            left = max(0, branch.local - branch.used)
            branch.used += milli
            milli = max(0, milli - left)
            branch = branch.parent

    def remove(self, name: str, milli: int) -> None:
        branch: Branch | None = self.branches[name]
        below = branch
        while below is not None:
            below.used_below -= milli
            below = below.parent
        while branch is not None and milli:
            above = branch.used - branch.local
            branch.used -= milli
            milli = min(milli, max(0, above))
            branch = branch.parent

    def available(self, name: str) -> int:
        """How much more the queue may take now, by quota."""
        branch = self.branches[name]
        if branch.free_for_all:
            return UNLIMITED
        return _available(branch)

    def potential(self, name: str) -> int:
        """How much it could take if nobody else had anything."""
        branch = self.branches[name]
        if branch.free_for_all:
            return UNLIMITED
        return _potential(branch)

    def below_ceiling(self, name: str) -> int:
        """How much more fits under the hard ceilings above the queue."""
        branch: Branch | None = self.branches[name]
        left = UNLIMITED
        while branch is not None:
            left = min(left, branch.ceiling - branch.used_below)
            branch = branch.parent
        return left

    def borrowing_with(self, name: str, milli: int) -> bool:
        """Whether the queue would use more than its own quota with this."""
        branch = self.branches[name]
        return not branch.free_for_all and branch.used + milli > branch.subtree

    def set_usage(self, used: Iterable[tuple[str, int]]) -> None:
        for branch in self.branches.values():
            branch.used = branch.used_below = 0
        for name, milli in used:
            if milli and name in self.branches:
                self.add(name, milli)


def _available(branch: Branch) -> int:
    if branch.parent is None:
        return branch.subtree - branch.used
    own = max(0, branch.local - branch.used)
    above = _available(branch.parent)
    if branch.borrow_max is not None:
        stored = branch.subtree - branch.local
        taken = max(0, branch.used - branch.local)
        above = min(above, stored - taken + branch.borrow_max)
    return own + above


def _potential(branch: Branch) -> int:
    if branch.parent is None:
        return branch.subtree
    most = branch.local + _potential(branch.parent)
    if branch.borrow_max is not None:
        most = min(most, branch.subtree + branch.borrow_max)
    return most


def _quota(queue: Queue | None, flavor: str) -> tuple[float | None, float | None, float | None]:
    if queue is None:
        return 0, None, None
    if flavor.startswith(RESOURCE):
        name = flavor.removeprefix(RESOURCE)
        known = next((quota for quota in queue.resources if quota.name == name), None)
        return (
            (None, None, None)
            if known is None
            else (known.nominal, known.borrow_max, known.lend_max)
        )
    if flavor == ANY:
        return queue.nominal, queue.borrow_max, queue.lend_max
    for quota in queue.flavors:
        if quota.name == flavor:
            return quota.nominal, quota.borrow_max, quota.lend_max
    return (None if not queue.flavors else 0), None, None


def split(one: Branch, other: Branch) -> tuple[Branch, Branch] | None:
    """The two branches right below the place where the ways to the root meet, if they meet."""
    ones, others = one.path(), other.path()
    if ones[0] is not others[0]:
        return None
    level = 0
    while level < min(len(ones), len(others)) and ones[level] is others[level]:
        level += 1
    if level >= len(ones) or level >= len(others):
        return None
    return ones[level], others[level]


def share(branch: Branch, more: int = 0) -> float:
    """What the branch has beyond its own, as a part of all that its parent has, by weight."""
    beyond = max(0, branch.used + more - branch.subtree)
    if not beyond:
        return 0.0
    pool = branch.parent.subtree if branch.parent is not None else branch.subtree
    if branch.weight <= 0:
        return float("inf")
    return beyond / max(1, pool) / branch.weight
