"""The constants: ten numbers for every system there is, nine of them fitted, all with a meaning.

`docs/validation.md` says on what they were fitted and how well they carry over. Everything else in
the simulator is a data sheet, a published measurement of a single part, or a formula.
"""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Constants:
    # How fast a host copies what one TCP flow carries, in GB/s; copies and wire follow each other.
    tcp_copy_gbs: float = 3.852
    # How much ranks, and nodes, differ in the time of a step: standard deviation over mean. Not
    # fitted: others' fit to such measurements says 3.1 %, and tf_cnn_benchmarks prints 2.6 %.
    straggler_sigma: float = 0.031
    # What one parameter server moves each way over Ethernet, in GB/s.
    ps_server_gbs: float = 1.284
    # Share of the host's memory bandwidth that reaches the GPUs when the CPU keeps the parameters.
    host_memory_share: float = 0.5111
    # From the call of a NCCL collective until its kernels run, in microseconds.
    nccl_launch_us: float = 27.64
    # Measured hop latencies over those of NCCL's tuner.
    nccl_hop_factor: float = 1.19
    # One step of a collective that CPUs do over MPI, in microseconds.
    mpi_hop_us: float = 22.5
    # Share of the peak that the matrix products of large language models reach.
    gemm_share: float = 0.8207
    # How often each byte of a transformer layer's activations moves through device memory.
    activation_passes: float = 7.808
    # Launching the kernels of one layer for one micro-batch, both ways, in milliseconds.
    layer_launch_ms: float = 2.432


NAMES = tuple(field.name for field in fields(Constants))
FITTED = Constants()
