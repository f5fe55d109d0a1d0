"""What quotas will allow from each instant on, by estimates.

Whoever runs gives its quota back when it is expected to end, and whoever has a planned start has quota
from then on until its planned end. So a head that waits for quota gets a planned start as one that waits
for devices does, and nobody goes past it who would use what it is going to need.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import ANY, RESOURCE, QuotaTree
from controlplane.scheduling.snapshot import Snapshot, held_milli, holding_ranks
from controlplane.sharing import QuotaModel

_BY_NOMINAL = (QuotaModel.CLASSIC, QuotaModel.FAIR)


class Use(NamedTuple):
    """A gang that has quota from one time to another."""

    gang: Gang
    starts_at: float
    ends_at: float
    flavor: str
    # It runs already, and holds what its attempt holds.
    runs: bool = False


def is_limited(snapshot: Snapshot, queue: str) -> bool:
    """Whether the queue, or one above it, may have a quota or a ceiling of anything."""
    found = snapshot.queues[queue]
    has_own = found.gpus_max is not None or found.nominal is not None
    return has_own or bool(found.resources or found.flavors or found.parent)


class QuotaAhead:
    """Quotas over time for one gang that wants to start, beside those who run and are planned."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str, uses: Iterable[Use]) -> None:
        self._snapshot = snapshot
        self._gang = gang
        asked = [RESOURCE + quota.name for quota in snapshot.queues[gang.queue].resources]
        flavor = snapshot.quota_key(gang.queue, flavor)
        self._trees = [QuotaTree(snapshot.queues, key) for key in (flavor, *asked)]
        # A ceiling counts GPUs of all flavours together.
        self._of_all = QuotaTree(snapshot.queues) if flavor != ANY else self._trees[0]
        # What cannot be taken from the queue, where that has a limit of its own.
        self._fixed = 0
        self.times: list[float] = []
        self._allows: list[bool] = []
        self._go_through(list(uses))

    def allows(self, at: float) -> bool:
        """Whether the gang has its quota from this instant on until the next change."""
        return self._allows[bisect_right(self.times, at) - 1]

    def allows_until(self, until: float) -> bool:
        """Whether it has its quota from now on and all the time until then."""
        last = bisect_right(self.times, until)
        return all(
            allowed
            for at, allowed in zip(self.times[:last], self._allows[:last], strict=True)
            if at < until
        )

    def _go_through(self, uses: Sequence[Use]) -> None:
        now, changes = self._snapshot.now, []
        root = self._trees[0].branches[self._gang.queue].root()
        for index, use in enumerate(uses):
            # Quota of other trees of queues has nothing to do with it, and whoever is overdue is
            # expected to end at any moment.
            if use.ends_at > now and self._trees[0].branches[use.gang.queue].root() is root:
                changes.append((max(use.starts_at, now), 1, index))
                changes.append((use.ends_at, -1, index))
        # Whoever ends at an instant leaves before whoever starts then.
        changes.sort()
        index, at = 0, now
        while True:
            while index < len(changes) and changes[index][0] <= at:
                _, sign, which = changes[index]
                self._change(uses[which], sign)
                index += 1
            self.times.append(at)
            self._allows.append(self._allows_now())
            if index == len(changes):
                return
            at = changes[index][0]

    def _change(self, use: Use, sign: int) -> None:
        gang = use.gang
        of_gpus = [self._of_all] if self._of_all is not self._trees[0] else []
        for tree in (*of_gpus, *self._trees):
            if amount := self._amount(use, tree.flavor):
                (tree.add if sign > 0 else tree.remove)(gang.queue, amount)
        if gang.queue == self._gang.queue and not gang.preemptible:
            self._fixed += sign * gang.milli

    def _amount(self, use: Use, key: str) -> int:
        gang, snapshot = use.gang, self._snapshot
        if key.startswith(RESOURCE):
            if not use.runs:
                return gang.amount(key.removeprefix(RESOURCE))
            job = snapshot.job(gang.id)
            return snapshot.amount_held(job, key, holding_ranks(job))
        if key not in (ANY, use.flavor):
            return 0
        attempt = snapshot.job(gang.id).attempt
        return held_milli(attempt) if use.runs and attempt is not None else gang.milli

    def _allows_now(self) -> bool:
        gang, first = self._gang, self._trees[0]
        model = self._snapshot.world.policy.model
        if gang.milli > self._of_all.below_ceiling(gang.queue):
            return False
        if self._snapshot.has_quotas:
            if model in _BY_NOMINAL and gang.milli > first.available(gang.queue):
                return False
            fixed = model is QuotaModel.DESERVED and not gang.preemptible
            if fixed and self._fixed + gang.milli > first.branches[gang.queue].nominal:
                return False
        return all(
            gang.amount(tree.flavor.removeprefix(RESOURCE)) <= tree.available(gang.queue)
            for tree in self._trees[1:]
        )
