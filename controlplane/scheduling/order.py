"""Who is next. Each queue is a line of its own; this merges the lines.

Where nobody has a quota, the smallest key of all heads goes first: priority, then what the discipline
looks at, then who came first. With quotas the model has its say before that: who stays within its own
before who borrows, who has the smaller share before who has more.

A line that is strict offers its head and nothing else until that starts. Any other line offers the
first of each shape: when one does not fit, none of its shape does, and it is enough to know that once.
"""

import heapq
from collections.abc import Callable
from typing import Any

from controlplane.lines import Waiting
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import RESOURCE, Branch, share
from controlplane.scheduling.shares import capacity_milli
from controlplane.scheduling.snapshot import Snapshot
from controlplane.sharing import QuotaModel

# The first of its shape that has not been looked at: its place, its index, and all of its shape.
Offer = tuple[Waiting, int, list[Waiting]]


class Heads:
    """The heads of all lines, best first; one that starts lets the next in its line forward."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_model = _KEYS[snapshot.world.policy.model] if snapshot.has_quotas else None
        # Queue -> the first of each shape, best first; and the best of all queues.
        self._offers: dict[str, list[Offer]] = {}
        self._heap: list[tuple[Any, str, str]] = []
        # Queues of which nobody else is looked at, and the head behind which they wait.
        self.closed: dict[str, str] = {}
        for queue in snapshot.queues:
            line = snapshot.line(queue)
            if not line.order:
                continue
            if not line.skips:
                offers: list[Offer] = [(line.order[0], 0, line.order)]
            else:
                offers = [(a.order[0], 0, a.order) for a in line.by_shape.values()]
                heapq.heapify(offers)
            self._offers[queue] = offers
            self._heap.append(self._entry(queue))
        heapq.heapify(self._heap)

    def _entry(self, queue: str) -> tuple[Any, str, str]:
        place = self._offers[queue][0][0]
        key = place if self._by_model is None else self._key(place)
        return key, queue, place.job

    def _key(self, place: Waiting) -> Any:
        assert self._by_model is not None
        return self._by_model(self._snapshot, self._snapshot.gang(place.job), place)

    def next(self) -> Gang | None:
        """The next one to look at; then say whether it `moves_up` the line or is `blocked`."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            queue = entry[1]
            if queue in self.closed:
                continue
            if self._by_model is not None:
                again = self._entry(queue)
                if again[0] != entry[0] and self._heap and again > self._heap[0]:
                    heapq.heappush(self._heap, again)
                    continue
            self._queue = queue
            return self._snapshot.gang(entry[2])
        return None

    def move_up(self) -> None:
        """The one just looked at starts: the next of its line, or of its shape, moves up."""
        offers = self._offers[self._queue]
        _, index, places = offers[0]
        if index + 1 < len(places):
            heapq.heapreplace(offers, (places[index + 1], index + 1, places))
        else:
            heapq.heappop(offers)
        if offers:
            heapq.heappush(self._heap, self._entry(self._queue))

    def skip(self) -> None:
        """The one just looked at waits, and with it all of its shape; others may go ahead."""
        offers = self._offers[self._queue]
        heapq.heappop(offers)
        if offers:
            heapq.heappush(self._heap, self._entry(self._queue))

    def close(self, head: str) -> None:
        """Nobody else of this queue is looked at: they wait behind `head`."""
        self.closed[self._queue] = head


def _classic(snapshot: Snapshot, gang: Gang, place: Waiting) -> Any:
    """Who stays within its own quota comes before who borrows.

    Where usage is remembered, of equal priorities the queue that had less lately comes first.
    """
    tree = snapshot.tree()
    borrows = tree.borrowing_with(gang.queue, gang.milli)
    if snapshot.world.policy.usage_halflife_s is None:
        return borrows, place
    return borrows, place.before_all, _by_weight(snapshot, tree.branches[gang.queue]), place


def _by_weight(snapshot: Snapshot, branch: Branch) -> float:
    return snapshot.usage_with_history(branch) / max(branch.weight, 1e-9)


def _fair(snapshot: Snapshot, gang: Gang, place: Waiting) -> Any:
    """The smaller share, with the gang counted in, comes first; level by level down the tree."""
    path = snapshot.tree().branches[gang.queue].path()
    shares = _shares(path, gang.milli)
    for key in snapshot.resources:
        path_of = snapshot.tree(key).branches[gang.queue].path()
        others = _shares(path_of, gang.amount(key.removeprefix(RESOURCE)))
        shares = tuple(map(max, shares, others))
    if snapshot.world.policy.usage_halflife_s is None:
        return shares, place
    return shares, place.before_all, _by_weight(snapshot, path[-1]), place


def _shares(path: list[Branch], more: int) -> tuple[float, ...]:
    return tuple(share(branch, more) for branch in path[1:] or path)


def _filling(snapshot: Snapshot, gang: Gang, place: Waiting) -> Any:
    """Progressive filling: the smallest usage with the gang counted in, by weight."""
    branch = snapshot.tree().branches[gang.queue]
    used = snapshot.usage_with_history(branch)
    next_up = max(used + gang.milli, *_dominant(snapshot, gang))
    return next_up / max(branch.weight, 1e-9), used, gang.queue, place


def _dominant(snapshot: Snapshot, gang: Gang) -> list[float]:
    """What the queue would have of each other resource, as if it were GPUs.

    A resource of which half is used counts as half of the cluster's GPUs: so the one of which a
    queue has the largest part decides (dominant resource fairness).
    """
    found = [0.0]
    for key in snapshot.resources:
        tree = snapshot.tree(key)
        total = sum(branch.nominal for branch in tree.branches.values())
        if total:
            amount = tree.branches[gang.queue].used_below + gang.amount(key.removeprefix(RESOURCE))
            found.append(amount / total * capacity_milli(snapshot))
    return found


def _deserved(snapshot: Snapshot, gang: Gang, place: Waiting) -> Any:
    """Within its quota first, then by rank, then by the part of its quota in use; level by level.

    The gang counts in that part, as in KAI's order; of equal ones that without it decides.
    """
    path = snapshot.tree().branches[gang.queue].path()
    return tuple([_deserved_step(snapshot, branch, gang.milli) for branch in path]), place


def _deserved_step(snapshot: Snapshot, branch: Branch, more: int) -> tuple[bool, int, float, float]:
    over = branch.used_below + more > branch.nominal
    own = max(1.0, branch.nominal) * max(branch.weight, 1e-9)
    used = snapshot.usage_with_history(branch)
    return over, -branch.rank, (used + more) / own, used / own


_KEYS: dict[QuotaModel, Callable[[Snapshot, Gang, Waiting], Any] | None] = {
    QuotaModel.CLASSIC: _classic,
    QuotaModel.FAIR: _fair,
    QuotaModel.DESERVED: _deserved,
    QuotaModel.PROGRESSIVE: _filling,
    QuotaModel.FAIR_PREEMPT: _filling,
    QuotaModel.HOME_AWAY: None,
}
