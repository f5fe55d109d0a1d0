"""The links that a gang uses: the NICs of its nodes, and the uplinks of their leaves.

A ring that visits leaf after leaf crosses each boundary once, so an uplink carries as much as one
NIC. If every node sends to every other, an uplink carries all traffic that leaves its leaf.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from simulator.hardware.networks import Transport
from simulator.network.topology import ClusterModel, NodeModel
from simulator.training.placement import RDMA_SHARE, TCP_SHARE


class ClusterLinks:
    """Names and capacities of the links of a cluster, in bytes a second each way."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._leaf = leaves(cluster)
        self._nic = {node.name: (nic(node.name), 1.0) for node in cluster.nodes}
        self.capacity: dict[str, float] = {}
        uplinks = defaultdict[str, float](float)
        for node in cluster.nodes:
            rate = nic_rate(node)
            self.capacity[nic(node.name)] = rate
            uplinks[self._leaf[node.name]] += rate
        for leaf, rate in uplinks.items():
            self.capacity[leaf] = rate / cluster.fabric.oversubscription

    def loads(self, nodes: Sequence[str], *, ring: bool) -> tuple[tuple[str, float], ...]:
        """Return the links of a gang on these nodes, each with its load per byte that a node sends."""
        if len(nodes) < 2:
            return ()
        loaded = [self._nic[name] for name in nodes]
        here: dict[str, int] = {}
        for name in nodes:
            leaf = self._leaf[name]
            here[leaf] = here.get(leaf, 0) + 1
        if len(here) > 1:
            others = len(nodes) - 1
            loaded += [
                (leaf, 1.0 if ring else count * (len(nodes) - count) / others)
                for leaf, count in here.items()
            ]
        return tuple(loaded)

    def served_loads(
        self, clients: Sequence[str], servers: Sequence[str], server_share: float
    ) -> tuple[tuple[str, float], ...]:
        """Return the links between clients and parameter servers, each with its load.

        A node with servers sends `server_share` of what a node with clients sends; a node may have
        both. Traffic to nodes under another leaf crosses the uplinks.
        """
        load = dict.fromkeys(clients, 1.0)
        for name in servers:
            load[name] = load.get(name, 0.0) + server_share
        loaded = [(self._nic[name][0], weight) for name, weight in load.items()]
        asking = Counter(self._leaf[name] for name in clients)
        giving = Counter(self._leaf[name] for name in servers)
        for leaf in {**asking, **giving}:
            out = asking[leaf] * (1.0 - giving[leaf] / len(servers))
            out += giving[leaf] * (1.0 - asking[leaf] / len(clients)) * server_share
            if out > 0.0:
                loaded.append((leaf, out))
        return tuple(loaded)

    def leaf(self, node: str) -> str:
        return self._leaf[node]


def nic(node: str) -> str:
    return f"nic/{node}"


def nic_rate(node: NodeModel) -> float:
    """Return the rate that software gets from all NICs of a node; unlimited if they are unknown."""
    if node.hardware is None:
        return float("inf")
    network = node.hardware.network
    share = RDMA_SHARE if network.transport is Transport.RDMA else TCP_SHARE
    return share * network.line_gbs * 1e9


def leaves(cluster: ClusterModel) -> dict[str, str]:
    """Return the leaf of every node: its rack, split into leaves of the fabric's size."""
    counted = Counter[str]()
    leaf_of = {}
    for node in cluster.nodes:
        part = counted[node.rack] // cluster.fabric.nodes_per_leaf
        leaf_of[node.name] = f"leaf/{node.rack}/{part}"
        counted[node.rack] += 1
    return leaf_of
