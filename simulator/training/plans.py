"""The plan of an exchange: what a step has to move and when, whatever the scheme.

A `Plan` holds what the step needs to know: the lines of `buckets.Exposure`, how long a byte takes
at full bandwidth, what must come before the forward pass or after the step, and how many bytes
leave each node, which is what other gangs on the same links feel.
"""

from dataclasses import dataclass
from enum import StrEnum

from simulator.collectives.buckets import MIB, Exposure, Fusion

# Bytes and share of the backward pass of each layer's gradient, last layer first.
Gradients = tuple[tuple[float, float], ...]
# The stream is kept busy in about this many pieces: fine enough that no bucket stands out.
PIECES = 16


class Scheme(StrEnum):
    # NCCL's all-reduce, as it chooses.
    ALL_REDUCE = "ring"
    # All-gather twice and reduce-scatter once (ZeRO-3, FSDP).
    SHARDED = "fsdp"
    # All-reduce on the CPUs over MPI.
    MPI = "mpi_cpu"
    # Parameter servers on the nodes: every GPU is a client; or each node sums first; or tensors
    # are split over servers besides.
    PS_GPU = "ps_gpu"
    PS_NODE = "ps_node"
    PS_SPLIT = "ps_node_split"
    # Every GPU is a client and waits for nobody: each at its own pace, on stale parameters.
    PS_ASYNC = "ps_async"
    # Inside one node: variables in host memory, or spread over the GPUs.
    PS_HOST = "ps_cpu_local"
    PS_DEVICES = "ps_gpu_local"
    # Reduce-scatter inside nodes, all-reduce across them, all-gather inside; and the same on a grid.
    HIERARCHICAL = "hierarchical"
    TORUS = "torus"
    # Signs only, summed stripe by stripe.
    ONE_BIT = "1bit"
    NONE = "none"


# Schemes that keep the parameters in servers.
SERVED = frozenset({Scheme.PS_GPU, Scheme.PS_NODE, Scheme.PS_SPLIT, Scheme.PS_ASYNC})

# What people call those that they may choose for a gang.
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

    # The exchange runs beside the backward pass.
    overlap: bool = True
    # Added once to every step that exchanges anything.
    cycle_s: float = 0.0
    # NCCL 1 built a single ring.
    single_ring: bool = False
    servers: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One step's exchange at full bandwidth. Seconds a byte are for bytes of the gradient."""

    exposure: Exposure
    intra_s_per_byte: float = 0.0
    net_s_per_byte: float = 0.0
    # Parameters that the forward pass waits for, hidden behind it as far as it lasts.
    fetch_net_s: float = 0.0
    # What is added to the step whatever else happens.
    tail_s: float = 0.0
    tail_net_s: float = 0.0
    overlap: bool = True
    # What is done inside nodes and what goes between them follow each other.
    in_turn: bool = False
    # Bytes that leave (and enter) each node in a step.
    node_bytes: float = 0.0
    # Bytes that leave each node with parameter servers, where it is known which nodes those are.
    server_bytes: float = 0.0

    def s_per_byte(self, share: float = 1.0) -> float:
        """With a share of the bandwidth between nodes; inside them nobody shares."""
        across = self.net_s_per_byte / share
        return (
            self.intra_s_per_byte + across if self.in_turn else max(self.intra_s_per_byte, across)
        )


NOTHING = Exposure((), 0.0, 0.0)


def pieces(size: float) -> Fusion:
    cap = min(64.0 * MIB, size / PIECES)
    return Fusion(cap, cap)
