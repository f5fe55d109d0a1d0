"""The fitted constants: eight numbers for every system there is, each with a meaning.

`docs/validation.md` says on what they were fitted and how well they carry over, and lists what is
given: data sheets, published measurements of single parts that are no points of the fit, formulas.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Constants:
    # How fast a host copies what one TCP flow carries, in GB/s; copies and wire follow each other.
    tcp_copy_gbs: float = 3.809
    # What one parameter server moves each way over Ethernet, in GB/s.
    ps_server_gbs: float = 1.269
    # From the call of a NCCL collective until its kernels run, in microseconds.
    nccl_launch_us: float = 26.77
    # Measured hop latencies over those of NCCL's tuner.
    nccl_hop_factor: float = 1.248
    # One step of a collective that CPUs do over MPI, in microseconds.
    mpi_hop_us: float = 24.69
    # Share of the peak that the matrix products of large language models reach.
    gemm_share: float = 0.8158
    # How often each byte of a transformer layer's activations moves through device memory.
    activation_passes: float = 7.982
    # Launching the kernels of one layer for one micro-batch, both ways, in milliseconds.
    layer_launch_ms: float = 2.463


NAMES = tuple(field.name for field in fields(Constants))
FITTED = Constants()
