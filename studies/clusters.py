"""The clusters that a study asks about: a pool of GPUs, equal nodes, or a cluster file's."""

import re
from dataclasses import dataclass, replace

from simulator.topology import ClusterModel, Delays, NodeModel

POOL_GPUS_MAX = 1_000_000
NODES_MAX = 100_000
GPUS_PER_NODE_MAX = 1024
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
    count: int, gpus: int, *, gpu_type: str = "", rack_nodes: int = 16, delays: Delays = INSTANT
) -> StudyCluster:
    """So many nodes with so many GPUs each, in racks."""
    if not 1 <= count <= NODES_MAX or not 1 <= gpus <= GPUS_PER_NODE_MAX:
        raise ValueError(
            f"{count}x{gpus}: a cluster has 1 to {NODES_MAX} nodes of 1 to {GPUS_PER_NODE_MAX} GPUs"
        )
    nodes = tuple(
        NodeModel(f"node-{i}", f"rack-{i // rack_nodes}", gpus, gpu_type) for i in range(count)
    )
    return StudyCluster(
        name=f"{count}x{gpus}{' ' + gpu_type if gpu_type else ''}",
        model=ClusterModel(nodes, delays),
        node_gpus=gpus,
    )


_NODES = re.compile(r"(\d{1,6})x(\d{1,4})(?::([A-Za-z0-9._-]{1,40}))?")


def parse_nodes(text: str) -> tuple[int, int, str]:
    """`128x8` or `128x8:H100` as nodes, GPUs in each, and their type."""
    found = _NODES.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not NODESxGPUS, as in 128x8 or 128x8:H100")
    return int(found[1]), int(found[2]), found[3] or ""


def from_model(name: str, model: ClusterModel) -> StudyCluster:
    """A cluster as a file describes it; jobs are cut to its most frequent size of node."""
    sizes: dict[int, int] = {}
    for node in model.nodes:
        sizes[node.gpus] = sizes.get(node.gpus, 0) + node.gpus
    usual = max(sizes, key=lambda gpus: (sizes[gpus], gpus))
    return StudyCluster(name=name, model=model, node_gpus=max(1, usual))
