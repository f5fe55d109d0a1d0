"""Matrix products on a GPU: how much longer small ones take than their arithmetic.

A product is cut into tiles, each computed by one multiprocessor. A tile at the edge costs as much
as a whole one, and a last wave of tiles that does not fill the GPU costs as much as a full one
(tile and wave quantisation in NVIDIA's "Matrix Multiplication Background User's Guide").
"""

from math import ceil, sqrt

# The tile of large single-precision products.
TILE = 128


def padding(rows: float, columns: float, sms: int) -> float:
    """Return the time of a `rows` x `columns` product as a multiple of the time without padding."""
    down, across = ceil(rows / TILE), ceil(columns / TILE)
    waves = ceil(down * across / sms)
    return waves * sms * TILE * TILE / (rows * columns)


def dense_s(params: float, rows: float, layers: int, sms: int, flops: float) -> float:
    """Return the seconds of both passes of `rows` rows through equal square layers.

    `flops` is the rate that large products reach. Forward, and backward to the layer below, the
    results are rows of a batch; for the gradients of the weights the results are the weights, and
    the sum runs over the rows.
    """
    width = sqrt(params / layers)
    once = 2.0 * params * rows / flops
    return once * (2.0 * padding(rows, width, sms) + padding(width, width, sms))
