"""Free devices over time as bitsets: the timeline of backfill for clusters on which no device is shared.

It answers the same questions as `timeline.Timeline`. For each instant at which something changes, the free devices of
the whole cluster are one integer: each node has a lane of equally many bits, one bit for each device (SIMD within a
register, as in "SWAR" population counts). What is free over a span of time is the `&` over its instants, and how many
nodes have N devices free is counted in all lanes at once: a few operations on long integers, however many nodes.

`earliest` looks for a start from instant to instant. An instant that has too little by itself rules out every start
whose run would cover it, so the search continues behind it and visits each instant about once, however long the run.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

from controlplane.scheduling.backfill.timeline import masks_of
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices

# The devices that a job leaves when it ends, by node.
Leaves = Callable[[str], Sequence[tuple[int, int]]]


class BitsetTimeline:
    """Ends of running jobs and planned places; instants are worked out as far as a search needs them."""

    def __init__(
        self, snapshot: Snapshot, ends: Sequence[tuple[float, str]], leaves: Leaves
    ) -> None:
        self._snapshot = snapshot
        self._ends = ends
        self._leaves = leaves
        cluster, now = snapshot.cluster, snapshot.now
        widest = max((node.devices.bit_length() for node in cluster.nodes.values()), default=1)
        # What was free when this was made; views are copies of it with the differences applied.
        self._free = snapshot.free.copy()
        self._lanes = Lanes(self._free, widest)
        self.times = sorted({now, *(max(at, now) for at, _ in ends)})
        self._held: list[tuple[float, float, int]] = []
        # As far as a search has gone: what is free from each instant on, and how many devices that is.
        self._bits: list[int] = []
        self._totals: list[int] = []
        self._base = self._lanes.free
        self._left = 0

    def add(self, starts_at: float, ends_at: float, fit: Fit) -> None:
        """Reserve a place from `starts_at` to `ends_at`."""
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
        """Insert an instant, unless it is there."""
        index = bisect_left(self.times, at)
        if index < len(self.times) and self.times[index] == at:
            return
        self.times.insert(index, at)
        if index < len(self._bits):
            self._bits.insert(index, self._bits[index - 1])
            self._totals.insert(index, self._totals[index - 1])

    def _extend(self) -> None:
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
            self._extend()
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
        """The first instant from index `first` on at which the gang can start, and where; None if there is none.

        `allows` returns whether quotas admit the gang from an instant until the next.
        """
        index, times, totals, needed = first, self.times, self._totals, gang.gpus
        while index < len(times):
            if index < len(totals) and totals[index] < needed:
                # Most instants of a busy cluster.
                index += 1
                continue
            view_or_next = self._until(gang, index, times[index] + runs_s, allows)
            if isinstance(view_or_next, FreeDevices):
                place = fit(self._snapshot.cluster, view_or_next, gang, flavor)
                if place is not None:
                    return times[index], place
                index += 1
            else:
                index = view_or_next
        return None

    def _until(
        self, gang: Gang, index: int, until: float, allows: Callable[[float], bool] | None
    ) -> FreeDevices | int:
        """What stays free from an instant until a time; or, if that is too little, the index to try next."""
        needed, times, lanes = gang.gpus, self.times, self._lanes
        bits_at, totals = self._bits, self._totals
        free, at = -1, index
        for at in range(index, max(index + 1, bisect_left(times, until))):
            if at >= len(bits_at):
                self._extend()
            if totals[at] < needed or (allows is not None and not allows(times[at])):
                return at + 1
            left = free & bits_at[at]
            if left != free:
                free = left
                if not lanes.has_room(free, gang):
                    return self._next_start(gang, index, at)
        return lanes.view(self._free, free)

    def _next_start(self, gang: Gang, index: int, at: int) -> int:
        """The first instant after `index` from which counting leaves room until after `at`."""
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


class Lanes:
    """The devices of all nodes in one integer, a lane of `width` bits for each; `free` is what is free now."""

    __slots__ = ("_halvings", "_open", "_tops", "_units", "free", "width")

    def __init__(self, free: FreeDevices, devices_max: int) -> None:
        """`devices_max` is one more than the highest index that a device has."""
        width = 8
        while width < devices_max:
            width *= 2
        self.width = width
        count = len(free.masks)
        self.free = _joined(free.masks, width)
        # Every lane's lowest bit, and its highest.
        self._units = _joined([1] * count, width)
        self._tops = self._units << (width - 1)
        lane = (1 << width) - 1
        self._open = _joined([lane if is_open else 0 for is_open in free.open], width)
        # For adding up: which bits of a pair of neighbours belong to the lower one.
        self._halvings: list[tuple[int, int]] = []
        half = 1
        while half < width:
            lower = sum(((1 << half) - 1) << at for at in range(0, width, 2 * half))
            self._halvings.append((half, self._units * lower))
            half *= 2

    def of(self, masks: Iterable[tuple[int, int]]) -> int:
        """Devices by node as bits."""
        bits = 0
        for ordinal, mask in masks:
            bits |= mask << ordinal * self.width
        return bits

    def open_total(self, bits: int) -> int:
        """How many of these devices are on nodes that take work."""
        return (bits & self._open).bit_count()

    def has_room(self, bits: int, gang: Gang) -> bool:
        """Whether counting alone leaves a chance; the same answer as `fit.has_room`."""
        bits &= self._open
        if bits.bit_count() < gang.gpus:
            return False
        largest = gang.largest
        if largest <= 1:
            return True
        if largest > self.width:
            return False
        counts = bits
        for half, lower in self._halvings:
            counts = (counts & lower) + (counts >> half & lower)
        if not gang.uniform:
            return self._at_least(counts, largest) > 0
        ranks, room = len(gang.needs), 0
        for needed in range(largest, self.width + 1, largest):
            lanes = self._at_least(counts, needed)
            room += lanes
            if room >= ranks or not lanes:
                break
        return room >= ranks

    def _at_least(self, counts: int, needed: int) -> int:
        """How many lanes have a count of `needed` or more."""
        lift = (1 << (self.width - 1)) - needed
        return (counts + self._units * lift & self._tops).bit_count()

    def view(self, base: FreeDevices, bits: int) -> FreeDevices:
        """The bits as devices of nodes; nodes, and whether they take work, are those of `base`."""
        free, size = base.copy(), self.width // 8
        changed = (self.free ^ bits).to_bytes(len(free.masks) * size, "little")
        wanted = bits.to_bytes(len(changed), "little")
        for ordinal in sorted({at // size for at, byte in enumerate(changed) if byte}):
            mask = int.from_bytes(wanted[ordinal * size : ordinal * size + size], "little")
            before = free.masks[ordinal]
            if before & ~mask:
                free.allocate(ordinal, before & ~mask)
            if mask & ~before:
                free.release(ordinal, mask & ~before)
        return free


def _joined(masks: list[int], width: int) -> int:
    """Masks as lanes next to each other."""
    size = width // 8
    return int.from_bytes(b"".join([mask.to_bytes(size, "little") for mask in masks]), "little")
