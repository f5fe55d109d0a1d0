"""The input pipeline: storage, preparation on the CPU, the copy to the device.

The stages work in parallel, so the slowest sets the rate. The cache serves the reads that it holds.
Prefetching hides variance only, not a stage that is too slow.
"""

from typing import NamedTuple

from simulator.hardware.hosts import Host
from simulator.training.models import Model

# Over PCIe 3 from pinned memory, for one GPU, as NCCL counts it.
TO_DEVICE_GBS = 12.0
# From pageable memory, the driver first copies piece by piece into pinned memory of its own, and
# the slower of both copies remains. One thread copies 5.6 GB/s on Broadwell (25 MB in 4.5 ms:
# stackoverflow.com/questions/39260020), 6.2 and 5.9 on the two generations of Xeon E5 before it
# (community.intel.com, "Single-threaded memory performance for dual socket Xeon E5-* systems").
HOST_COPY_GBS = 6.0


class Input(NamedTuple):
    """Samples per second that each stage of one node delivers, and the stage that limits."""

    storage: float
    prepare: float
    to_device: float

    @property
    def rate(self) -> float:
        """Samples per second of the slowest stage."""
        return min(self)

    @property
    def limit(self) -> str:
        """The name of the slowest stage."""
        return min(zip(self, ("storage", "CPU", "host to device"), strict=True))[1]


def input_rates(model: Model, host: Host, gpus: int, *, cached: float = 0.0) -> Input:
    """Return what one node delivers to its GPUs; `cached` is the share of reads that memory serves."""
    missed = model.sample_bytes * (1.0 - min(cached, 1.0))
    infinite = float("inf")
    return Input(
        storage=host.storage_gbs * 1e9 / missed if missed > 0 else infinite,
        prepare=host.cpus * model.prepared_per_cpu_s,
        to_device=TO_DEVICE_GBS * 1e9 * gpus / model.device_bytes
        if model.device_bytes > 0
        else infinite,
    )


def hand_over_s(model: Model, samples: float, *, pinned: bool) -> float:
    """Return the seconds in which a process copies samples to its GPUs, in turn, while they wait.

    Frameworks that prefetch to the device copy during the previous step; others write into arrays
    that the previous step still reads, and so copy after it.
    """
    rate = TO_DEVICE_GBS if pinned else min(TO_DEVICE_GBS, HOST_COPY_GBS)
    return samples * model.device_bytes / (rate * 1e9)
