"""Matrix products on a GPU: how much longer small ones take than their arithmetic.

A product is cut into tiles, each computed by one multiprocessor; a tile at the edge costs as much as a
whole one, and a last wave of tiles that does not fill the GPU as much as a full one (NVIDIA's
"Matrix Multiplication Background User's Guide" calls it tile and wave quantisation).
"""

from math import ceil, sqrt

# The tile of large single-precision products.
TILE = 128


def padding(rows: float, columns: float, sms: int) -> float:
    """The time of a product with so many results over that of its results alone."""
    down, across = ceil(rows / TILE), ceil(columns / TILE)
    waves = ceil(down * across / sms)
    return waves * sms * TILE * TILE / (rows * columns)


def dense_s(params: float, rows: float, layers: int, sms: int, flops: float) -> float:
    """Both passes of so many rows through equal square layers, at a rate that large products reach.

    Forward, and backward to the layer below, results are rows of a batch; for the gradients of the
    weights they are the weights, and rows are what is summed over.
    """
    width = sqrt(params / layers)
    once = 2.0 * params * rows / flops
    return once * (2.0 * padding(rows, width, sms) + padding(width, width, sms))
