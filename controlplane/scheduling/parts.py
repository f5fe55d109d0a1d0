"""Ranks that name their node or its devices, and ranks that need a part of one device.

What they find is taken in the view at once: one after the other looks for its place.
"""

from controlplane.devices import WHOLE, FreeDevices, lowest, mask_of
from controlplane.image import Node
from controlplane.model import Role, Slot
from controlplane.requests import Amounts
from controlplane.world import World


def take_pinned(
    world: World,
    free: FreeDevices,
    role: Role,
    amounts: Amounts,
    allowed: frozenset[int] | None,
) -> tuple[Slot, int] | None:
    node = world.nodes.get(role.node)
    if node is None or (allowed is not None and node.ordinal not in allowed):
        return None
    ordinal = node.ordinal
    if not free.open[ordinal] or not free.has_left(ordinal, amounts):
        return None
    found = _on_node(free, node, role)
    if found is not None and amounts:
        free.hold_amounts(ordinal, amounts)
    return found


def _on_node(free: FreeDevices, node: Node, role: Role) -> tuple[Slot, int] | None:
    """The devices that it names, or as many as it wants, of its node."""
    ordinal, share = node.ordinal, _share(node, role)
    if share is not None and share:
        device = role.devices[0] if role.devices else None
        return _take_part(free, node, share, device)
    mask = free.masks[ordinal]
    if role.devices:
        wanted = mask_of(role.devices)
        if mask & wanted != wanted:
            return None
        free.hold(ordinal, wanted)
        return Slot(node.name, role.devices), 0
    if mask.bit_count() < role.gpus:
        return None
    devices = lowest(mask, role.gpus)
    free.hold(ordinal, mask_of(devices))
    return Slot(node.name, devices), 0


def take_part(
    world: World,
    free: FreeDevices,
    role: Role,
    amounts: Amounts,
    allowed: frozenset[int] | None,
) -> tuple[Slot, int] | None:
    """A device that others share already and that it fills best, else one of the fullest node."""
    best: tuple[int, int, int, int] | None = None
    for ordinal, taken in free.shared.items():
        if not free.open[ordinal] or (allowed is not None and ordinal not in allowed):
            continue
        if not free.has_left(ordinal, amounts):
            continue
        share = _share(world.nodes[world.node_names[ordinal]], role)
        for device, used in taken.items():
            if share is not None and used + share <= WHOLE:
                offer = (WHOLE - used - share, ordinal, device, share)
                best = offer if best is None else min(best, offer)
    if best is not None:
        _, ordinal, device, share = best
        free.hold_share(ordinal, device, share)
        free.hold_amounts(ordinal, amounts)
        return Slot(world.node_names[ordinal], (device,)), share
    for count in free.counts:
        for ordinal in free.by_count[count] if count else ():
            if allowed is not None and ordinal not in allowed:
                continue
            if not free.has_left(ordinal, amounts):
                continue
            node = world.nodes[world.node_names[ordinal]]
            share = _share(node, role)
            if share is not None:
                free.hold_amounts(ordinal, amounts)
                return _take_part(free, node, share, None)
    return None


def _take_part(
    free: FreeDevices, node: Node, share: int, device: int | None
) -> tuple[Slot, int] | None:
    """A part of this device of a node, or of any of its devices."""
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
    free.hold_share(node.ordinal, device, share)
    return Slot(node.name, (device,)), share


def _share(node: Node, role: Role) -> int | None:
    """Thousandths of one of the node's devices, or None when they are too small or unknown."""
    if role.gpu_share:
        return role.gpu_share
    if not role.gpu_memory_mib:
        return 0
    memory = node.info.gpu_memory_mib
    if memory < role.gpu_memory_mib:
        return None
    return -(-role.gpu_memory_mib * WHOLE // memory)
