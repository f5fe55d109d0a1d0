"""The quota available at each future instant, by estimated run times.

A running gang returns its quota at its estimated end; a gang with a planned start uses quota from
then until its planned end. The instants at which either happens split the future into intervals,
and for each interval `QuotaAhead` records whether the gang has its quota. So a head that waits for
quota gets a planned start, as one that waits for devices does, and no gang is backfilled that would
use quota which the head is going to need.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.quota.demand import Demand
from controlplane.scheduling.quota.tree import ANY, RESOURCE, QuotaTree
from controlplane.scheduling.snapshot import Snapshot, held_milli, holding_ranks


class Use(NamedTuple):
    """The use of quota by one gang during an interval."""

    gang: Gang
    starts_at: float
    ends_at: float
    flavor: str
    # The gang runs already, and uses what its attempt has.
    runs: bool = False


def is_limited(snapshot: Snapshot, queue: str) -> bool:
    """Whether the queue, or one above it, may have a quota or a ceiling of any resource."""
    settings = snapshot.queues[queue]
    has_own = settings.gpus_max is not None or settings.nominal is not None
    return has_own or bool(settings.resources or settings.flavors or settings.parent)


class QuotaAhead:
    """Quota over time for one gang, in addition to the running and the planned gangs in `uses`."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str, uses: Iterable[Use]) -> None:
        self._snapshot = snapshot
        self._gang = gang
        asked = [RESOURCE + quota.name for quota in snapshot.queues[gang.queue].resources]
        flavor = snapshot.quota_key(gang.queue, flavor)
        self._trees = [QuotaTree(snapshot.queues, key) for key in (flavor, *asked)]
        # A ceiling counts GPUs of all flavours together.
        self._of_all = QuotaTree(snapshot.queues) if flavor != ANY else self._trees[0]
        # What the non-preemptible gangs of the queue use, for models that limit it.
        self._non_preemptible_milli = 0
        self.times: list[float] = []
        self._allows: list[bool] = []
        self._sweep(list(uses))

    def allows(self, at: float) -> bool:
        """Whether the gang has its quota from this instant until the next change."""
        return self._allows[bisect_right(self.times, at) - 1]

    def allows_until(self, until: float) -> bool:
        """Whether the gang has its quota from now until `until` without interruption."""
        last = bisect_right(self.times, until)
        return all(
            allowed
            for at, allowed in zip(self.times[:last], self._allows[:last], strict=True)
            if at < until
        )

    def _sweep(self, uses: Sequence[Use]) -> None:
        now, changes = self._snapshot.now, []
        root = self._trees[0].branches[self._gang.queue].root()
        for index, use in enumerate(uses):
            # Quota of other trees of queues is independent, and an overdue gang is expected to end
            # at any moment.
            if use.ends_at > now and self._trees[0].branches[use.gang.queue].root() is root:
                changes.append((max(use.starts_at, now), 1, index))
                changes.append((use.ends_at, -1, index))
        # Ends sort before starts at the same instant.
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
            self._non_preemptible_milli += sign * gang.milli

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
        gang, snapshot = self._gang, self._snapshot
        demand = Demand(
            snapshot,
            gang,
            tree=self._trees[0],
            total=self._of_all,
            non_preemptible_milli=lambda: self._non_preemptible_milli + gang.milli,
        )
        model = snapshot.cluster.quota_model
        if model.admits(demand) if snapshot.has_quotas else demand.above_ceiling():
            return False
        return all(
            gang.amount(tree.flavor.removeprefix(RESOURCE)) <= tree.available(gang.queue)
            for tree in self._trees[1:]
        )
