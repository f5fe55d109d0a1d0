"""How much of what is free lies so scattered that nobody can use it.

For a rank of some size, the devices that are left over on each node when as many such ranks as
possible have been put there are of no use to it. The figure is their part of all free devices, for
each size that is a power of two up to that of the largest node; the mean of them is the cluster's.
0 means that everything free can be used by ranks of any size, 1 that nothing can.
"""

from controlplane.devices import FreeDevices


def by_size(free: FreeDevices) -> dict[int, float]:
    """Rank size -> the part of the free devices that ranks of that size cannot use."""
    total = free.total
    largest = max((mask.bit_length() for mask in free.masks), default=0)
    found: dict[int, float] = {}
    size = 1
    while size <= max(1, largest):
        usable = sum(n // size * size * len(nodes) for n, nodes in free.by_count.items())
        found[size] = 0.0 if not total else 1.0 - usable / total
        size *= 2
    return found


def figure(free: FreeDevices) -> float:
    """One number for the whole cluster, between 0 and 1."""
    sizes = by_size(free)
    return sum(sizes.values()) / len(sizes)
