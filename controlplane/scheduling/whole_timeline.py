"""What will be free from each instant on, where nobody shares a device: quick to ask, quick to change.

The same as `timeline.Timeline` and in the same words, but with the devices of the whole cluster as one
integer for each instant (`lanes`). A start is looked for from one instant to the next. An instant at which
there is too little by itself rules out every start whose run would go on over it, so the search goes on
behind it, and goes through the instants about once however long the run is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from controlplane.devices import FreeDevices
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.lanes import Lanes
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.timeline import masks_of

# The devices that a job leaves when it ends, by node.
Leaves = Callable[[str], Sequence[tuple[int, int]]]


class WholeTimeline:
    def __init__(
        self, snapshot: Snapshot, ends: Sequence[tuple[float, str]], leaves: Leaves
    ) -> None:
        self._snapshot = snapshot
        self._ends = ends
        self._leaves = leaves
        world, now = snapshot.world, snapshot.now
        widest = max([node.devices.bit_length() for node in world.nodes.values()], default=1)
        # What was free when this was made; views are told by how they differ from it.
        self._free = snapshot.free.copy()
        self._lanes = Lanes(self._free, widest)
        self.times = sorted({now, *(max(at, now) for at, _ in ends)})
        self._held: list[tuple[float, float, int]] = []
        # As far as somebody has looked: what is free from each instant on, and how much that is.
        self._bits: list[int] = []
        self._totals: list[int] = []
        self._base = self._lanes.free
        self._left = 0

    def add(self, starts_at: float, ends_at: float, fit: Fit) -> None:
        """From here on this place is taken for this time."""
        self._instant(starts_at)
        self._instant(ends_at)
        lanes, bits, totals = self._lanes, self._bits, self._totals
        taken = lanes.of(masks_of(self._snapshot, fit))
        self._held.append((starts_at, ends_at, taken))
        first, last = bisect_left(self.times, starts_at), bisect_left(self.times, ends_at)
        for index in range(first, min(last, len(bits))):
            bits[index] &= ~taken
            totals[index] = lanes.open_total(bits[index])

    def _instant(self, at: float) -> None:
        """One more time at which something changes."""
        index = bisect_left(self.times, at)
        if index < len(self.times) and self.times[index] == at:
            return
        self.times.insert(index, at)
        if index < len(self._bits):
            self._bits.insert(index, self._bits[index - 1])
            self._totals.insert(index, self._totals[index - 1])

    def _look_further(self) -> None:
        at, ends, lanes = self.times[len(self._bits)], self._ends, self._lanes
        while self._left < len(ends) and ends[self._left][0] <= at:
            self._base |= lanes.of(self._leaves(ends[self._left][1]))
            self._left += 1
        bits = self._base
        for starts_at, ends_at, taken in self._held:
            if starts_at <= at < ends_at:
                bits &= ~taken
        self._bits.append(bits)
        self._totals.append(lanes.open_total(bits))

    def view(self, index: int) -> FreeDevices:
        """What is free from this instant on, until the next."""
        while index >= len(self._bits):
            self._look_further()
        return self._lanes.view(self._free, self._bits[index])

    def index(self, at: float) -> int:
        """The last instant that is not after this time."""
        return max(0, bisect_right(self.times, at) - 1)

    def earliest(
        self,
        gang: Gang,
        flavor: str,
        runs_s: float,
        first: int,
        allows: Callable[[float], bool] | None = None,
    ) -> tuple[float, Fit] | None:
        """The first instant from this one on at which the gang can start, and where.

        `allows` says of an instant whether quotas let it run from then on until the next.
        """
        index, times, totals, needed = first, self.times, self._totals, gang.gpus
        while index < len(times):
            if index < len(totals) and totals[index] < needed:
                # By far most instants of a busy cluster.
                index += 1
                continue
            found = self._until(gang, index, times[index] + runs_s, allows)
            if isinstance(found, FreeDevices):
                place = fit(self._snapshot.world, found, gang, flavor)
                if place is not None:
                    return times[index], place
                index += 1
            else:
                index = found
        return None

    def _until(
        self, gang: Gang, index: int, until: float, allows: Callable[[float], bool] | None
    ) -> FreeDevices | int:
        """What is free from an instant on until a time; or, if it is too little, where to look next."""
        needed, times, lanes = gang.gpus, self.times, self._lanes
        bits_at, totals = self._bits, self._totals
        free, at = -1, index
        for at in range(index, max(index + 1, bisect_left(times, until))):
            if at >= len(bits_at):
                self._look_further()
            if totals[at] < needed or (allows is not None and not allows(times[at])):
                return at + 1
            left = free & bits_at[at]
            if left != free:
                free = left
                if not lanes.has_room(free, gang):
                    return self._go_on_from(gang, index, at)
        return lanes.view(self._free, free)

    def _go_on_from(self, gang: Gang, index: int, at: int) -> int:
        """The first instant after `index` from which there is room until after `at`, if only by count."""
        lanes, bits_at = self._lanes, self._bits
        free, start = bits_at[at], at
        if not lanes.has_room(free, gang):
            return at + 1
        while start - 1 > index:
            left = free & bits_at[start - 1]
            if left != free and not lanes.has_room(left, gang):
                break
            free = left
            start -= 1
        return start
