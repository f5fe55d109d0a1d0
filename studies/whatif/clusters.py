"""The clusters of a study: a pool of GPUs, equal nodes, or the nodes of a cluster file."""

import re
from dataclasses import dataclass, replace

from simulator.network.topology import NODES_MAX, ClusterModel, Delays, NodeModel, parse_cluster

POOL_GPUS_MAX = 1_000_000
GPUS_PER_NODE_MAX = 1024
RACK_NODES = 16
INSTANT = Delays(start_s=0.0, start_jitter_s=0.0, stop_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCluster:
    """A cluster model and its name in results.

    In a pool the position of GPUs does not matter: any free GPUs serve a job. On any other cluster
    a job takes whole nodes of `node_gpus` GPUs, and its remainder shares one node with other jobs.
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
        """The memory size that most devices have, in MiB; 0 if it is not known."""
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
    """Return a cluster of `gpus` identical GPUs, which the scheduler sees as one very large node.

    Raise ValueError if `gpus` is not within 1 and `POOL_GPUS_MAX`.
    """
    if not 1 <= gpus <= POOL_GPUS_MAX:
        raise ValueError(f"a pool has 1 to {POOL_GPUS_MAX} GPUs, not {gpus}")
    model = ClusterModel((NodeModel("pool", gpus=gpus),), delays)
    return StudyCluster(name=f"{gpus} GPUs", model=model, node_gpus=gpus, pooled=True)


def equal_nodes(
    count: int, gpus: int, gpu_type: str = "", net: str = "", *, delays: Delays = INSTANT
) -> StudyCluster:
    """Return a cluster of `count` nodes with `gpus` GPUs each, in racks of `RACK_NODES` nodes.

    With `gpu_type`, the remaining hardware comes from the catalogue of the simulator. Raise
    ValueError if a number is out of range.
    """
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
    """Parse `128x8`, `128x8:H100` or `128x8:H100:400GbE`.

    Return the number of nodes, the GPUs of each, the GPU type and the network; the last two are ""
    where they are missing. Raise ValueError for any other text.
    """
    match = _NODES.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not NODESxGPUS, as in 128x8, 128x8:H100 or 128x8:H100:400GbE"
        )
    return int(match[1]), int(match[2]), match[3] or "", match[4] or ""


def other_count(text: str, count: int) -> str:
    """Return the cluster `text` with `count` nodes instead of its own number."""
    return f"{count}{text.strip()[text.strip().index('x') :]}"


def from_model(name: str, model: ClusterModel) -> StudyCluster:
    """Return the cluster of a cluster file.

    Jobs are cut to the node size that holds most of its GPUs.
    """
    sizes: dict[int, int] = {}
    for node in model.nodes:
        sizes[node.gpus] = sizes.get(node.gpus, 0) + node.gpus
    usual = max(sizes, key=lambda gpus: (sizes[gpus], gpus))
    return StudyCluster(name=name, model=model, node_gpus=max(1, usual))
