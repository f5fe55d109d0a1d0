"""States of the past, kept in memory so that any other state is a few events away.

A checkpoint shares its jobs and nodes with the states before and after it, since these values never
change; it costs two lists. When there are too many, every second one is dropped, and the distance
between two doubles.
"""

from bisect import bisect_right

from controlplane.state.image import StateImage
from controlplane.state.state import State
from controlplane.state.world import World

EVENTS_BETWEEN = 500
CHECKPOINTS_MAX = 256
# The sum of the jobs in all checkpoints.
JOBS_MAX = 4_000_000


class StateCheckpoints:
    """Images of states, about `every` events apart."""

    def __init__(
        self,
        every: int = EVENTS_BETWEEN,
        checkpoints_max: int = CHECKPOINTS_MAX,
        jobs_max: int = JOBS_MAX,
    ) -> None:
        self._every = every
        self._checkpoints_max = checkpoints_max
        self._jobs_max = jobs_max
        self._jobs = 0
        self._images: list[StateImage] = []

    def __len__(self) -> int:
        return len(self._images)

    def offer(self, state: State | World) -> None:
        """Keep the state if the last one kept is far enough behind."""
        last = self._images[-1].position if self._images else 0
        if state.position < last + self._every:
            return
        image = state.image(with_receipts=False)
        self._images.append(image)
        self._jobs += len(image.jobs)
        while len(self._images) > self._checkpoints_max or (
            self._jobs > self._jobs_max and len(self._images) > 1
        ):
            self._images = self._images[1::2]
            self._jobs = sum(len(image.jobs) for image in self._images)
            self._every *= 2

    def before(self, position: int) -> StateImage | None:
        """Return the last state kept at `position` or before it; None if there is none."""
        index = bisect_right(self._images, position, key=lambda image: image.position)
        return self._images[index - 1] if index else None
