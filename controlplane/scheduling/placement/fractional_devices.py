"""Ranks that name their node or its devices, and ranks that need a share of one device.

Each function allocates what it finds in `free` at once, so that the next rank finds what is left.
"""

from controlplane.model.cluster import Slot
from controlplane.model.resources import Amounts
from controlplane.model.spec import Role
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.state.devices import WHOLE, FreeDevices, lowest, mask_of
from controlplane.state.image import Node


def allocate_pinned(
    cluster: ClusterView,
    free: FreeDevices,
    role: Role,
    amounts: Amounts,
    allowed: frozenset[int] | None,
) -> tuple[Slot, int] | None:
    node = cluster.nodes.get(role.node)
    if node is None or (allowed is not None and node.ordinal not in allowed):
        return None
    ordinal = node.ordinal
    if not free.open[ordinal] or not free.has_left(ordinal, amounts):
        return None
    part = _on_node(free, node, role)
    if part is not None and amounts:
        free.allocate_amounts(ordinal, amounts)
    return part


def _on_node(free: FreeDevices, node: Node, role: Role) -> tuple[Slot, int] | None:
    """The devices that the role names, or as many as it asks for, on its node; None if they are not free."""
    ordinal, share = node.ordinal, _share(node, role)
    if share is not None and share:
        device = role.devices[0] if role.devices else None
        return _take_part(free, node, share, device)
    mask = free.masks[ordinal]
    if role.devices:
        wanted = mask_of(role.devices)
        if mask & wanted != wanted:
            return None
        free.allocate(ordinal, wanted)
        return Slot(node.name, role.devices), 0
    if mask.bit_count() < role.gpus:
        return None
    devices = lowest(mask, role.gpus)
    free.allocate(ordinal, mask_of(devices))
    return Slot(node.name, devices), 0


def allocate_fraction(
    cluster: ClusterView,
    free: FreeDevices,
    role: Role,
    amounts: Amounts,
    allowed: frozenset[int] | None,
) -> tuple[Slot, int] | None:
    """A share of a device that is shared already and that it fills best, else of a device of the fullest node."""
    best: tuple[int, int, int, int] | None = None
    for ordinal, taken in free.shared.items():
        if not free.open[ordinal] or (allowed is not None and ordinal not in allowed):
            continue
        if not free.has_left(ordinal, amounts):
            continue
        share = _share(cluster.nodes[cluster.node_names[ordinal]], role)
        for device, used in taken.items():
            if share is not None and used + share <= WHOLE:
                offer = (WHOLE - used - share, ordinal, device, share)
                best = offer if best is None else min(best, offer)
    if best is not None:
        _, ordinal, device, share = best
        free.allocate_share(ordinal, device, share)
        free.allocate_amounts(ordinal, amounts)
        return Slot(cluster.node_names[ordinal], (device,)), share
    for count in free.counts:
        for ordinal in free.by_count[count] if count else ():
            if allowed is not None and ordinal not in allowed:
                continue
            if not free.has_left(ordinal, amounts):
                continue
            node = cluster.nodes[cluster.node_names[ordinal]]
            share = _share(node, role)
            if share is not None:
                free.allocate_amounts(ordinal, amounts)
                return _take_part(free, node, share, None)
    return None


def _take_part(
    free: FreeDevices, node: Node, share: int, device: int | None
) -> tuple[Slot, int] | None:
    """A share of this device of a node, or of any of its devices."""
    taken = free.shared.get(node.ordinal, {})
    if device is None:
        shared = [(WHOLE - used - share, d) for d, used in taken.items() if used + share <= WHOLE]
        if shared:
            device = min(shared)[1]
        elif free.masks[node.ordinal]:
            device = lowest(free.masks[node.ordinal], 1)[0]
        else:
            return None
    elif device in taken:
        if taken[device] + share > WHOLE:
            return None
    elif not free.masks[node.ordinal] >> device & 1:
        return None
    free.allocate_share(node.ordinal, device, share)
    return Slot(node.name, (device,)), share


def _share(node: Node, role: Role) -> int | None:
    """The share of one of the node's devices in thousandths, or None if they are too small or unknown."""
    if role.gpu_share:
        return role.gpu_share
    if not role.gpu_memory_mib:
        return 0
    memory = node.info.gpu_memory_mib
    if memory < role.gpu_memory_mib:
        return None
    return -(-role.gpu_memory_mib * WHOLE // memory)
