"""Gradients in buckets, exchanged while the backward pass goes on.

Backward produces gradients from the last layer to the first. Tensors fill a bucket until it is
full, and buckets leave in order through one stream: bucket j ends at

    e_j = max(e_{j-1}, r_j) + t_j,     with r_j when its last gradient is ready.

Unrolled, the last end is the largest of r_j + t_j + ... + t_last. With t = latency + bytes / rate
that is, for every j, a straight line in 1/rate; so the whole step is the upper hull of a few lines,
and what a change of bandwidth does to it costs a handful of multiplications (`Exposure.end_s`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

MIB = float(2**20)


class Fusion(NamedTuple):
    """When a bucket is full, and what each costs besides its transfer."""

    bucket_bytes: float
    first_bucket_bytes: float
    # Agreement of all ranks that a bucket may go; Horovod wakes once a cycle for it.
    negotiation_s: float = 0.0


# PyTorch's DDP; Horovod until 0.19 and from then on; MXNet and TensorFlow send tensor by tensor,
# which a bucket of four megabytes stands for.
FUSIONS = {
    "ddp": Fusion(25 * MIB, 1 * MIB),
    "horovod": Fusion(64 * MIB, 64 * MIB, 2.5e-3),
    "horovod-new": Fusion(128 * MIB, 128 * MIB, 0.5e-3),
    "tensors": Fusion(4 * MIB, 4 * MIB),
    "none": Fusion(float("inf"), float("inf")),
}


class Bucket(NamedTuple):
    size_bytes: float
    # The share of the backward pass that is over when its last gradient is ready.
    ready: float


def fill(gradients: Sequence[tuple[float, float]], fusion: Fusion) -> tuple[Bucket, ...]:
    """Buckets from (bytes, share of the backward pass) of each layer, last layer first."""
    buckets, filled, done = [], 0.0, 0.0
    cap = fusion.first_bucket_bytes
    for size_bytes, share in gradients:
        done += share
        filled += size_bytes
        if filled >= cap:
            buckets.append(Bucket(filled, min(done, 1.0)))
            filled, cap = 0.0, fusion.bucket_bytes
    if filled > 0.0:
        buckets.append(Bucket(filled, 1.0))
    return tuple(buckets)


class Line(NamedTuple):
    """`fixed_s + size_bytes * seconds per byte`, once the backward pass is `ready` along."""

    ready: float
    fixed_s: float
    size_bytes: float


class Exposure(NamedTuple):
    """When the exchange ends, counted from the begin of the backward pass."""

    lines: tuple[Line, ...]
    total_bytes: float
    total_fixed_s: float

    def end_s(self, backward_s: float, s_per_byte: float) -> float:
        end = 0.0
        for ready, fixed_s, size_bytes in self.lines:
            at = ready * backward_s + fixed_s + size_bytes * s_per_byte
            if at > end:
                end = at
        return end

    def busy_s(self, s_per_byte: float) -> float:
        """How long the stream is busy altogether."""
        return self.total_fixed_s + self.total_bytes * s_per_byte


def exposure(
    buckets: Sequence[Bucket], fixed_s: Callable[[float], float], negotiation_s: float = 0.0
) -> Exposure:
    """The lines of a bucket list; `fixed_s(size)` is what a transfer costs besides its bytes."""
    lines: list[Line] = []
    fixed = size = 0.0
    for bucket in reversed(buckets):
        fixed += negotiation_s + fixed_s(bucket.size_bytes)
        size += bucket.size_bytes
        lines.append(Line(bucket.ready, fixed, size))
    return Exposure(_hull(lines), size, fixed)


def _hull(lines: list[Line]) -> tuple[Line, ...]:
    """Without the lines that another one covers everywhere."""
    kept: list[Line] = []
    for line in lines:
        covered = any(
            other.ready >= line.ready
            and other.fixed_s >= line.fixed_s
            and other.size_bytes >= line.size_bytes
            and other != line
            for other in lines
        )
        if not covered:
            kept.append(line)
    return tuple(kept)
