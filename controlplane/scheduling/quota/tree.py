"""The tree of queues: nominal quota, borrowing, lending, and what is available to each queue.

This is Kueue's arithmetic (`resource_node.go`) for cohorts of any depth. Amounts are thousandths of
a GPU, or of the unit of another resource. For each branch of the tree:

    nominal   the quota that the queue owns
    subtree   nominal + what the children lend: sum of (child.subtree - child.local)
    local     the part of subtree that the branch does not lend: subtree - lend_max, at least 0;
              0 without a lending limit
    used      usage counted at this branch; usage beyond `local` also counts at the parent
    used_below  all usage of the whole subtree, for ceilings

What a branch lends is stored at its parent, where siblings may borrow it, and so on upwards. So a
branch may still use

    available = max(0, local - used) + available(parent)

where the second term is cut off by the borrowing limit, at `subtree - local - (used - local) +
borrow_max`; for a root it is `subtree - used`. A branch borrows when `used > subtree`. A hard
ceiling (`gpus_max`) limits `used_below` of the whole subtree and counts GPUs of all flavours.

A root without children and without a stated quota is not limited by quota at all.
"""

from collections.abc import Iterable, Mapping

from controlplane.model.policy import Queue
from controlplane.state.devices import WHOLE

UNLIMITED = 1 << 60
# The key of quota that does not distinguish flavours.
ANY = ""
# The key of quota of another resource is this prefix and the resource's name; it takes the place of
# a flavour.
RESOURCE = "resource/"


class Branch:
    """One queue in the tree, for one flavour or resource."""

    __slots__ = (
        "below", "borrow_max", "ceiling", "children", "depth", "free_for_all", "local", "name", "nominal",
        "parent", "rank", "subtree", "used", "used_below", "weight",
    )  # fmt: skip

    def __init__(self, name: str, queue: Queue | None, flavor: str = ANY) -> None:
        self.name = name
        self.parent: Branch | None = None
        self.children: list[Branch] = []
        # For a root, the names of all branches of its tree, filled at the first use.
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
        # The queue has no stated quota, parent or children: it may use all that is free.
        self.free_for_all = False
        # Usage as the tree counts it (usage beyond the local quota also counts at the parent), and
        # all usage of the subtree.
        self.used = 0
        self.used_below = 0

    @property
    def borrows(self) -> bool:
        """Whether the branch uses more than its own quota."""
        return self.used > self.subtree

    def root(self) -> "Branch":
        branch = self
        while branch.parent is not None:
            branch = branch.parent
        return branch

    def path(self) -> "list[Branch]":
        """The branches from the root to this one."""
        branches = [self]
        while branches[-1].parent is not None:
            branches.append(branches[-1].parent)
        return branches[::-1]


class QuotaTree:
    """One tree of quotas with its usage.

    `add` and `remove` change the usage; work on a `twin` where the change is only a trial.
    """

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
        """Compute the quotas of a branch. Call it for children before their parents."""
        nominal, borrow, lend = _quota(queue, self.flavor)
        branch.nominal = 0 if nominal is None else round(nominal * WHOLE)
        branch.borrow_max = None if borrow is None else round(borrow * WHOLE)
        branch.subtree = branch.nominal + sum(c.subtree - c.local for c in branch.children)
        if lend is not None and branch.parent is not None:
            branch.local = max(0, branch.subtree - round(lend * WHOLE))
        branch.free_for_all = nominal is None and branch.parent is None and not branch.children

    def twin(self, queues: Mapping[str, Queue]) -> "QuotaTree":
        """Return a copy with the same usage, to be changed freely."""
        twin = QuotaTree(queues, self.flavor)
        for name, branch in self.branches.items():
            twin.branches[name].used = branch.used
            twin.branches[name].used_below = branch.used_below
        return twin

    # -- usage -------------------------------------------------------------------------------

    def add(self, name: str, milli: int) -> None:
        """Count `milli` more as used by the queue."""
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
        """Count `milli` less as used by the queue."""
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
        """How much more the queue may use now, by quota; UNLIMITED without one. It may be negative."""
        branch = self.branches[name]
        if branch.free_for_all:
            return UNLIMITED
        return _available(branch)

    def potential(self, name: str) -> int:
        """How much the queue could use if no other queue used anything."""
        branch = self.branches[name]
        if branch.free_for_all:
            return UNLIMITED
        return _potential(branch)

    def below_ceiling(self, name: str) -> int:
        """How much more the hard ceilings of the queue and its ancestors allow."""
        branch: Branch | None = self.branches[name]
        left = UNLIMITED
        while branch is not None:
            left = min(left, branch.ceiling - branch.used_below)
            branch = branch.parent
        return left

    def borrowing_with(self, name: str, milli: int) -> bool:
        """Whether the queue would use more than its own quota with `milli` more."""
        branch = self.branches[name]
        return not branch.free_for_all and branch.used + milli > branch.subtree

    def set_usage(self, used: Iterable[tuple[str, int]]) -> None:
        """Replace all usage with pairs of a queue and its amount; unknown queues are ignored."""
        for branch in self.branches.values():
            branch.used = branch.used_below = 0
        for name, milli in used:
            if milli and name in self.branches:
                self.add(name, milli)


def borrowed(branch: Branch) -> int:
    """What the branch uses beyond its own quota; 0 for a branch without quota."""
    return 0 if branch.free_for_all else max(0, branch.used - branch.subtree)


def lent(branch: Branch) -> int:
    """How much of the branch's idle quota other branches use.

    Branches that borrow use first what their parent owns or borrows itself, and then the idle quota
    that siblings lend, from each in proportion to what it has idle.
    """
    parent = branch.parent
    if parent is None:
        return 0
    idle = {b.name: max(0, b.subtree - max(b.local, b.used)) for b in parent.children}
    total = sum(idle.values())
    wanted = sum(map(borrowed, parent.children)) + lent(parent)
    taken = min(total, max(0, wanted - parent.nominal - borrowed(parent)))
    return taken * idle[branch.name] // total if total else 0


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
    """The nominal quota, borrowing limit and lending limit of a queue; None means not stated."""
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
    """The two branches right below the lowest common ancestor of `one` and `other`.

    Return None if they have no common root, or if one is an ancestor of the other.
    """
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
    """Usage beyond the branch's own quota, as a part of its parent's quota, divided by its weight.

    It is 0 without borrowing, and infinite for a branch that borrows with weight 0. This is Kueue's
    dominant resource share for one resource.
    """
    beyond = max(0, branch.used + more - branch.subtree)
    if not beyond:
        return 0.0
    pool = branch.parent.subtree if branch.parent is not None else branch.subtree
    if branch.weight <= 0:
        return float("inf")
    return beyond / max(1, pool) / branch.weight
