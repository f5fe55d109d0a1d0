"""Which devices are free, kept so that a node with enough of them is found without a search.

Nodes are known by ordinal, the order in which they were first seen, so that a choice among equals
depends on the state alone and not on the way that led to it. Free devices of a node are the bits
of an integer. A device that several ranks share is free to nobody as a whole; who asks for a part
of a device finds how much of it is taken in `shared`.
"""

from bisect import bisect_left, insort
from functools import lru_cache

# A device in thousandths.
WHOLE = 1_000


class FreeDevices:
    """Free devices of every node, and the open nodes by how many they have free."""

    __slots__ = ("by_count", "counts", "leaf_of", "leaves", "masks", "open", "shared")

    def __init__(self) -> None:
        self.masks: list[int] = []
        # Ordinal -> device -> thousandths of it that are taken.
        self.shared: dict[int, dict[int, int]] = {}
        # For each leaf of the topology, how many open nodes have so many devices free. Kept only
        # once somebody has asked for it (`watch`).
        self.leaf_of: list[int] | None = None
        self.leaves: list[dict[int, int]] = []
        # Whether work may be placed there: ready and not cordoned.
        self.open: list[bool] = []
        # How many devices are free -> the open nodes that have so many; and those numbers in order.
        self.by_count: dict[int, list[int]] = {}
        self.counts: list[int] = []

    def copy(self) -> "FreeDevices":
        """A copy that may be scribbled on."""
        twin = FreeDevices.__new__(FreeDevices)
        twin.masks = self.masks.copy()
        twin.open = self.open.copy()
        twin.by_count = {count: ordinals.copy() for count, ordinals in self.by_count.items()}
        twin.counts = self.counts.copy()
        twin.shared = {o: taken.copy() for o, taken in self.shared.items()} if self.shared else {}
        twin.leaf_of = self.leaf_of
        twin.leaves = [counts.copy() for counts in self.leaves]
        return twin

    def watch(self, leaf_of: list[int] | None, leaves: int = 0) -> None:
        """From here on, `leaves` is kept; `leaf_of` has a leaf for each ordinal, or -1."""
        self.leaf_of = leaf_of
        self.leaves = [{} for _ in range(leaves)]
        if leaf_of is not None:
            for ordinal, is_open in enumerate(self.open):
                if is_open:
                    self._count(ordinal, self.masks[ordinal].bit_count(), 1)

    def _count(self, ordinal: int, free: int, change: int) -> None:
        assert self.leaf_of is not None
        leaf = self.leaf_of[ordinal]
        if leaf >= 0:
            counts = self.leaves[leaf]
            if left := counts.get(free, 0) + change:
                counts[free] = left
            else:
                del counts[free]

    @property
    def total(self) -> int:
        """How many devices are free on nodes that take work."""
        return sum([count * len(ordinals) for count, ordinals in self.by_count.items()])

    def set_node(self, ordinal: int, mask: int, *, is_open: bool) -> None:
        """States anew what a node has free and whether it takes work."""
        while ordinal >= len(self.masks):
            self.masks.append(0)
            self.open.append(False)
        if self.open[ordinal]:
            self._unlist(ordinal, self.masks[ordinal].bit_count())
        for device in self.shared.get(ordinal, ()):
            mask &= ~(1 << device)
        self.masks[ordinal] = mask
        self.open[ordinal] = is_open
        if is_open:
            self._list(ordinal, mask.bit_count())

    def hold(self, ordinal: int, devices: int) -> None:
        """Takes devices; each must have been free."""
        mask = self.masks[ordinal]
        assert mask & devices == devices, f"node {ordinal} has {mask:b} free, not {devices:b}"
        self._set_free(ordinal, mask, mask & ~devices)

    def release(self, ordinal: int, devices: int) -> None:
        """Gives devices back; none may have been free."""
        mask = self.masks[ordinal]
        assert mask & devices == 0, f"node {ordinal} has {mask:b} free already, of {devices:b}"
        self._set_free(ordinal, mask, mask | devices)

    def _set_free(self, ordinal: int, before: int, after: int) -> None:
        self.masks[ordinal] = after
        if self.open[ordinal]:
            self._unlist(ordinal, before.bit_count())
            self._list(ordinal, after.bit_count())

    def close(self, ordinal: int) -> None:
        """Nothing more is placed there."""
        if self.open[ordinal]:
            self._unlist(ordinal, self.masks[ordinal].bit_count())
        self.open[ordinal] = False

    def reopen(self, ordinal: int) -> None:
        """The opposite of `close`."""
        self.open[ordinal] = True
        self._list(ordinal, self.masks[ordinal].bit_count())

    def hold_share(self, ordinal: int, device: int, share: int) -> None:
        """Takes a part of a device, in thousandths; there must be as much left of it."""
        taken = self.shared.setdefault(ordinal, {})
        if device not in taken:
            # A device that vanished under its ranks is not there to be taken.
            self.hold(ordinal, (1 << device) & self.masks[ordinal])
        taken[device] = taken.get(device, 0) + share
        assert taken[device] <= WHOLE, f"device {device} of node {ordinal} is given away twice"

    def release_share(self, ordinal: int, device: int, share: int, *, whole: int) -> None:
        """Gives a part back; a device of which nothing is taken is whole again, if it is in `whole`."""
        taken = self.shared[ordinal]
        taken[device] -= share
        assert taken[device] >= 0, f"device {device} of node {ordinal} was given back twice"
        if not taken[device]:
            del taken[device]
            if not taken:
                del self.shared[ordinal]
            self.release(ordinal, (1 << device) & whole)

    def _list(self, ordinal: int, count: int) -> None:
        """An open node has so many devices free from here on."""
        listed = self.by_count.get(count)
        if listed is None:
            self.by_count[count] = [ordinal]
            insort(self.counts, count)
        else:
            insort(listed, ordinal)
        if self.leaf_of is not None:
            self._count(ordinal, count, 1)

    def _unlist(self, ordinal: int, count: int) -> None:
        """The opposite of `_list`."""
        listed = self.by_count[count]
        if len(listed) == 1:
            del self.by_count[count]
            del self.counts[bisect_left(self.counts, count)]
        else:
            del listed[bisect_left(listed, ordinal)]
        if self.leaf_of is not None:
            self._count(ordinal, count, -1)


# Nodes are alike, so the same few devices are asked about again and again.
@lru_cache(maxsize=16_384)
def mask_of(devices: tuple[int, ...]) -> int:
    """Devices as bits."""
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The lowest `count` device indices of a mask."""
    return _lowest_of_few(mask, count) if mask < _FEW else _lowest(mask, count)


# A node of up to sixteen devices. A pool has thousands, and hardly ever the same ones free again.
_FEW = 1 << 16


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    devices = []
    for _ in range(count):
        bit = mask & -mask
        devices.append(bit.bit_length() - 1)
        mask ^= bit
    return tuple(devices)


_lowest_of_few = lru_cache(maxsize=16_384)(_lowest)
