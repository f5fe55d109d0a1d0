"""Gradient compression: fewer bytes on the wire, at the cost of passes over device memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compression:
    """A way to compress gradients, and its costs."""

    name: str
    # Bytes on the wire for each byte of single-precision gradient.
    ratio: float
    # How often the gradient is read or written in device memory to encode and decode it.
    passes: float
    # Selected entries cannot be summed on the way, so they are gathered instead.
    gathered: bool = False


COMPRESSIONS = {
    row.name: row
    for row in (
        Compression("none", 1.0, 0.0),
        # Two casts, each with one read of four bytes and one write of two.
        Compression("fp16", 0.5, 3.0),
        # Sign, error feedback, scale: read gradient and error, write error and bits, and back.
        # Every rank sums one stripe of all gradients and quantises it again, as Seide et al. do.
        Compression("1bit", 1.0 / 32.0, 8.0),
        # A thousandth of the entries, each with its index.
        Compression("topk", 2e-3, 10.0, gathered=True),
    )
}


def wire_bytes(size_bytes: float, how: Compression, ranks: int) -> float:
    """Return the size of the all-reduce that moves as many bytes as this compressed gradient.

    An all-gather moves (n-1) parts to each rank, an all-reduce moves 2(n-1)/n; so expressed as an
    all-reduce, gathered bytes count n/2 times.
    """
    size = size_bytes * how.ratio
    return size * ranks / 2.0 if how.gathered and ranks > 1 else size


def encode_s(size_bytes: float, how: Compression, memory_bytes_per_s: float) -> float:
    """Return the seconds to encode and decode a gradient."""
    return how.passes * size_bytes / memory_bytes_per_s
