"""Which devices are free, kept so that a node with enough of them is found without a search.

Nodes are known by ordinal, the order in which they were first seen, so that a choice among equals
depends on the state alone and not on the way that led to it. Free devices of a node are the bits
of an integer.
"""

from bisect import bisect_left, insort


class FreeDevices:
    """Free devices of every node, and the open nodes by how many they have free."""

    __slots__ = ("by_count", "masks", "open")

    def __init__(self) -> None:
        self.masks: list[int] = []
        # Whether work may be placed there: ready and not cordoned.
        self.open: list[bool] = []
        self.by_count: list[list[int]] = [[]]

    def copy(self) -> "FreeDevices":
        """A copy that may be scribbled on."""
        twin = FreeDevices.__new__(FreeDevices)
        twin.masks = self.masks.copy()
        twin.open = self.open.copy()
        twin.by_count = [ordinals.copy() for ordinals in self.by_count]
        return twin

    @property
    def total(self) -> int:
        """How many devices are free on nodes that take work."""
        return sum(count * len(ordinals) for count, ordinals in enumerate(self.by_count))

    def set_node(self, ordinal: int, mask: int, *, is_open: bool) -> None:
        """States anew what a node has free and whether it takes work."""
        while ordinal >= len(self.masks):
            self.masks.append(0)
            self.open.append(False)
        self._unlist(ordinal)
        self.masks[ordinal] = mask
        self.open[ordinal] = is_open
        self._list(ordinal)

    def hold(self, ordinal: int, devices: int) -> None:
        """Takes devices; each must have been free."""
        mask = self.masks[ordinal]
        assert mask & devices == devices, f"node {ordinal} has {mask:b} free, not {devices:b}"
        self._unlist(ordinal)
        self.masks[ordinal] = mask & ~devices
        self._list(ordinal)

    def release(self, ordinal: int, devices: int) -> None:
        """Gives devices back; none may have been free."""
        mask = self.masks[ordinal]
        assert mask & devices == 0, f"node {ordinal} has {mask:b} free already, of {devices:b}"
        self._unlist(ordinal)
        self.masks[ordinal] = mask | devices
        self._list(ordinal)

    def _list(self, ordinal: int) -> None:
        if self.open[ordinal]:
            count = self.masks[ordinal].bit_count()
            while count >= len(self.by_count):
                self.by_count.append([])
            insort(self.by_count[count], ordinal)

    def _unlist(self, ordinal: int) -> None:
        if self.open[ordinal]:
            listed = self.by_count[self.masks[ordinal].bit_count()]
            del listed[bisect_left(listed, ordinal)]


def mask_of(devices: tuple[int, ...]) -> int:
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The lowest `count` device indices of a mask."""
    devices = []
    for _ in range(count):
        bit = mask & -mask
        devices.append(bit.bit_length() - 1)
        mask ^= bit
    return tuple(devices)
