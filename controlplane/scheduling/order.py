"""Who is next: higher priority first, then first in, first out.

Each queue is a line of its own, and the head of a line that cannot start holds up those behind it
(so that a large gang is not starved by small ones), but not the other queues.
"""

import heapq
from collections.abc import Iterator

from controlplane.job import Job
from controlplane.scheduling.snapshot import Snapshot


class Heads:
    """The heads of all lines, best first; a head that starts lets the next in its line forward."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._heap = [
            (line[0], 0, queue) for queue in snapshot.queues if (line := snapshot.line(queue))
        ]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[Job]:
        """Yields the next head; call `advance` before asking for another if it started."""
        while self._heap:
            self._current = heapq.heappop(self._heap)
            yield self._snapshot.job(self._current[0][2])

    def advance(self) -> None:
        """The head just yielded has started: its line moves up."""
        _, index, queue = self._current
        line = self._snapshot.line(queue)
        if index + 1 < len(line):
            heapq.heappush(self._heap, (line[index + 1], index + 1, queue))
