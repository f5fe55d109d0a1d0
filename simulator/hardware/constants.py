"""The fitted constants: eight numbers for all systems, each with a physical meaning.

`docs/validation.md` describes the data of the fit and how well the constants carry over, and lists
the given inputs: data sheets, published measurements of single parts that are not points of the
fit, and formulas.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Constants:
    """The fitted constants, with the values of the last fit as defaults."""

    # How fast a host copies the data of one TCP flow, in GB/s; copy and wire follow each other.
    tcp_copy_gbs: float = 3.809
    # What one parameter server moves each way over Ethernet, in GB/s.
    ps_server_gbs: float = 1.269
    # From the call of an NCCL collective until its kernels run, in microseconds.
    nccl_launch_us: float = 26.77
    # Measured hop latencies over those of NCCL's tuner.
    nccl_hop_factor: float = 1.248
    # One step of a collective between CPUs over MPI, in microseconds.
    mpi_hop_us: float = 24.69
    # Share of the peak that the matrix products of large language models reach.
    gemm_share: float = 0.8158
    # How often each byte of a transformer layer's activations moves through device memory.
    activation_passes: float = 7.982
    # Launching the kernels of one layer for one micro-batch, both passes, in milliseconds.
    layer_launch_ms: float = 2.463


NAMES = tuple(field.name for field in fields(Constants))
FITTED = Constants()
