"""Which devices are free, kept so that a node with enough of them is found without a search.

Nodes are known by ordinal, the order in which they were first seen, so that a choice among equals
depends on the state alone and not on the way that led to it. Free devices of a node are the bits
of an integer. A device that several ranks share is free to nobody as a whole; who asks for a part
of a device finds how much of it is taken in `shared`.

What ranks request beside devices (cores, memory) is kept as what they hold of it, since most ranks
request nothing; what a node offers of it changes only when the node does.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from functools import lru_cache

# A device in thousandths.
WHOLE = 1_000


class FreeDevices:
    """Free devices of every node, and the open nodes by how many they have free."""

    __slots__ = (
        "by_count", "counts", "frees", "held", "leaf_of", "leaves", "masks", "offers", "open", "shared",
    )  # fmt: skip

    def __init__(self) -> None:
        self.masks: list[int] = []
        # How many bits each mask has: a pool's has thousands, and they are long to count.
        self.frees: list[int] = []
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
        # Ordinal -> resource -> what ranks hold of it there. The inner ones are never changed, so
        # that copies can share them.
        self.held: dict[int, dict[str, int]] = {}
        # Ordinal -> resource -> what the node has of it for ranks; one for all copies.
        self.offers: dict[int, dict[str, int]] = {}

    def copy(self) -> "FreeDevices":
        """A copy that may be scribbled on."""
        twin = FreeDevices.__new__(FreeDevices)
        twin.masks = self.masks.copy()
        twin.frees = self.frees.copy()
        twin.open = self.open.copy()
        twin.by_count = {count: ordinals.copy() for count, ordinals in self.by_count.items()}
        twin.counts = self.counts.copy()
        twin.shared = {o: taken.copy() for o, taken in self.shared.items()} if self.shared else {}
        twin.leaf_of = self.leaf_of
        twin.leaves = [counts.copy() for counts in self.leaves]
        twin.held = self.held.copy()
        twin.offers = self.offers
        return twin

    def watch(self, leaf_of: list[int] | None, leaves: int = 0) -> None:
        """From here on, `leaves` is kept; `leaf_of` has a leaf for each ordinal, or -1."""
        self.leaf_of = leaf_of
        self.leaves = [{} for _ in range(leaves)]
        if leaf_of is not None:
            for ordinal, is_open in enumerate(self.open):
                if is_open:
                    self._count(ordinal, self.frees[ordinal], 1)

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
            self.frees.append(0)
            self.open.append(False)
        if self.open[ordinal]:
            self._unlist(ordinal, self.frees[ordinal])
        for device in self.shared.get(ordinal, ()):
            mask &= ~(1 << device)
        self.masks[ordinal] = mask
        self.frees[ordinal] = mask.bit_count()
        self.open[ordinal] = is_open
        if is_open:
            self._list(ordinal, self.frees[ordinal])

    def hold(self, ordinal: int, devices: int) -> None:
        """Takes devices; each must have been free."""
        mask = self.masks[ordinal]
        assert mask & devices == devices, f"node {ordinal} has {mask:b} free, not {devices:b}"
        self._set_free(ordinal, mask ^ devices, self.frees[ordinal] - devices.bit_count())

    def release(self, ordinal: int, devices: int) -> None:
        """Gives devices back; none may have been free."""
        mask = self.masks[ordinal]
        assert mask & devices == 0, f"node {ordinal} has {mask:b} free already, of {devices:b}"
        self._set_free(ordinal, mask | devices, self.frees[ordinal] + devices.bit_count())

    def _set_free(self, ordinal: int, mask: int, count: int) -> None:
        if self.open[ordinal]:
            self._unlist(ordinal, self.frees[ordinal])
            self._list(ordinal, count)
        self.masks[ordinal], self.frees[ordinal] = mask, count

    def close(self, ordinal: int) -> None:
        """Nothing more is placed there."""
        if self.open[ordinal]:
            self._unlist(ordinal, self.frees[ordinal])
        self.open[ordinal] = False

    def reopen(self, ordinal: int) -> None:
        """The opposite of `close`."""
        self.open[ordinal] = True
        self._list(ordinal, self.frees[ordinal])

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

    def set_offers(self, ordinal: int, offers: dict[str, int]) -> None:
        """States anew what a node has for ranks beside devices."""
        if offers:
            self.offers[ordinal] = offers
        else:
            self.offers.pop(ordinal, None)

    def left(self, ordinal: int, resource: str) -> int | None:
        """How much of a resource nobody holds there; None if there is no end of it."""
        most = self.offers.get(ordinal, _NOTHING).get(resource)
        return None if most is None else most - self.held.get(ordinal, _NOTHING).get(resource, 0)

    def has_left(self, ordinal: int, amounts: Mapping[str, int]) -> bool:
        """Whether one that requests so much finds it there."""
        offers = self.offers.get(ordinal)
        if not amounts or offers is None:
            return True
        held = self.held.get(ordinal, _NOTHING)
        return all(
            amount <= offers[name] - held.get(name, 0)
            for name, amount in amounts.items()
            if name in offers
        )

    def hold_amounts(self, ordinal: int, amounts: Mapping[str, int]) -> None:
        """Takes what somebody requests beside devices."""
        if not amounts:
            return
        held = self.held.get(ordinal, _NOTHING).copy()
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) + amount
        self.held[ordinal] = held

    def hold_what_is_left(self, ordinal: int, amounts: Mapping[str, int]) -> None:
        """The same, as far as it is there."""
        found = {}
        for name, amount in amounts.items():
            left = self.left(ordinal, name)
            found[name] = amount if left is None else min(amount, max(0, left))
        self.hold_amounts(ordinal, found)

    def release_amounts(self, ordinal: int, amounts: Mapping[str, int]) -> None:
        """The opposite of `hold_amounts`."""
        if not amounts:
            return
        held = self.held[ordinal].copy()
        for name, amount in amounts.items():
            held[name] = left = held[name] - amount
            assert left >= 0, f"{name} of node {ordinal} was given back twice"
            if not left:
                del held[name]
        if held:
            self.held[ordinal] = held
        else:
            del self.held[ordinal]

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


_NOTHING: dict[str, int] = {}


# Nodes are alike, so the same few devices are asked about again and again.
@lru_cache(maxsize=16_384)
def mask_of(devices: tuple[int, ...]) -> int:
    """Devices as bits."""
    if not devices:
        return 0
    # They mostly lie close together, and those of a pool far from its first one.
    mask, first = 0, min(devices)
    for device in devices:
        mask |= 1 << (device - first)
    return mask << first


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The lowest `count` device indices of a mask."""
    return _lowest_of_few(mask, count) if mask < _FEW else _lowest(mask, count)


_WORD = (1 << 60) - 1
# A node of up to sixteen devices. A pool has thousands, and hardly ever the same ones free again.
_FEW = 1 << 16


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    devices: list[int] = []
    while mask and len(devices) < count:
        # What lies together is taken from a word at a time, for a pool's mask is long.
        first = (mask & -mask).bit_length() - 1
        word = (mask >> first) & _WORD
        mask ^= word << first
        while word and len(devices) < count:
            bit = word & -word
            devices.append(first + bit.bit_length() - 1)
            word ^= bit
    return tuple(devices)


_lowest_of_few = lru_cache(maxsize=16_384)(_lowest)
