"""Gradient buckets, exchanged while the backward pass continues (as PyTorch DDP and Horovod do).

The backward pass produces gradients from the last layer to the first. Tensors fill a bucket until
it is full, and buckets leave in order through one stream: bucket j ends at

    e_j = max(e_{j-1}, r_j) + t_j,     where r_j is when its last gradient is ready.

Unrolled, the last end is the maximum over j of r_j + t_j + ... + t_last. With t = latency + bytes /
rate each term is a straight line in 1/rate, so the whole step is the upper hull of a few lines, and
a change of bandwidth costs only a few multiplications (`Exposure.end_s`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

MIB = float(2**20)


class Fusion(NamedTuple):
    """The size at which a bucket is full, and the cost of each bucket besides its transfer."""

    bucket_bytes: float
    first_bucket_bytes: float
    # Seconds in which all ranks agree that a bucket may go; Horovod wakes once per cycle for it.
    negotiation_s: float = 0.0


class Bucket(NamedTuple):
    """Gradients that are exchanged together."""

    size_bytes: float
    # The share of the backward pass that is over when its last gradient is ready.
    ready: float


def fill(gradients: Sequence[tuple[float, float]], fusion: Fusion) -> tuple[Bucket, ...]:
    """Return the buckets for (bytes, share of the backward pass) of each layer, last layer first."""
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
    """The end time `ready * backward_s + fixed_s + size_bytes * s_per_byte`.

    `ready` is the share of the backward pass that is over before.
    """

    ready: float
    fixed_s: float
    size_bytes: float


class Exposure(NamedTuple):
    """When the exchange ends, in seconds from the begin of the backward pass."""

    lines: tuple[Line, ...]
    total_bytes: float
    total_fixed_s: float

    def end_s(self, backward_s: float, s_per_byte: float) -> float:
        """Return the end of the exchange for a backward pass of `backward_s` seconds."""
        end = 0.0
        for ready, fixed_s, size_bytes in self.lines:
            at = ready * backward_s + fixed_s + size_bytes * s_per_byte
            if at > end:
                end = at
        return end

    def busy_s(self, s_per_byte: float) -> float:
        """Return how many seconds the stream is busy in total."""
        return self.total_fixed_s + self.total_bytes * s_per_byte


def exposure(
    buckets: Sequence[Bucket], fixed_s: Callable[[float], float], negotiation_s: float = 0.0
) -> Exposure:
    """Return the lines of a list of buckets.

    `fixed_s(size)` is the cost of a transfer besides its bytes, in seconds.
    """
    lines: list[Line] = []
    fixed = size = 0.0
    for bucket in reversed(buckets):
        fixed += negotiation_s + fixed_s(bucket.size_bytes)
        size += bucket.size_bytes
        lines.append(Line(bucket.ready, fixed, size))
    return Exposure(_hull(lines), size, fixed)


def _hull(lines: list[Line]) -> tuple[Line, ...]:
    """Return the lines without those that another line covers everywhere."""
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
