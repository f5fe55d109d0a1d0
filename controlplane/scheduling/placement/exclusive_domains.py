"""Topology domains that one gang has to itself: their nodes are closed to every other gang."""

from collections.abc import Iterable

from controlplane.model.cluster import Placement
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.state.devices import FreeDevices


def fence(cluster: ClusterView, free: FreeDevices, jobs: Iterable[str]) -> None:
    """Close the domains that these gangs have to themselves."""
    for job_id in sorted(jobs):
        job = cluster.jobs[job_id]
        if job.attempt is not None:
            close(cluster, free, job.attempt.placement, job.spec.scheduling.topology.required)


def unfence(cluster: ClusterView, free: FreeDevices, job_id: str, others: Iterable[str]) -> None:
    """Open the domain that a gang had to itself, except what `others` still have to themselves."""
    job = cluster.jobs[job_id]
    tree = cluster.node_facts.topology
    level = tree.level(job.spec.scheduling.topology.required)
    if job.attempt is None or level is None:
        return
    ordinals = {cluster.nodes[slot.node].ordinal for slot in job.attempt.placement}
    for domain in tree.root.at(level):
        if not ordinals.isdisjoint(domain.nodes):
            for ordinal in domain.nodes:
                if cluster.nodes[cluster.node_names[ordinal]].takes_work and not free.open[ordinal]:
                    free.reopen(ordinal)
    fence(cluster, free, [other for other in others if other != job_id])


def close(cluster: ClusterView, free: FreeDevices, placement: Placement, required: str) -> None:
    """Close the domains of level `required` in which the placement has nodes."""
    tree = cluster.node_facts.topology
    level = tree.level(required)
    if level is None:
        return
    ordinals = {cluster.nodes[slot.node].ordinal for slot in placement}
    for domain in tree.root.at(level):
        if not ordinals.isdisjoint(domain.nodes):
            for ordinal in domain.nodes:
                if free.open[ordinal]:
                    free.close(ordinal)
