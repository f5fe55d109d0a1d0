"""A cluster as values: racks of nodes with GPUs, their delays and their faults.

`parse_cluster` reads the document of a cluster file; every refusal names the field's path.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from simulator.config.fault_config import faults_of
from simulator.config.node_hardware import Hardware, hardware_of, host_of, server_of
from simulator.config.parsing import BadCluster, Fields
from simulator.faults import FaultModel, Spot
from simulator.hardware.gpus import find_gpu
from simulator.hardware.hosts import usual_host
from simulator.hardware.links import find_link
from simulator.hardware.networks import Fabric, find_network
from simulator.machine.pools import Pool, pool_of

__all__ = [
    "BadCluster",
    "ClusterModel",
    "Delays",
    "NodeModel",
    "grid",
    "parse_cluster",
]

# Far above the largest existing clusters, and small enough to build in a second.
NODES_MAX = 100_000
GPUS_PER_NODE_MAX = 1024
# How long a spot node usually stays.
SPOT_MEAN_S = 86_400.0
RESOURCE_MAX = 1_000_000
# The node label of the domain at each level, and the levels that have their own fields.
LEVEL_LABEL = "topology.muster.dev/"
OUTER_LEVELS = ("zone", "block")


@dataclass(frozen=True, slots=True)
class NodeModel:
    name: str
    rack: str = ""
    gpus: int = 8
    gpu_type: str = ""
    gpu_memory_mib: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    # None for a GPU that is not in the catalogue; the node then runs only jobs of fixed duration.
    hardware: Hardware | None = field(default=None, compare=False)
    # What ranks may request besides GPUs, if stated: thousandths of cores, bytes of memory.
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def all_labels(self) -> dict[str, str]:
        """Its labels, with those that Kubernetes adds: host name, domains and GPU."""
        usual = {"kubernetes.io/hostname": self.name}
        if self.rack:
            usual[LEVEL_LABEL + "rack"] = self.rack
        if self.gpus and self.gpu_type:
            usual["nvidia.com/gpu.product"] = self.gpu_type
        zone = self.labels.get(LEVEL_LABEL + "zone")
        if zone:
            usual["topology.kubernetes.io/zone"] = zone
        return {**usual, **self.labels}

    @property
    def flavor(self) -> str:
        """The scheduler's name for its GPUs."""
        return self.labels.get("flavor", self.gpu_type)

    @property
    def device_memory_mib(self) -> int:
        """The memory of each of its devices; 0 if unknown."""
        gpu = self.hardware.gpu if self.hardware is not None else None
        return self.gpu_memory_mib or int((gpu.memory_gb if gpu else 0.0) * 1024)


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a rank takes to start (image, process) and to stop (the grace period).

    A random time of up to `start_jitter_s` is added to the start of each rank.
    """

    start_s: float = 5.0
    start_jitter_s: float = 0.0
    stop_s: float = 2.0


@dataclass(frozen=True, slots=True)
class ClusterModel:
    nodes: tuple[NodeModel, ...]
    delays: Delays = Delays()
    faults: FaultModel = field(default_factory=FaultModel)
    seed: int = 0
    fabric: Fabric = field(default_factory=Fabric)
    pools: tuple[Pool, ...] = ()
    # The document it was read from, as JSON, to create it again; empty for a model built in code.
    document: str = field(default="", compare=False)

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def extended_resources(self) -> dict[str, int]:
        """The largest amount on a node of each resource besides CPUs, memory and GPUs."""
        largest: dict[str, int] = {}
        for resources in {id(node.resources): node.resources for node in self.nodes}.values():
            for name, amount in resources.items():
                if "/" in name:
                    largest[name] = max(amount, largest.get(name, 0))
        return largest


def grid(
    racks: int = 2, nodes_per_rack: int = 4, gpus: int = 8, *, delays: Delays | None = None
) -> ClusterModel:
    """Equal nodes in equal racks: `rack-0-0`, `rack-0-1` and so on."""
    gpu = find_gpu("V100-32")
    hardware = Hardware(gpu, find_link(gpu.link), find_network("25GbE"), usual_host("V100", 8))
    nodes = tuple(
        NodeModel(f"rack-{r}-{n}", f"rack-{r}", gpus, "V100", 32768, hardware=hardware)
        for r in range(racks)
        for n in range(nodes_per_rack)
    )
    return ClusterModel(nodes, delays or Delays())


def cluster_from(document: str) -> ClusterModel:
    """The cluster that a model's `document` describes: the default one if it names no nodes."""
    read = json.loads(document)
    if isinstance(read, dict) and not read.keys() & {"racks", "nodes"}:
        model = replace(grid(), seed=int(read.get("seed", 0)))
    else:
        model = parse_cluster(read)
    return replace(model, document=document)


def documented(
    model: ClusterModel, document: object = None, seed: int | None = None
) -> ClusterModel:
    """The model with the document it can be made from again, and with another seed if one is given."""
    model = model if seed is None else replace(model, seed=seed)
    read = dict(document) if isinstance(document, dict) else {}
    return replace(model, document=json.dumps(read | {"seed": model.seed}, sort_keys=True))


