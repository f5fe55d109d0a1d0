"""Which gang is tried next: a merge of all queues by the key of their heads.

Each queue is sorted by its own discipline. A heap holds the best gang of each queue; `next` takes
the smallest key, and the pass then calls `move_up`, `skip` or `close` for it.

Without quotas the key is the gang's place: priority, then the discipline's criterion, then arrival.
With quotas the quota model decides (`QuotaModel.order`). Starts change its keys, so `next` computes the key of the
best entry again, and reinserts it if it is no longer the smallest.

A strict queue offers only its head until the head starts. Any other queue offers the first gang of
each shape: if one gang does not fit, no gang of its shape does, so one test per shape suffices.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey

# The first gang of a shape that was not tried yet: its place, its index, and all places of the
# shape.
Offer = tuple[QueueKey, int, Sequence[QueueKey]]


class Heads:
    """The heads of all queues, best first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._model = snapshot.cluster.quota_model if snapshot.has_quotas else None
        # Queue -> the first of each shape, best first; and a heap with the best of each queue.
        self._offers: dict[str, list[Offer]] = {}
        self._heap: list[tuple[Any, str, str]] = []
        # Queues from which no other gang is tried -> the head that blocks them.
        self.closed: dict[str, str] = {}
        for queue in snapshot.queues:
            waiting = snapshot.queue_index(queue)
            if not waiting.order:
                continue
            if not waiting.skips:
                offers: list[Offer] = [(waiting.order[0], 0, waiting.order)]
            else:
                offers = [(a.order[0], 0, a.order) for a in waiting.by_shape.values()]
                heapq.heapify(offers)
            self._offers[queue] = offers
            self._heap.append(self._entry(queue))
        heapq.heapify(self._heap)

    def _entry(self, queue: str) -> tuple[Any, str, str]:
        place = self._offers[queue][0][0]
        key: Any = place
        if self._model is not None:
            key = self._model.order(self._snapshot, self._snapshot.gang(place.job), place)
        return key, queue, place.job

    def next(self) -> Gang | None:
        """The next gang to try, or None. Then call `move_up`, `skip` or `close` for it."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            queue = entry[1]
            if queue in self.closed:
                continue
            if self._model is not None:
                again = self._entry(queue)
                if again[0] != entry[0] and self._heap and again > self._heap[0]:
                    heapq.heappush(self._heap, again)
                    continue
            self._queue = queue
            return self._snapshot.gang(entry[2])
        return None

    def move_up(self) -> None:
        """The gang from `next` starts: offer the next of its queue or of its shape."""
        offers = self._offers[self._queue]
        _, index, places = offers[0]
        if index + 1 < len(places):
            heapq.heapreplace(offers, (places[index + 1], index + 1, places))
        else:
            heapq.heappop(offers)
        if offers:
            heapq.heappush(self._heap, self._entry(self._queue))

    def skip(self) -> None:
        """The gang from `next` waits, and with it all of its shape; other shapes may be tried."""
        offers = self._offers[self._queue]
        heapq.heappop(offers)
        if offers:
            heapq.heappush(self._heap, self._entry(self._queue))

    def close(self, head: str) -> None:
        """Stop trying gangs of this queue: they wait behind `head`."""
        self.closed[self._queue] = head
