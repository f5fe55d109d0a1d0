"""Places taken and given back in a view of what is free: devices, parts of them, what ranks request."""

from collections.abc import Iterable

from controlplane.attempt import HOLDING
from controlplane.devices import WHOLE, FreeDevices, mask_of
from controlplane.job import Job
from controlplane.requests import of_rank
from controlplane.scheduling.fitting import Fit
from controlplane.world import World


def give_back(
    world: World, free: FreeDevices, job: Job, ranks: Iterable[int] | None = None
) -> None:
    """Frees, in a view, all that a job's attempt holds; or what these ranks of it hold."""
    attempt = job.attempt
    # Where nobody holds anything beside devices, this one does not either.
    requests = world.requests(job) if free.held else ()
    assert attempt is not None, job
    size = len(attempt.ranks)
    for index in range(size) if ranks is None else ranks:
        if attempt.ranks[index].state not in HOLDING:
            continue
        slot = attempt.placement[index]
        node = world.nodes[slot.node]
        if share := attempt.share(index):
            free.release_share(node.ordinal, slot.devices[0], share, whole=node.devices)
        else:
            free.release(node.ordinal, mask_of(slot.devices) & node.devices)
        if requests:
            free.release_amounts(node.ordinal, of_rank(job.spec, requests, index, size))


def give_back_fit(world: World, free: FreeDevices, fit: Fit) -> None:
    """Frees, in a view, a place that was given away in this pass."""
    for index, slot in enumerate(fit.placement):
        node = world.nodes[slot.node]
        share = fit.shares[index] if fit.shares else 0
        if share:
            free.release_share(node.ordinal, slot.devices[0], share, whole=node.devices)
        else:
            free.release(node.ordinal, mask_of(slot.devices))
        if fit.amounts:
            free.release_amounts(node.ordinal, fit.amounts[index])


def hold(world: World, free: FreeDevices, fit: Fit) -> None:
    """Takes a placement in a view; all of it must be free there."""
    nodes = world.nodes
    for index, slot in enumerate(fit.placement):
        ordinal = nodes[slot.node].ordinal
        share = fit.shares[index] if fit.shares else 0
        if share:
            free.hold_share(ordinal, slot.devices[0], share)
        else:
            free.hold(ordinal, mask_of(slot.devices))
        if fit.amounts:
            free.hold_amounts(ordinal, fit.amounts[index])


def hold_what_is_there(world: World, free: FreeDevices, fit: Fit) -> None:
    """Takes as much of a placement as is free there yet: of a device that is shared, what is left."""
    nodes = world.nodes
    for index, slot in enumerate(fit.placement):
        ordinal = nodes[slot.node].ordinal
        share = fit.shares[index] if fit.shares else 0
        for device in slot.devices:
            taken = free.shared.get(ordinal, {}).get(device, 0)
            is_free = bool(free.masks[ordinal] >> device & 1)
            if (share and is_free) or taken:
                left = min(share or WHOLE, WHOLE - taken)
                if left:
                    free.hold_share(ordinal, device, left)
            elif is_free:
                free.hold(ordinal, 1 << device)
        if fit.amounts:
            free.hold_what_is_left(ordinal, fit.amounts[index])
