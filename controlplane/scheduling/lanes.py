"""The free devices of the whole cluster as one integer, and counting in all of its nodes at once.

Each node has a lane of equally many bits, a bit for each device. What is free over a span of time is the
`&` of what is free at its instants, and how many nodes have so many devices free is told by adding up
the bits of all lanes side by side: a few operations on long integers, whatever the number of nodes.
"""

from collections.abc import Iterable

from controlplane.devices import FreeDevices
from controlplane.scheduling.gangs import Gang


class Lanes:
    """How the devices of nodes lie in one integer; `free` is what is free now."""

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
            lower = sum([((1 << half) - 1) << at for at in range(0, width, 2 * half)])
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
        """Whether counting leaves a chance; as `fitting.has_room` does."""
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
            found = self._at_least(counts, needed)
            room += found
            if room >= ranks or not found:
                break
        return room >= ranks

    def _at_least(self, counts: int, needed: int) -> int:
        """How many lanes have a count of so many or more."""
        lift = (1 << (self.width - 1)) - needed
        return (counts + self._units * lift & self._tops).bit_count()

    def view(self, base: FreeDevices, bits: int) -> FreeDevices:
        """The same as devices of nodes; `base` tells which nodes there are and take work."""
        found, size = base.copy(), self.width // 8
        changed = (self.free ^ bits).to_bytes(len(found.masks) * size, "little")
        wanted = bits.to_bytes(len(changed), "little")
        for ordinal in sorted({at // size for at, byte in enumerate(changed) if byte}):
            mask = int.from_bytes(wanted[ordinal * size : ordinal * size + size], "little")
            before = found.masks[ordinal]
            if before & ~mask:
                found.hold(ordinal, before & ~mask)
            if mask & ~before:
                found.release(ordinal, mask & ~before)
        return found


def _joined(masks: list[int], width: int) -> int:
    """Lanes side by side."""
    size = width // 8
    return int.from_bytes(b"".join([mask.to_bytes(size, "little") for mask in masks]), "little")
