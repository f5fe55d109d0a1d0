"""The place of a gang, as far as its speed depends on it."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from simulator.collectives import nccl
from simulator.hardware.constants import Constants
from simulator.hardware.gpus import Gpu
from simulator.hardware.hosts import Host
from simulator.hardware.links import IntraLink, Wiring
from simulator.hardware.networks import Fabric, Network, Transport

# NVIDIA's own figures: 24 of 25 GB/s and 48 of 50 by RDMA, 10 of 12.5 by TCP at best.
RDMA_SHARE = 0.96
TCP_SHARE = 0.8
# Where NICs cannot reach GPU memory, data is staged in host memory over PCIe, and the copy and the
# wire follow each other. (FDR on eight M40: 4.2 GB/s by this rule, 4.0 to 4.3 measured.)
STAGING_GBS = 12.0


class ServedFrom(NamedTuple):
    """The nodes of a gang's parameter servers."""

    servers: int
    # The nodes that hold servers, and how many of these also hold ranks that compute.
    nodes: int
    shared: int
    # The line rate of all NICs of the slowest of these nodes, in GB/s.
    line_gbs: float

    @property
    def per_node(self) -> int:
        return -(-self.servers // self.nodes)


@dataclass(frozen=True)
class Place:
    """The nodes of a gang, which are equal; `per_node` is the ranks of the fullest node."""

    gpu: Gpu
    link: IntraLink
    ranks: int
    nodes: int = 1
    network: Network = field(default_factory=Network)
    host: Host = field(default_factory=Host)
    fabric: Fabric = field(default_factory=Fabric)
    # None if the places of parameter servers are not known: they are then on the gang's nodes.
    served_from: ServedFrom | None = None

    @property
    def crosses_network(self) -> bool:
        """Whether ranks, or ranks and their parameter servers, are on different nodes."""
        served = self.served_from
        return self.nodes > 1 or (served is not None and (served.nodes > 1 or not served.shared))

    @property
    def per_node(self) -> int:
        return -(-self.ranks // self.nodes)

    @property
    def nvls(self) -> bool:
        """Whether the switches inside a node reduce (NVLink SHARP)."""
        return self.link.in_switch > 0.0

    def intra_gbs(self) -> float:
        """The bus bandwidth of a ring inside one node, in GB/s; infinite for one rank."""
        ring = self.link.ring_gbs(self.per_node) if self.per_node > 1 else 0.0
        return ring or float("inf")

    def net_gbs(self, constants: Constants, flows: int = 1, *, from_host: bool = False) -> float:
        """Return what all NICs of a node give to `flows` flows at once, in GB/s.

        It is infinite on a single node. `from_host` is for data in host memory, which NICs can
        reach.
        """
        net = self.network
        if self.nodes <= 1 or net.transport is Transport.NONE:
            return float("inf")
        if net.transport is Transport.RDMA:
            usable = RDMA_SHARE * net.line_gbs
            staged = self.link.wiring is Wiring.TREE and not from_host
            return 1.0 / (1.0 / usable + 1.0 / STAGING_GBS) if staged else usable
        return min(TCP_SHARE * net.line_gbs, self.flow_gbs(constants) * max(flows, net.nics))

    def flow_gbs(self, constants: Constants) -> float:
        """Return the rate of one TCP flow in GB/s.

        A host copies the data, and copy and wire follow each other. (One stream of iperf on 25 GbE:
        1.72 GB/s by this rule, 1.71 measured; four of them 2.6.)
        """
        net = self.network
        one = 1.0 / (1.0 / net.line_gbs + 1.0 / constants.tcp_copy_gbs)
        return min(net.flow_gbps_max / 8.0, one)


def nccl_ranks(place: Place, *, intra_gbs: float, net_gbs: float, sizes: int = 1) -> nccl.Ranks:
    """Return a gang as NCCL sees it, repeated for `sizes` sizes; the rates are those of rings."""
    return nccl.ranks_of(
        ranks=np.full(sizes, place.ranks),
        nodes=place.nodes,
        intra_gbs=intra_gbs,
        net_gbs=net_gbs,
        generation=nccl.generation_of(place.gpu.generation),
        medium=0 if place.link.is_nvlink or place.per_node == 1 else 1,
        nvls=place.nvls,
        ordered=place.network.ordered,
        net_us=place.network.latency_us,
    )
