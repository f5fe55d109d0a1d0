"""A cluster as values: racks of nodes with GPUs, their delays and their faults.

`parse_cluster` reads the document of a cluster file; every refusal names the field's path.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice

from simulator.faults import Fault, FaultKind, FaultModel

# Far above the largest clusters there are, and small enough to build in a second.
NODES_MAX = 100_000
GPUS_PER_NODE_MAX = 1024
SCRIPT_MAX = 100_000
LABELS_MAX = 64
TEXT_MAX = 253
# Thirty thousand years in seconds.
NUMBER_MAX = 1e12

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class BadCluster(ValueError):
    """The cluster file cannot be used; `path` names the field, and `problem` what is wrong."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path or 'the document'}: {self.problem}"


@dataclass(frozen=True, slots=True)
class NodeModel:
    name: str
    rack: str = ""
    gpus: int = 8
    gpu_type: str = ""
    gpu_memory_mib: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delays:
    """How long a rank takes to come up (image, process) and to go away (the grace period).

    Jitter adds to the start of each rank between nothing and `start_jitter_s`.
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

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


def grid(
    racks: int = 2, nodes_per_rack: int = 4, gpus: int = 8, *, delays: Delays | None = None
) -> ClusterModel:
    """Equal nodes in equal racks: `rack-0-0`, `rack-0-1` and so on."""
    nodes = tuple(
        NodeModel(f"rack-{r}-{n}", f"rack-{r}", gpus, gpu_type="V100", gpu_memory_mib=32768)
        for r in range(racks)
        for n in range(nodes_per_rack)
    )
    return ClusterModel(nodes, delays or Delays())


def parse_cluster(document: object) -> ClusterModel:
    """The cluster that an already loaded document describes, or BadCluster."""
    top = _Fields(document, "")
    nodes = _nodes(top)
    delays = Delays()
    model = ClusterModel(
        nodes=nodes,
        delays=Delays(
            start_s=top.number("start_delay_s", delays.start_s),
            start_jitter_s=top.number("start_jitter_s", delays.start_jitter_s),
            stop_s=top.number("stop_delay_s", delays.stop_s),
        ),
        faults=_faults(top.record("faults"), {node.name for node in nodes}),
        seed=top.integer("seed", 0, least=0, most=2**63 - 1),
    )
    top.done()
    return model


def _nodes(top: "_Fields") -> tuple[NodeModel, ...]:
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


def _rack(fields: "_Fields") -> Iterator[NodeModel]:
    """The nodes of a rack: alike, and counted from 0."""
    rack = fields.label("name")
    count = fields.integer("nodes", 1, least=1, most=NODES_MAX)
    if len(f"{rack}-{count - 1}") > 63:
        raise BadCluster(fields.at("name"), "is too long for the names of its nodes")
    gpus, gpu_type, memory, labels = _hardware(fields)
    fields.done()
    return (NodeModel(f"{rack}-{i}", rack, gpus, gpu_type, memory, labels) for i in range(count))


def _node(fields: "_Fields") -> NodeModel:
    name = fields.label("name")
    rack = fields.label("rack") if fields.has("rack") else ""
    gpus, gpu_type, memory, labels = _hardware(fields)
    fields.done()
    return NodeModel(name, rack, gpus, gpu_type, memory, labels)


def _hardware(fields: "_Fields") -> tuple[int, str, int, Mapping[str, str]]:
    return (
        fields.integer("gpus", 8, least=0, most=GPUS_PER_NODE_MAX),
        fields.text("gpu_type", ""),
        fields.integer("gpu_memory_mib", 0, least=0, most=2**31),
        fields.texts("labels"),
    )


def _faults(fields: "_Fields", names: set[str]) -> FaultModel:
    default = FaultModel()
    chance = fields.has("node_mtbf_s")
    model = FaultModel(
        # Below a second, a model would do nothing but crash nodes.
        node_mtbf_s=fields.number("node_mtbf_s", least=1.0) if chance else None,
        node_repair_s=fields.number("node_repair_s", default.node_repair_s, least=1.0),
        script=tuple(_fault(f, names) for f in fields.records("script", SCRIPT_MAX)),
    )
    fields.done()
    return model


def _fault(fields: "_Fields", names: set[str]) -> Fault:
    node = fields.label("node")
    if node not in names:
        raise BadCluster(fields.at("node"), f"names {node}, which is no node of this cluster")
    kind = fields.text("kind", FaultKind.CRASH)
    if kind not in set(FaultKind):
        raise BadCluster(fields.at("kind"), f"must be one of {', '.join(FaultKind)}")
    fault = Fault(
        at_s=fields.number("at_s"),
        node=node,
        repair_s=fields.number("repair_s") if fields.has("repair_s") else None,
        kind=FaultKind(kind),
    )
    fields.done()
    return fault


class _Fields:
    """A mapping of the document whose fields are taken one by one; `done` refuses what is left."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise BadCluster(path, "must be a mapping")
        for name in value:
            if not isinstance(name, str):
                raise BadCluster(path, f"has a field that is not named by a string: {name!r}")
        self._left: dict[str, object] = dict(value)
        self._path = path

    def at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        return self._left.get(name) is not None

    def done(self) -> None:
        for name in self._left:
            raise BadCluster(self.at(name), "is not a field that is known here")

    def number(self, name: str, default: float | None = None, *, least: float = 0.0) -> float:
        """Without a default the field must be there."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadCluster(self.at(name), "must be a number")
        if not least <= value <= NUMBER_MAX:
            raise BadCluster(self.at(name), f"must be from {least:g} to {NUMBER_MAX:g}")
        return float(value)

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadCluster(self.at(name), "must be a whole number")
        if not least <= value <= most:
            raise BadCluster(self.at(name), f"must be from {least} to {most}")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._take(name, default)
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise BadCluster(self.at(name), f"must be a string, at most {TEXT_MAX} long")
        return value

    def label(self, name: str) -> str:
        value = self.text(name)
        if _DNS_LABEL.fullmatch(value) is None:
            raise BadCluster(
                self.at(name), "must be a DNS label: at most 63 of a-z, 0-9 and, inside, -"
            )
        return value

    def texts(self, name: str) -> dict[str, str]:
        fields = self.record(name)
        if len(fields._left) > LABELS_MAX:
            raise BadCluster(self.at(name), f"has more than {LABELS_MAX} entries")
        return {key: fields.text(key) for key in list(fields._left)}

    def record(self, name: str) -> "_Fields":
        return _Fields(self._take(name, {}), self.at(name))

    def records(self, name: str, most: int) -> "list[_Fields]":
        value = self._take(name, [])
        if not isinstance(value, list):
            raise BadCluster(self.at(name), "must be a list")
        if len(value) > most:
            raise BadCluster(self.at(name), f"has more than {most} entries")
        return [_Fields(entry, f"{self.at(name)}[{i}]") for i, entry in enumerate(value)]

    def _take(self, name: str, default: object) -> object:
        """A field left empty in YAML counts as left out."""
        value = self._left.pop(name, None)
        if value is not None:
            return value
        if default is None:
            raise BadCluster(self.at(name), "is missing")
        return default
