"""Which links a gang uses: the NICs of its nodes, and the uplinks of their leaves.

A ring that visits leaf after leaf crosses each boundary once, so an uplink carries what one NIC
does; where everyone sends to everyone, it carries what all its nodes send elsewhere.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from simulator.hardware.networks import Transport
from simulator.topology import ClusterModel, NodeModel
from simulator.training.placement import RDMA_SHARE, TCP_SHARE


class Wiring:
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
        """The links of a gang on these nodes, with what each carries for one node's bytes."""
        if len(nodes) < 2:
            return ()
        found = [self._nic[name] for name in nodes]
        here: dict[str, int] = {}
        for name in nodes:
            leaf = self._leaf[name]
            here[leaf] = here.get(leaf, 0) + 1
        if len(here) > 1:
            others = len(nodes) - 1
            found += [
                (leaf, 1.0 if ring else count * (len(nodes) - count) / others)
                for leaf, count in here.items()
            ]
        return tuple(found)

    def served_loads(
        self, clients: Sequence[str], servers: Sequence[str], server_share: float
    ) -> tuple[tuple[str, float], ...]:
        """The links between nodes with clients and nodes with parameter servers.

        What a node with servers sends is `server_share` of what one with clients does; a node may
        have both. Traffic leaves a leaf as far as the other side is not under it.
        """
        load = dict.fromkeys(clients, 1.0)
        for name in servers:
            load[name] = load.get(name, 0.0) + server_share
        found = [(self._nic[name][0], weight) for name, weight in load.items()]
        asking = Counter(self._leaf[name] for name in clients)
        giving = Counter(self._leaf[name] for name in servers)
        for leaf in {**asking, **giving}:
            out = asking[leaf] * (1.0 - giving[leaf] / len(servers))
            out += giving[leaf] * (1.0 - asking[leaf] / len(clients)) * server_share
            if out > 0.0:
                found.append((leaf, out))
        return tuple(found)

    def leaf(self, node: str) -> str:
        return self._leaf[node]


def nic(node: str) -> str:
    return f"nic/{node}"


def nic_rate(node: NodeModel) -> float:
    """What software gets from all NICs of a node; unknown hardware has as much as it likes."""
    if node.hardware is None:
        return float("inf")
    network = node.hardware.network
    share = RDMA_SHARE if network.transport is Transport.RDMA else TCP_SHARE
    return share * network.line_gbs * 1e9


def leaves(cluster: ClusterModel) -> dict[str, str]:
    """The leaf of every node: its rack, cut into as many parts as it needs."""
    seen = Counter[str]()
    found = {}
    for node in cluster.nodes:
        part = seen[node.rack] // cluster.fabric.nodes_per_leaf
        found[node.name] = f"leaf/{node.rack}/{part}"
        seen[node.rack] += 1
    return found
