"""NICs, transports and fabrics: what one node can send to the others.

A transport says which share of the line software gets, how long a message is under way, and how
much one flow may carry. RDMA figures are NVIDIA's own (a 400 Gb/s NIC gives 48 GB/s); those of TCP
are measured ones of 2017 to 2019, and how fast a host copies for one flow is fitted (`Constants`).
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from simulator.hardware.names import UnknownHardware, words

BITS = 8.0


class Transport(StrEnum):
    NONE = "none"
    TCP = "tcp"
    # gRPC over TCP, as TensorFlow's parameter servers use it.
    GRPC = "tcp_grpc"
    RDMA = "rdma"


@dataclass(frozen=True, slots=True)
class Network:
    """What all NICs of a node give together, and by which transport."""

    name: str = "none"
    transport: Transport = Transport.NONE
    # Line rate of all NICs of a node together.
    gbps: float = 0.0
    nics: int = 1
    # One flow carries no more than this, in Gb/s; clouds set such limits.
    flow_gbps_max: float = float("inf")
    # Nothing was published about the rate, so a usual one was taken.
    assumed: bool = False

    @property
    def line_gbs(self) -> float:
        return self.gbps / BITS

    @property
    def ordered(self) -> bool:
        """EFA delivers out of order, so NCCL's protocols that watch for the last byte are off."""
        return "efa" not in self.name

    @property
    def latency_us(self) -> float:
        """What the network says of itself to NCCL, whose own table is that of InfiniBand.

        EFA's plugin says 35 us on instances with its third and fourth version and 75 before
        (aws-ofi-nccl, src/platform-aws.cpp); InfiniBand, RoCE and sockets say nothing.
        """
        if "efa" not in self.name:
            return 0.0
        return 35.0 if re.search(r"efa ?v?[34]", self.name) else 75.0

    @property
    def large_packets(self) -> bool:
        """IP over an HPC network has packets of 64 kB, and an interrupt for each costs little."""
        return "aries" in self.name


@dataclass(frozen=True, slots=True)
class Fabric:
    """Leaves under a spine. Traffic between leaves shares `1/oversubscription` of the NICs' sum."""

    nodes_per_leaf: int = 8
    oversubscription: float = 1.0
    # Through one switch, in microseconds.
    hop_us: float = 0.6
    # What one port of a switch holds when more arrives than leaves; shallow ones hold about this.
    port_buffer_kb: float = 1000.0


# Line rates in Gb/s by the names that NICs and services go by.
RATES_GBPS = {
    "1gbe": 1.0,
    "10gbe": 10.0,
    "20gb": 20.0,
    "25gbe": 25.0,
    "40gbe": 40.0,
    "50gbe": 50.0,
    "100gbe": 100.0,
    "200gbe": 200.0,
    "400gbe": 400.0,
    "800gbe": 800.0,
    "qdr": 32.0,
    "fdr": 54.5,
    "edr": 100.0,
    "hdr": 200.0,
    "ndr": 400.0,
    "xdr": 800.0,
    "opa": 100.0,
    "omni path": 100.0,
    "aries": 80.0,
    "efa": 100.0,
    "efav2": 100.0,
    "efav3": 200.0,
    "efav4": 400.0,
}
# What is taken where nothing was published. EC2's class High is no figure; the largest instances of
# it (*.4xlarge of its time) moved 2 Gb/s by iperf (stackoverflow.com/questions/18507405), which is
# what TCP gets of 2.5.
_UNPUBLISHED = {Transport.RDMA: 100.0, Transport.TCP: 10.0, Transport.GRPC: 10.0}
_EC2_HIGH_GBPS = 2.5
_RDMA = re.compile(r"roce|infiniband|\bib\b|rdma|efa|omni|\bopa\b|qdr|fdr|edr|hdr|ndr|xdr")
# Words of a network's name that say nothing more than those of the tables above.
_WORDS = frozenset(
    [
        "b",
        "s",
        "a",
        "per",
        "gb",
        "gbe",
        "gbs",
        "gbps",
        "gbit",
        "ethernet",
        "eth",
        "infiniband",
        "ib",
        "roce",
        "rocev2",
        "rdma",
        "tcp",
        "grpc",
        "verbs",
        "socket",
        "sockets",
        "ip",
        "omni",
        "path",
        "cray",
        "ec2",
        "high",
        "unspecified",
        "nic",
        "nics",
        "node",
        "v2",
        "v3",
        "v4",
    ]
)
_FIGURE = re.compile(r"(\d+x)?\d+(\.\d+)?(x|g|gb|gbe|gbps|gbit)?")
_REMARK = re.compile(r"\([^)]*\)")
_COUNT = re.compile(r"^(\d+) ?x ?")
_RATE = re.compile(r"(\d+(?:\.\d+)?) ?g(?:b|bps|bit|be)?\b")


def find_transport(name: object) -> Transport:
    if name is None or name == "":
        return Transport.NONE
    text = words(str(name)).replace(" ", "_")
    for transport in Transport:
        if text == transport.value:
            return transport
    if "grpc" in text:
        return Transport.GRPC
    if _RDMA.search(text.replace("_", " ")) or text == "verbs":
        return Transport.RDMA
    if text in ("tcp", "socket", "sockets", "ethernet", "ip"):
        return Transport.TCP
    raise UnknownHardware("transport", name, [t.value for t in Transport])


def find_network(
    name: object,
    *,
    gbps: float | None = None,
    transport: object = None,
    flow_gbps_max: float | None = None,
    strict: bool = True,
) -> Network:
    """A network from a name such as `8x200Gb HDR IB` or `25GbE`; what is said besides it wins.

    A word that is not known is UnknownHardware, except in a remark in brackets, and unless `strict`
    is off, as for published measurements, which are told in prose.
    """
    text = words(name) if isinstance(name, str) else ""
    kind = find_transport(transport)
    if not text and not gbps:
        return Network()
    if str(name).strip().startswith("-"):
        raise UnknownHardware("network", name, list(RATES_GBPS))
    if strict and isinstance(name, str):
        _refuse_unknown_words(name)
    if kind is Transport.NONE:
        kind = Transport.RDMA if _RDMA.search(text) else Transport.TCP
    count = _COUNT.match(text)
    nics = int(count[1]) if count else 1
    rest = text[count.end() :] if count else text
    rate = gbps if gbps else _rate_gbps(rest) * nics
    network = Network(text or f"{gbps:g}gb", kind, rate, nics, flow_gbps_max or float("inf"))
    if rate:
        return network
    if "unspecified" in text or "high" in text:
        usual = _EC2_HIGH_GBPS if "high" in text else _UNPUBLISHED[kind]
        return replace(network, gbps=usual, assumed=True)
    raise UnknownHardware("network", name, list(RATES_GBPS))


def _refuse_unknown_words(name: str) -> None:
    known = _WORDS.union(*(rate.split() for rate in RATES_GBPS))
    for word in words(_REMARK.sub(" ", name)).split():
        if word not in known and _FIGURE.fullmatch(word) is None:
            raise UnknownHardware("network", name, list(RATES_GBPS), word=word)


def _rate_gbps(text: str) -> float:
    for word, rate in RATES_GBPS.items():
        if re.search(rf"\b{word}\b", text):
            return rate
    said = _RATE.search(text)
    return float(said[1]) if said else 0.0
