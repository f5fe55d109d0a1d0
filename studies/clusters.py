"""The clusters that a study asks about: a pool of GPUs, equal nodes, or a cluster file's."""

import re
from dataclasses import dataclass, replace

from simulator.topology import ClusterModel, Delays, NodeModel, parse_cluster

POOL_GPUS_MAX = 1_000_000
NODES_MAX = 100_000
GPUS_PER_NODE_MAX = 1024
RACK_NODES = 16
INSTANT = Delays(start_s=0.0, start_jitter_s=0.0, stop_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCluster:
    """A cluster with the name it goes by in results.

    In a pool it does not matter where GPUs are: any free ones will do. Elsewhere a job takes whole
    nodes of `node_gpus`, and what is left of it shares one node with others.
    """

    name: str
    model: ClusterModel
    node_gpus: int
    pooled: bool = False

    @property
    def gpus(self) -> int:
        return self.model.gpus

    @property
    def device_memory_mib(self) -> int:
        """The memory that most of its devices have; 0 if that is not known."""
        devices: dict[int, int] = {}
        for node in self.model.nodes:
            memory_mib = node.device_memory_mib
            devices[memory_mib] = devices.get(memory_mib, 0) + node.gpus
        return max(devices, key=lambda memory_mib: (devices[memory_mib], memory_mib))

    def with_delays(self, delays: Delays) -> "StudyCluster":
        return self.with_model(replace(self.model, delays=delays))

    def with_model(self, model: ClusterModel) -> "StudyCluster":
        return replace(self, model=model)


def pool(gpus: int, *, delays: Delays = INSTANT) -> StudyCluster:
    """Identical GPUs in one pool, which to the scheduler is one very large node."""
    if not 1 <= gpus <= POOL_GPUS_MAX:
        raise ValueError(f"a pool has 1 to {POOL_GPUS_MAX} GPUs, not {gpus}")
    model = ClusterModel((NodeModel("pool", gpus=gpus),), delays)
    return StudyCluster(name=f"{gpus} GPUs", model=model, node_gpus=gpus, pooled=True)


def equal_nodes(
    count: int, gpus: int, gpu_type: str = "", net: str = "", *, delays: Delays = INSTANT
) -> StudyCluster:
    """So many nodes with so many GPUs each, in racks; with a type, the catalogue knows the rest."""
    if not 1 <= count <= NODES_MAX or not 1 <= gpus <= GPUS_PER_NODE_MAX:
        raise ValueError(
            f"{count}x{gpus}: a cluster has 1 to {NODES_MAX} nodes of 1 to {GPUS_PER_NODE_MAX} GPUs"
        )
    if gpu_type:
        kind = {"gpus": gpus, "gpu_type": gpu_type, **({"net": net} if net else {})}
        racks = [
            {"name": f"rack-{i // RACK_NODES}", "nodes": min(RACK_NODES, count - i), **kind}
            for i in range(0, count, RACK_NODES)
        ]
        model = replace(parse_cluster({"racks": racks}), delays=delays)
    else:
        nodes = tuple(NodeModel(f"node-{i}", f"rack-{i // RACK_NODES}", gpus) for i in range(count))
        model = ClusterModel(nodes, delays)
    name = ":".join(part for part in (f"{count}x{gpus}", gpu_type, net) if part)
    return StudyCluster(name=name, model=model, node_gpus=gpus)


_WORD = r"(?::([A-Za-z0-9._-]{1,40}))?"
_NODES = re.compile(r"(\d{1,6})x(\d{1,4})" + _WORD + _WORD)


def parse_nodes(text: str) -> tuple[int, int, str, str]:
    """`128x8`, `128x8:H100` or `128x8:H100:400GbE`: nodes, GPUs in each, their type, the network."""
    found = _NODES.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is not NODESxGPUS, as in 128x8, 128x8:H100 or 128x8:H100:400GbE"
        )
    return int(found[1]), int(found[2]), found[3] or "", found[4] or ""


def other_count(text: str, count: int) -> str:
    """The same nodes, but so many of them."""
    return f"{count}{text.strip()[text.strip().index('x') :]}"


def from_model(name: str, model: ClusterModel) -> StudyCluster:
    """A cluster as a file describes it; jobs are cut to its most frequent size of node."""
    sizes: dict[int, int] = {}
    for node in model.nodes:
        sizes[node.gpus] = sizes.get(node.gpus, 0) + node.gpus
    usual = max(sizes, key=lambda gpus: (sizes[gpus], gpus))
    return StudyCluster(name=name, model=model, node_gpus=max(1, usual))
