"""Domains that one gang has for itself: nobody else gets in."""

from collections.abc import Iterable

from controlplane.devices import FreeDevices
from controlplane.model import Placement
from controlplane.scheduling.topology import topology_of
from controlplane.world import World


def fence(world: World, free: FreeDevices, jobs: Iterable[str]) -> None:
    """Closes, in a view, the domains that these gangs have for themselves."""
    for job_id in sorted(jobs):
        job = world.jobs[job_id]
        if job.attempt is not None:
            close(world, free, job.attempt.placement, job.spec.scheduling.topology.required)


def unfence(world: World, free: FreeDevices, job_id: str, others: Iterable[str]) -> None:
    """Opens again, in a view, what a gang had for itself; not what others still have."""
    job = world.jobs[job_id]
    tree = topology_of(world)
    level = tree.level(job.spec.scheduling.topology.required)
    if job.attempt is None or level is None:
        return
    ordinals = {world.nodes[slot.node].ordinal for slot in job.attempt.placement}
    for domain in tree.root.at(level):
        if not ordinals.isdisjoint(domain.nodes):
            for ordinal in domain.nodes:
                if world.nodes[world.node_names[ordinal]].takes_work and not free.open[ordinal]:
                    free.reopen(ordinal)
    fence(world, free, [other for other in others if other != job_id])


def close(world: World, free: FreeDevices, placement: Placement, required: str) -> None:
    tree = topology_of(world)
    level = tree.level(required)
    if level is None:
        return
    ordinals = {world.nodes[slot.node].ordinal for slot in placement}
    for domain in tree.root.at(level):
        if not ordinals.isdisjoint(domain.nodes):
            for ordinal in domain.nodes:
                if free.open[ordinal]:
                    free.close(ordinal)
