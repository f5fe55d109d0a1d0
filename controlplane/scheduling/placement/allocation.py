"""Allocate and release places in a copy of the free devices: devices, shares of them, and other requests."""

from collections.abc import Iterable

from controlplane.lifecycle.job import Job
from controlplane.model.phases import WITH_DEVICES
from controlplane.model.resources import of_rank
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.placement.fit import Fit
from controlplane.state.devices import WHOLE, FreeDevices, mask_of


def release(
    cluster: ClusterView, free: FreeDevices, job: Job, ranks: Iterable[int] | None = None
) -> None:
    """Release what these ranks of a job's attempt hold, or all of its ranks."""
    attempt = job.attempt
    # If no job has requested anything but devices, this job has not either.
    requests = cluster.requests(job) if free.allocated else ()
    assert attempt is not None, job
    size = len(attempt.ranks)
    for index in range(size) if ranks is None else ranks:
        if attempt.ranks[index].state not in WITH_DEVICES:
            continue
        slot = attempt.placement[index]
        node = cluster.nodes[slot.node]
        if share := attempt.share(index):
            free.release_share(node.ordinal, slot.devices[0], share, whole=node.devices)
        else:
            free.release(node.ordinal, mask_of(slot.devices) & node.devices)
        if requests:
            free.release_amounts(node.ordinal, of_rank(job.spec, requests, index, size))


def release_fit(cluster: ClusterView, free: FreeDevices, fit: Fit) -> None:
    """Release a place that was allocated in `free`."""
    for index, slot in enumerate(fit.placement):
        node = cluster.nodes[slot.node]
        share = fit.shares[index] if fit.shares else 0
        if share:
            free.release_share(node.ordinal, slot.devices[0], share, whole=node.devices)
        else:
            free.release(node.ordinal, mask_of(slot.devices))
        if fit.amounts:
            free.release_amounts(node.ordinal, fit.amounts[index])


def allocate(cluster: ClusterView, free: FreeDevices, fit: Fit) -> None:
    """Allocate a place; all of it must be free."""
    nodes = cluster.nodes
    for index, slot in enumerate(fit.placement):
        ordinal = nodes[slot.node].ordinal
        share = fit.shares[index] if fit.shares else 0
        if share:
            free.allocate_share(ordinal, slot.devices[0], share)
        else:
            free.allocate(ordinal, mask_of(slot.devices))
        if fit.amounts:
            free.allocate_amounts(ordinal, fit.amounts[index])


def allocate_available(cluster: ClusterView, free: FreeDevices, fit: Fit) -> None:
    """Allocate as much of a place as is free: of a shared device, what is left of it."""
    nodes = cluster.nodes
    for index, slot in enumerate(fit.placement):
        ordinal = nodes[slot.node].ordinal
        share = fit.shares[index] if fit.shares else 0
        for device in slot.devices:
            taken = free.shared.get(ordinal, {}).get(device, 0)
            is_free = bool(free.masks[ordinal] >> device & 1)
            if (share and is_free) or taken:
                left = min(share or WHOLE, WHOLE - taken)
                if left:
                    free.allocate_share(ordinal, device, left)
            elif is_free:
                free.allocate(ordinal, 1 << device)
        if fit.amounts:
            free.allocate_available_amounts(ordinal, fit.amounts[index])