def parse_cluster(document: object) -> ClusterModel:
    """The cluster that an already loaded document describes, or BadCluster."""
    top = Fields(document, "")
    nodes = _nodes(top)
    delays = Delays()
    model = ClusterModel(
        nodes=nodes,
        delays=Delays(
            start_s=top.number("start_delay_s", delays.start_s),
            start_jitter_s=top.number("start_jitter_s", delays.start_jitter_s),
            stop_s=top.number("stop_delay_s", delays.stop_s),
        ),
        faults=faults_of(top.record("faults"), nodes),
        seed=top.integer("seed", 0, least=0, most=2**63 - 1),
        fabric=_fabric(top.record("fabric"), nodes),
        pools=_pools(top, nodes),
    )
    top.done()
    return _with_spot_pools(model)


def _nodes(top: Fields) -> tuple[NodeModel, ...]:
    racks = chain.from_iterable(_rack(rack) for rack in top.records("racks", NODES_MAX))
    alone = (_node(node) for node in top.records("nodes", NODES_MAX))
    nodes = tuple(islice(chain(racks, alone), NODES_MAX + 1))
    if not nodes:
        raise BadCluster("nodes", "is empty, and so is racks: a cluster needs a node")
    if len(nodes) > NODES_MAX:
        raise BadCluster("nodes", f"are too many with those of the racks: at most {NODES_MAX}")
    seen = set[str]()
    for node in nodes:
        if node.name in seen:
            raise BadCluster("nodes", f"has the name {node.name} twice, or a rack gives it too")
        seen.add(node.name)
    return nodes


def _rack(fields: Fields) -> Iterator[NodeModel]:
    """Return the nodes of a rack, which are equal and numbered from 0."""
    rack = fields.label("name")
    count = fields.integer("nodes", 1, least=1, most=NODES_MAX)
    if len(f"{rack}-{count - 1}") > 63:
        raise BadCluster(fields.at("name"), "is too long for the names of its nodes")
    node = _kind_of_node(fields, name="", rack=rack)
    fields.done()
    return (replace(node, name=f"{rack}-{i}") for i in range(count))


def _node(fields: Fields) -> NodeModel:
    name = fields.label("name")
    rack = fields.label("rack") if fields.has("rack") else ""
    node = _kind_of_node(fields, name=name, rack=rack)
    fields.done()
    return node


def _kind_of_node(fields: Fields, *, name: str, rack: str) -> NodeModel:
    server = server_of(fields)
    gpus = fields.integer("gpus", server.gpus if server else 8, least=0, most=GPUS_PER_NODE_MAX)
    gpu_type = fields.text("gpu_type", server.gpu if server else "")
    memory = fields.integer("gpu_memory_mib", 0, least=0, most=2**31)
    labels = {**_domains(fields), **fields.texts("labels")}
    host, resources = host_of(fields, server, gpu_type, gpus)
    hardware = hardware_of(fields, server, gpus, gpu_type, host)
    if not memory and gpus and server is not None and hardware is not None and hardware.gpu:
        memory = int(hardware.gpu.memory_gb * 1024)
    resources |= _extended(fields)
    return NodeModel(name, rack, gpus, gpu_type, memory, labels, hardware, resources)


def _domains(fields: Fields) -> dict[str, str]:
    """Return the domains above the rack, as labels of its nodes."""
    given = [level for level in OUTER_LEVELS if fields.has(level)]
    return {LEVEL_LABEL + level: fields.label(level) for level in given}


def _extended(fields: Fields) -> dict[str, int]:
    """Return the extended resources that ranks may request, by their Kubernetes names."""
    resources = fields.amounts("resources", most=RESOURCE_MAX)
    for name in resources:
        if "/" not in name or name in ("nvidia.com/gpu", "amd.com/gpu"):
            problem = (
                f"{name!r} is none that is declared here: cpus, memory_gb and gpus have fields"
            )
            raise BadCluster(fields.at("resources"), f"{problem}; others are named as rdma/hca is")
    return resources


def _with_spot_pools(model: ClusterModel) -> ClusterModel:
    """Return the model; unless the file configures spot faults, its spot pools get the default ones."""
    racks = tuple(pool.rack for pool in model.pools if pool.spot)
    if not racks or model.faults.spot is not None:
        return model
    return replace(model, faults=replace(model.faults, spot=Spot(SPOT_MEAN_S, racks=racks)))


def _fabric(fields: Fields, nodes: tuple[NodeModel, ...]) -> Fabric:
    """Return the fabric; a rack is a leaf unless the file sets the nodes of a leaf."""
    racks = Counter(node.rack for node in nodes)
    fabric = Fabric(
        nodes_per_leaf=fields.integer(
            "nodes_per_leaf", max(racks.values()), least=1, most=NODES_MAX
        ),
        oversubscription=fields.number("oversubscription", 1.0, least=0.1),
        hop_us=fields.number("hop_us", 0.6),
        port_buffer_kb=fields.number("port_buffer_kb", Fabric().port_buffer_kb),
    )
    fields.done()
    return fabric


def _pools(top: Fields, nodes: tuple[NodeModel, ...]) -> tuple[Pool, ...]:
    """Return the pools: racks whose nodes are rented on demand."""
    racks = {node.rack for node in nodes}
    return tuple(pool_of(fields, racks) for fields in top.records("pools", 1000))
