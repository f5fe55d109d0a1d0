"""Fragmentation: the part of the free devices that ranks of a given size cannot use.

On each node as many ranks of the size are placed as fit; the remaining devices are of no use to
that size. The sizes are the powers of two up to the largest node. 0 means that ranks of the size
can use every free device, 1 that they can use none.
"""

from controlplane.state.devices import FreeDevicesView


def by_size(free: FreeDevicesView) -> dict[int, float]:
    """Rank size -> the part of the free devices that ranks of that size cannot use."""
    total = free.total
    largest = max((mask.bit_length() for mask in free.masks), default=0)
    unusable: dict[int, float] = {}
    size = 1
    while size <= max(1, largest):
        usable = sum(n // size * size * len(nodes) for n, nodes in free.by_count.items())
        unusable[size] = 0.0 if not total else 1.0 - usable / total
        size *= 2
    return unusable
