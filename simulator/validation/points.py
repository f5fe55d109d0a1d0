"""The points of a file of measurements, as values; an error in one point affects only that point."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simulator.hardware.gpus import Gpu, find_gpu
from simulator.hardware.hosts import usual_host
from simulator.hardware.links import find_link
from simulator.hardware.names import UnknownHardware
from simulator.hardware.networks import Network, Transport, find_network
from simulator.training.placement import Place

KINDS = (
    "train",
    "train_efficiency",
    "allreduce",
    "allreduce_peak_busbw",
    "llm_iter",
    "mfu",
    "time_to_train",
    "type_ratio",
)
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
# The upper limit of any count in a file of measurements.
COUNT_MAX = 1_000_000_000


class BadPoint(ValueError):
    """This point cannot be predicted; the message explains why."""


@dataclass(frozen=True)
class Point:
    """A mapping of the file with typed access; methods raise BadPoint with the name of the field."""

    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.fields.get("id") or self.fields.get("series") or "?")

    @property
    def kind(self) -> str:
        kind = self.text("kind")
        if kind not in KINDS:
            raise BadPoint(f"kind is {kind!r}; known are {', '.join(KINDS)}")
        return kind

    @cached_property
    def place(self) -> Place:
        return _resolve_place(self)

    @property
    def is_baseline(self) -> bool:
        return self.fields.get("role") == "baseline"

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string that is not empty, or `default` if it is missing."""
        value = self.fields.get(name)
        if isinstance(value, str) and value:
            return value
        if default is None or value not in (None, ""):
            raise BadPoint(f"{name} is missing or no text")
        return default

    def precision(self, default: str) -> str:
        """Return one of `PRECISIONS`, or `default` if it is missing."""
        name = self.text("precision", default)
        if name not in PRECISIONS:
            raise BadPoint(f"precision is {name!r}; known are {', '.join(PRECISIONS)}")
        return name

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number, or `default` if it is missing."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadPoint(f"{name} is missing or no number")
        if value != value or abs(value) == float("inf"):
            raise BadPoint(f"{name} is not finite")
        return float(value)

    def size(self, name: str, default: float = 0.0) -> float:
        """Return a number that is not negative."""
        value = self.number(name, default)
        if value < 0.0:
            raise BadPoint(f"{name} must not be negative")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """Return a whole number from 1 to `COUNT_MAX`, or `default` if it is missing."""
        number = self.number(name, None if default is None else float(default))
        value = int(number)
        if value != number:
            raise BadPoint(f"{name} must be a whole number")
        if not 1 <= value <= COUNT_MAX:
            raise BadPoint(f"{name} must be from 1 to {COUNT_MAX:,}")
        return value


def place_of(point: Point) -> Place:
    """Return the hardware on which the measurement was made."""
    return point.place


def _resolve_place(point: Point) -> Place:
    ranks = point.count("n_gpus")
    nodes = point.count("n_nodes", 1)
    if nodes > ranks:
        raise BadPoint(f"{nodes} nodes for {ranks} GPUs")
    try:
        link = find_link(point.fields.get("intra"))
        gpu = _gpu(point, link.generation)
        network = _network(point)
    except UnknownHardware as unknown:
        raise BadPoint(str(unknown)) from None
    per_node = point.count("gpus_per_node", -(-ranks // nodes))
    if nodes > 1 and network.transport is Transport.NONE:
        raise BadPoint("several nodes, and their network is not given (net, net_gbps)")
    return Place(gpu, link, ranks, nodes, network, usual_host(gpu.name, per_node, link.name))


def _gpu(point: Point, generation: str) -> Gpu:
    """Return the GPU of a point.

    Where only bandwidth is predicted the GPU may be unknown; it then follows from the links.
    """
    try:
        return find_gpu(point.fields.get("gpu"))
    except UnknownHardware:
        if point.fields.get("kind") != "allreduce_peak_busbw":
            raise
        usual = {"volta": "V100", "ampere": "A100", "hopper": "H100", "blackwell": "B200"}
        return find_gpu(usual[generation])


def _network(point: Point) -> Network:
    return find_network(
        point.fields.get("net"),
        gbps=point.size("net_gbps") or None,
        transport=point.fields.get("transport"),
        flow_gbps_max=point.size("flow_cap_gbps") or None,
        strict=False,
    )
