"""Reports on the nodes of a machine."""

from collections.abc import Iterable

from adapters.simulated_cluster.outcomes import node_info
from controlplane.model.commands import (
    ReportCluster,
    ReportNode,
    ReportNodeLost,
    ReportNodeRemoved,
)
from simulator.machine.machine import Machine


def survey(machine: Machine, extended: Iterable[str]) -> ReportCluster:
    """Return the report on all nodes; each reports 0 of the `extended` resources that it lacks."""
    nodes = [node for name in machine.nodes if (node := machine.node(name))]
    up = tuple(node_info(node, extended) for node, is_up in nodes if is_up)
    down = tuple(node_info(node, extended) for node, is_up in nodes if not is_up)
    return ReportCluster(up=up, down=down)


def node_report(
    machine: Machine, name: str, extended: Iterable[str]
) -> ReportNode | ReportNodeLost | ReportNodeRemoved:
    """Return the report on one node."""
    known = machine.node(name)
    if known is None:
        return ReportNodeRemoved(node=name)
    node, up = known
    return ReportNode(node=node_info(node, extended)) if up else ReportNodeLost(node=name)
