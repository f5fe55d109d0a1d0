"""NICs, transports and fabrics: the bandwidth between nodes.

A transport determines the share of the line rate that software gets, the latency of a message, and
the limit of one flow. RDMA figures are NVIDIA's own (a 400 Gb/s NIC gives 48 GB/s); those of TCP
are measurements of 2017 to 2019, and the rate at which a host copies for one flow is fitted
(`Constants`).
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from simulator.hardware.names import UnknownHardware, words

BITS = 8.0


class Transport(StrEnum):
    """The protocol by which nodes exchange data."""

    NONE = "none"
    TCP = "tcp"
    # gRPC over TCP, as TensorFlow's parameter servers use it.
    GRPC = "tcp_grpc"
    RDMA = "rdma"


@dataclass(frozen=True, slots=True)
class Network:
    """All NICs of a node together, and their transport."""

    name: str = "none"
    transport: Transport = Transport.NONE
    # Line rate of all NICs of a node together.
    gbps: float = 0.0
    nics: int = 1
    # The limit of one flow in Gb/s; clouds set such limits.
    flow_gbps_max: float = float("inf")
    # Whether no rate was published, so that a usual one was taken.
    assumed: bool = False

    @property
    def line_gbs(self) -> float:
        """The line rate in GB/s."""
        return self.gbps / BITS

    @property
    def ordered(self) -> bool:
        """Whether bytes arrive in order.

        EFA delivers out of order, which disables the NCCL protocols that watch for the last byte.
        """
        return "efa" not in self.name

    @property
    def latency_us(self) -> float:
        """The latency that the network's plugin reports to NCCL, in microseconds.

        It adds to NCCL's own table, which is that of InfiniBand. EFA's plugin reports 35 us on
        instances with its third and fourth version and 75 before (aws-ofi-nccl,
        src/platform-aws.cpp); InfiniBand, RoCE and sockets report nothing.
        """
        if "efa" not in self.name:
            return 0.0
        return 35.0 if re.search(r"efa ?v?[34]", self.name) else 75.0

    @property
    def large_packets(self) -> bool:
        """Whether IP has packets of 64 kB, as over HPC networks, so that interrupts cost little."""
        return "aries" in self.name


@dataclass(frozen=True, slots=True)
class Fabric:
    """Leaves under a spine. Traffic between leaves shares `1/oversubscription` of the NICs' sum."""

    nodes_per_leaf: int = 8
    oversubscription: float = 1.0
    # Through one switch, in microseconds.
    hop_us: float = 0.6
    # The buffer of one switch port; shallow switches have about this much.
    port_buffer_kb: float = 1000.0


# Line rates in Gb/s by the names of NICs and services.
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
# Rates for networks without a published one. EC2's class High is not a figure; the largest
# instances of it (*.4xlarge of its time) moved 2 Gb/s by iperf
# (stackoverflow.com/questions/18507405), which is what TCP gets of 2.5.
_UNPUBLISHED = {Transport.RDMA: 100.0, Transport.TCP: 10.0, Transport.GRPC: 10.0}
_EC2_HIGH_GBPS = 2.5
_RDMA = re.compile(r"roce|infiniband|\bib\b|rdma|efa|omni|\bopa\b|qdr|fdr|edr|hdr|ndr|xdr")
# Words of a network's name that add nothing to the tables above.
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
    """Return the transport of a name; NONE for an empty one; raise UnknownHardware for others."""
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
    """Return the network of a name such as `8x200Gb HDR IB` or `25GbE`.

    The other arguments override what the name states. Raise UnknownHardware for an unknown word
    outside of brackets, or a network without a known rate. Without `strict`, unknown words are
    ignored: published measurements describe networks in prose.
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
    match = _RATE.search(text)
    return float(match[1]) if match else 0.0
