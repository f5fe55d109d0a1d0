"""Samples on their way to the GPU: storage, preparation on the CPU, the copy to the device.

The stages work side by side, so the slowest sets the rate; the cache answers for what it holds;
prefetching hides variance only, not a stage that is too slow.
"""

from typing import NamedTuple

from simulator.hardware.hosts import Host
from simulator.training.models import Model

# Over PCIe 3 from pinned memory, for one GPU, as NCCL counts it.
TO_DEVICE_GBS = 12.0
# From memory that may be swapped out, the driver copies piece by piece into pinned memory of its own
# first, and the slower of both remains. One thread copies 5.6 GB/s on Broadwell (25 MB in 4.5 ms:
# stackoverflow.com/questions/39260020), 6.2 and 5.9 on the two generations of Xeon E5 before it
# (community.intel.com, "Single-threaded memory performance for dual socket Xeon E5-* systems").
HOST_COPY_GBS = 6.0


class Input(NamedTuple):
    """Samples a second that each stage of one node can deliver, and which one limits."""

    storage: float
    prepare: float
    to_device: float

    @property
    def rate(self) -> float:
        return min(self)

    @property
    def limit(self) -> str:
        return min(zip(self, ("storage", "CPU", "host to device"), strict=True))[1]


def input_rates(model: Model, host: Host, gpus: int, *, cached: float = 0.0) -> Input:
    """What one node delivers to its GPUs. `cached` is the share of reads that memory answers."""
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
    """How long a process copies samples to its GPUs, one after the other, while they wait.

    Frameworks that prefetch to the device do it beside the step before; others write into arrays
    that the step before still reads, and so after it.
    """
    rate = TO_DEVICE_GBS if pinned else min(TO_DEVICE_GBS, HOST_COPY_GBS)
    return samples * model.device_bytes / (rate * 1e9)


def cached_share(dataset_bytes: float, host: Host) -> float:
    """What of a data set stays in the memory of a node after the first epoch."""
    return min(1.0, 0.8 * host.memory_gb * 1e9 / dataset_bytes) if dataset_bytes > 0 else 1.0


def stall_share(load: float, variation: float, prefetched: int) -> float:
    """How often the device finds no batch ready.

    `load` is demand over supply, `variation` the coefficient of variation of a batch's time. The
    backlog of a queue near its limit falls geometrically (heavy-traffic form), and the prefetch
    buffer is what it must exceed.
    """
    if load >= 1.0:
        return 1.0 - 1.0 / load
    if variation <= 0.0 or load <= 0.0:
        return 0.0
    decay = 2.0 * (1.0 - load) / (variation * variation * (1.0 + load))
    return float((1.0 / (1.0 + decay)) ** max(prefetched, 0) * load * variation * (1.0 - load))
