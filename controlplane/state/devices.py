"""Free devices of every node, indexed by how many each node has free.

Nodes are known by ordinal, the order in which they were first seen, so that a choice among equal nodes depends on the
state alone and not on how it came about. The free devices of a node are the bits of an integer. A device that ranks share
is not free as a whole; `shared` has the part of it that is allocated.

Of other resources (cores, memory), `allocated` has what ranks have requested, because most ranks request none, and
`offers` what a node has.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

# A device in thousandths.
WHOLE = 1_000


class FreeDevicesView(Protocol):
    """Free devices as the scheduler reads them: nothing here changes them, and `copy` makes a copy that may change."""

    @property
    def masks(self) -> Sequence[int]: ...
    @property
    def free_counts(self) -> Sequence[int]: ...
    @property
    def shared(self) -> Mapping[int, Mapping[int, int]]: ...
    @property
    def open(self) -> Sequence[bool]: ...
    @property
    def by_count(self) -> Mapping[int, Sequence[int]]: ...
    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def allocated(self) -> Mapping[int, Mapping[str, int]]: ...
    @property
    def offers(self) -> Mapping[int, Mapping[str, int]]: ...
    @property
    def total(self) -> int: ...
    def left(self, ordinal: int, resource: str) -> int | None: ...
    def has_left(self, ordinal: int, amounts: Mapping[str, int]) -> bool: ...
    def copy(self) -> "FreeDevices": ...


class FreeDevices:
    """Free devices of every node, and the open nodes by how many they have free."""

    __slots__ = (
        "allocated", "by_count", "counts", "free_counts", "masks", "offers", "open", "shared",
    )  # fmt: skip

    def __init__(self) -> None:
        self.masks: list[int] = []
        # The bit count of each mask: counting the bits of a pool of thousands of devices takes long.
        self.free_counts: list[int] = []
        # Ordinal -> device -> thousandths of it that are allocated.
        self.shared: dict[int, dict[int, int]] = {}
        # Whether work may be placed there: ready and not cordoned.
        self.open: list[bool] = []
        # Number of free devices -> the open nodes with that number; and these numbers in order.
        self.by_count: dict[int, list[int]] = {}
        self.counts: list[int] = []
        # Ordinal -> resource -> what ranks have requested there. Inner dicts are replaced, never changed, so
        # that copies can share them.
        self.allocated: dict[int, dict[str, int]] = {}
        # Ordinal -> resource -> what the node has of it for ranks; shared by all copies.
        self.offers: dict[int, dict[str, int]] = {}

    def copy(self) -> "FreeDevices":
        """A copy that may be changed."""
        twin = FreeDevices.__new__(FreeDevices)
        twin.masks = self.masks.copy()
        twin.free_counts = self.free_counts.copy()
        twin.open = self.open.copy()
        twin.by_count = {count: ordinals.copy() for count, ordinals in self.by_count.items()}
        twin.counts = self.counts.copy()
        twin.shared = {o: taken.copy() for o, taken in self.shared.items()} if self.shared else {}
        twin.allocated = self.allocated.copy()
        twin.offers = self.offers
        return twin

    @property
    def total(self) -> int:
        """How many devices are free on nodes that take work."""
        return sum(count * len(ordinals) for count, ordinals in self.by_count.items())

    def set_node(self, ordinal: int, mask: int, *, is_open: bool) -> None:
        """Set what a node has free and whether it takes work."""
        while ordinal >= len(self.masks):
            self.masks.append(0)
            self.free_counts.append(0)
            self.open.append(False)
        if self.open[ordinal]:
            self._unlist(ordinal, self.free_counts[ordinal])
        for device in self.shared.get(ordinal, ()):
            mask &= ~(1 << device)
        self.masks[ordinal] = mask
        self.free_counts[ordinal] = mask.bit_count()
        self.open[ordinal] = is_open
        if is_open:
            self._list(ordinal, self.free_counts[ordinal])

    def allocate(self, ordinal: int, devices: int) -> None:
        """Allocate devices; each must be free."""
        mask = self.masks[ordinal]
        assert mask & devices == devices, f"node {ordinal} has {mask:b} free, not {devices:b}"
        self._set_free(ordinal, mask ^ devices, self.free_counts[ordinal] - devices.bit_count())

    def release(self, ordinal: int, devices: int) -> None:
        """Release devices; none may be free."""
        mask = self.masks[ordinal]
        assert mask & devices == 0, f"node {ordinal} has {mask:b} free already, of {devices:b}"
        self._set_free(ordinal, mask | devices, self.free_counts[ordinal] + devices.bit_count())

    def _set_free(self, ordinal: int, mask: int, count: int) -> None:
        if self.open[ordinal]:
            self._unlist(ordinal, self.free_counts[ordinal])
            self._list(ordinal, count)
        self.masks[ordinal], self.free_counts[ordinal] = mask, count

    def close(self, ordinal: int) -> None:
        """Place nothing more on the node."""
        if self.open[ordinal]:
            self._unlist(ordinal, self.free_counts[ordinal])
        self.open[ordinal] = False

    def reopen(self, ordinal: int) -> None:
        """The opposite of `close`."""
        self.open[ordinal] = True
        self._list(ordinal, self.free_counts[ordinal])

    def allocate_share(self, ordinal: int, device: int, share: int) -> None:
        """Allocate a share of a device, in thousandths; that much must be left of it."""
        taken = self.shared.setdefault(ordinal, {})
        if device not in taken:
            # A device that vanished under its ranks is not in the mask.
            self.allocate(ordinal, (1 << device) & self.masks[ordinal])
        taken[device] = taken.get(device, 0) + share
        assert taken[device] <= WHOLE, f"device {device} of node {ordinal} is allocated twice"

    def release_share(self, ordinal: int, device: int, share: int, *, whole: int) -> None:
        """Release a share. A device without shares is free as a whole again, if it is in `whole`."""
        taken = self.shared[ordinal]
        taken[device] -= share
        assert taken[device] >= 0, f"device {device} of node {ordinal} was released twice"
        if not taken[device]:
            del taken[device]
            if not taken:
                del self.shared[ordinal]
            self.release(ordinal, (1 << device) & whole)

    def set_offers(self, ordinal: int, offers: dict[str, int]) -> None:
        """Set what a node has for ranks in addition to devices."""
        if offers:
            self.offers[ordinal] = offers
        else:
            self.offers.pop(ordinal, None)

    def left(self, ordinal: int, resource: str) -> int | None:
        """How much of a resource is left on a node; None if it is unlimited."""
        most = self.offers.get(ordinal, _NOTHING).get(resource)
        return (
            None if most is None else most - self.allocated.get(ordinal, _NOTHING).get(resource, 0)
        )

    def has_left(self, ordinal: int, amounts: Mapping[str, int]) -> bool:
        """Whether a rank that requests these amounts fits on the node."""
        offers = self.offers.get(ordinal)
        if not amounts or offers is None:
            return True
        held = self.allocated.get(ordinal, _NOTHING)
        return all(
            amount <= offers[name] - held.get(name, 0)
            for name, amount in amounts.items()
            if name in offers
        )

    def allocate_amounts(self, ordinal: int, amounts: Mapping[str, int]) -> None:
        """Allocate what a rank requests in addition to devices."""
        if not amounts:
            return
        held = self.allocated.get(ordinal, _NOTHING).copy()
        for name, amount in amounts.items():
            held[name] = held.get(name, 0) + amount
        self.allocated[ordinal] = held

    def allocate_available_amounts(self, ordinal: int, amounts: Mapping[str, int]) -> None:
        """Allocate these amounts as far as they are left."""
        available = {}
        for name, amount in amounts.items():
            left = self.left(ordinal, name)
            available[name] = amount if left is None else min(amount, max(0, left))
        self.allocate_amounts(ordinal, available)

    def release_amounts(self, ordinal: int, amounts: Mapping[str, int]) -> None:
        """The opposite of `allocate_amounts`."""
        if not amounts:
            return
        held = self.allocated[ordinal].copy()
        for name, amount in amounts.items():
            held[name] = left = held[name] - amount
            assert left >= 0, f"{name} of node {ordinal} was released twice"
            if not left:
                del held[name]
        if held:
            self.allocated[ordinal] = held
        else:
            del self.allocated[ordinal]

    def _list(self, ordinal: int, count: int) -> None:
        """List an open node under its number of free devices."""
        listed = self.by_count.get(count)
        if listed is None:
            self.by_count[count] = [ordinal]
            insort(self.counts, count)
        else:
            insort(listed, ordinal)

    def _unlist(self, ordinal: int, count: int) -> None:
        """The opposite of `_list`."""
        listed = self.by_count[count]
        if len(listed) == 1:
            del self.by_count[count]
            del self.counts[bisect_left(self.counts, count)]
        else:
            del listed[bisect_left(listed, ordinal)]


_NOTHING: dict[str, int] = {}


# Most nodes are alike, so the same few tuples of devices occur again and again.
@lru_cache(maxsize=16_384)
def mask_of(devices: tuple[int, ...]) -> int:
    """Devices as bits."""
    if not devices:
        return 0
    # Devices are mostly adjacent, and those of a pool far from its first one.
    mask, first = 0, min(devices)
    for device in devices:
        mask |= 1 << (device - first)
    return mask << first


def lowest(mask: int, count: int) -> tuple[int, ...]:
    """The lowest `count` device indices of a mask."""
    return _lowest_of_few(mask, count) if mask < _FEW else _lowest(mask, count)


_WORD = (1 << 60) - 1
# A node of up to sixteen devices. A pool has thousands, and hardly ever the same free ones twice.
_FEW = 1 << 16


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    devices: list[int] = []
    while mask and len(devices) < count:
        # A word at a time, because the mask of a pool is long.
        first = (mask & -mask).bit_length() - 1
        word = (mask >> first) & _WORD
        mask ^= word << first
        while word and len(devices) < count:
            bit = word & -word
            devices.append(first + bit.bit_length() - 1)
            word ^= bit
    return tuple(devices)


_lowest_of_few = lru_cache(maxsize=16_384)(_lowest)
