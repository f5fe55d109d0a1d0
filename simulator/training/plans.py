"""The plan of an exchange: what a step moves and when, for any scheme.

A `Plan` holds the inputs of `step.py`: the lines of `buckets.Exposure`, the time of a byte at full
bandwidth, what must come before the forward pass or after the step, and how many bytes leave each
node, which is the load on the links that other gangs share.
"""

from dataclasses import dataclass
from enum import StrEnum

from simulator.collectives.buckets import MIB, Exposure, Fusion

# Bytes and share of the backward pass of each layer's gradient, last layer first.
Gradients = tuple[tuple[float, float], ...]
# The gradient is cut into about this many buckets: fine enough that no single one dominates.
PIECES = 16


class Scheme(StrEnum):
    """A way to exchange gradients."""

    # NCCL's all-reduce, with the algorithm that it chooses.
    ALL_REDUCE = "ring"
    # All-gather twice and reduce-scatter once (ZeRO-3, FSDP).
    SHARDED = "fsdp"
    # All-reduce on the CPUs over MPI.
    MPI = "mpi_cpu"
    # Parameter servers on the nodes: every GPU is a client; or each node sums first; or, in
    # addition, tensors are split over servers.
    PS_GPU = "ps_gpu"
    PS_NODE = "ps_node"
    PS_SPLIT = "ps_node_split"
    # Every GPU is a client at its own pace, with stale parameters and without waiting.
    PS_ASYNC = "ps_async"
    # Inside one node: variables in host memory, or spread over the GPUs.
    PS_HOST = "ps_cpu_local"
    PS_DEVICES = "ps_gpu_local"
    # Reduce-scatter inside nodes, all-reduce across them, all-gather inside; and the same on a
    # grid.
    HIERARCHICAL = "hierarchical"
    TORUS = "torus"
    # Signs only, summed stripe by stripe.
    ONE_BIT = "1bit"
    NONE = "none"


# Schemes that keep the parameters in servers.
SERVED = frozenset({Scheme.PS_GPU, Scheme.PS_NODE, Scheme.PS_SPLIT, Scheme.PS_ASYNC})

# The schemes that a user may choose, by name.
SCHEMES = {
    "ring": Scheme.ALL_REDUCE,
    "hierarchical": Scheme.HIERARCHICAL,
    "torus": Scheme.TORUS,
    "ps": Scheme.PS_GPU,
    "ps-node": Scheme.PS_NODE,
    "ps-split": Scheme.PS_SPLIT,
    "ps-async": Scheme.PS_ASYNC,
    "fsdp": Scheme.SHARDED,
    "mpi": Scheme.MPI,
}


@dataclass(frozen=True, slots=True)
class Software:
    """What the framework does with gradients besides moving them."""

    # Whether the exchange overlaps with the backward pass.
    overlap: bool = True
    # Added once to every step that exchanges anything.
    cycle_s: float = 0.0
    # NCCL 1 built a single ring.
    single_ring: bool = False
    servers: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The exchange of one step at full bandwidth. Seconds per byte are for bytes of the gradient."""

    exposure: Exposure
    intra_s_per_byte: float = 0.0
    net_s_per_byte: float = 0.0
    # Parameters that the forward pass waits for; their transfer overlaps with it as far as it
    # lasts.
    fetch_net_s: float = 0.0
    # What is always added to the step.
    tail_s: float = 0.0
    tail_net_s: float = 0.0
    overlap: bool = True
    # Whether the work inside nodes and between them runs in turn instead of at the same time.
    in_turn: bool = False
    # Bytes that leave (and enter) each node in a step.
    node_bytes: float = 0.0
    # Bytes that leave each node with parameter servers, if those nodes are known.
    server_bytes: float = 0.0

    def s_per_byte(self, share: float = 1.0) -> float:
        """Return the seconds per byte of gradient.

        `share` is the share of the bandwidth between nodes; inside nodes it is not shared.
        """
        across = self.net_s_per_byte / share
        return (
            self.intra_s_per_byte + across if self.in_turn else max(self.intra_s_per_byte, across)
        )


NOTHING = Exposure((), 0.0, 0.0)


def pieces(size: float) -> Fusion:
    """Return the fusion of a gradient: about `PIECES` buckets, more if they exceed 64 MiB."""
    cap = min(64.0 * MIB, size / PIECES)
    return Fusion(cap, cap)
