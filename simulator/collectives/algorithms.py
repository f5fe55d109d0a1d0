"""Textbook times of collectives (the Hockney model), for numbers and arrays alike.

Symbols as in the literature: `n` ranks, `size` bytes held by each, `alpha` seconds per message,
`beta` seconds per byte, `gamma` seconds to reduce a byte. All arguments broadcast, so ten thousand
collectives are one call. Results are in seconds.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]


def _log2_up(n: Number) -> NDArray[np.float64]:
    return np.ceil(np.log2(np.maximum(n, 1.0)) - 1e-9)


def _power_below(n: Number) -> NDArray[np.float64]:
    return np.asarray(np.exp2(np.floor(np.log2(np.maximum(n, 1.0)) + 1e-9)), dtype=np.float64)


def ring(size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0) -> Number:
    """All-reduce as reduce-scatter and all-gather around a ring."""
    share = (n - 1.0) / n
    return 2.0 * (n - 1.0) * alpha + share * size * (2.0 * beta + gamma)


def recursive_doubling(
    size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0
) -> Number:
    """All-reduce for short messages: log n exchanges of everything with a partner."""
    return _log2_up(n) * (alpha + size * (beta + gamma))


def halving_doubling(
    size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0
) -> Number:
    """Rabenseifner's all-reduce; ranks beyond a power of two are folded in, as MPICH does."""
    power = _power_below(n)
    share = (power - 1.0) / power
    folded = np.where(power < n, 2.0 * alpha + size * (2.0 * beta + gamma), 0.0)
    return 2.0 * np.log2(power) * alpha + share * size * (2.0 * beta + gamma) + folded


def reduce_broadcast(
    size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0
) -> Number:
    """All-reduce as a binomial reduce, then a binomial broadcast."""
    steps = _log2_up(n)
    return 2.0 * steps * (alpha + size * beta) + steps * size * gamma


def pipelined_tree(
    size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0
) -> Number:
    """All-reduce over one binary tree, in the optimal number of chunks."""
    steps = _log2_up(n)
    best = np.sqrt(np.maximum(steps - 1.0, 0.0) * size * (beta + gamma) / np.maximum(alpha, 1e-12))
    chunks = np.maximum(1.0, best)
    return np.where(
        np.asarray(n) > 1,
        2.0 * (steps + chunks - 1.0) * (alpha + size * (beta + gamma / 2.0) / chunks),
        0.0,
    )


def double_binary_tree(
    size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0
) -> Number:
    """All-reduce over two trees that carry half each: full bandwidth at logarithmic latency."""
    return np.where(np.asarray(n) > 1, 2.0 * _log2_up(n) * alpha + size * (2.0 * beta + gamma), 0.0)


def in_switch(size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0) -> Number:
    """All-reduce in the switch: one send and one receive for each rank (NVLS, SHARP)."""
    return np.where(np.asarray(n) > 1, alpha + size * beta * (n + 1.0) / n, 0.0)


def reduce_scatter(
    size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0
) -> Number:
    """Reduce-scatter around a ring."""
    return (n - 1.0) * alpha + (n - 1.0) / n * size * (beta + gamma)


def all_gather(size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0) -> Number:
    """All-gather around a ring; `size` is what each rank holds afterwards."""
    return (n - 1.0) * alpha + (n - 1.0) / n * size * beta


def broadcast(size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0) -> Number:
    """Broadcast, pipelined around a ring or down a binomial tree, whichever is faster."""
    piped = (n - 1.0) * alpha + size * beta
    return np.where(np.asarray(n) > 1, np.minimum(piped, _log2_up(n) * (alpha + size * beta)), 0.0)


def all_to_all(size: Number, n: Number, alpha: Number, beta: Number, gamma: Number = 0.0) -> Number:
    """All-to-all, pairwise or Bruck's for short messages; `size` is what a rank sends and keeps."""
    pairwise = (n - 1.0) * alpha + (n - 1.0) / n * size * beta
    bruck = _log2_up(n) * (alpha + size * beta / 2.0)
    return np.minimum(pairwise, bruck)


def hierarchical(
    size: Number,
    per_node: Number,
    nodes: Number,
    alphas: tuple[Number, Number],
    betas: tuple[Number, Number],
) -> tuple[Number, Number]:
    """All-reduce in two levels; return the times inside nodes and across them.

    The phases are reduce-scatter inside, all-reduce across, all-gather inside. Run one after the
    other the two times add up; cut into chunks and pipelined, the longer one remains. `betas[1]` is
    that of all NICs of a node together.
    """
    inside = (
        2.0 * (per_node - 1.0) * alphas[0] + 2.0 * (per_node - 1.0) / per_node * size * betas[0]
    )
    across = 2.0 * (nodes - 1.0) * alphas[1] + 2.0 * (nodes - 1.0) / nodes * size * betas[1]
    return inside, across


def torus_2d(
    size: Number, x: Number, y: Number, alpha: Number, betas: tuple[Number, Number]
) -> Number:
    """All-reduce on a grid: reduce-scatter along X, all-reduce along Y, all-gather along X."""
    along_x = 2.0 * (x - 1.0) * alpha + 2.0 * (x - 1.0) / x * size * betas[0]
    along_y = 2.0 * (y - 1.0) * alpha + 2.0 * (y - 1.0) / y * size / x * betas[1]
    return along_x + along_y


def butterfly_over_leaves(
    size: Number,
    nodes: Number,
    alpha: Number,
    beta: Number,
    nodes_per_leaf: Number,
    oversubscription: Number,
) -> Number:
    """Halving-doubling in which partners under different leaves share oversubscribed uplinks.

    The first steps carry most and reach farthest: with L nodes per leaf, all but the last log2 L
    steps leave it.
    """
    power = _power_below(nodes)
    inside = np.minimum(_power_below(nodes_per_leaf), power)
    across = 1.0 - inside / power
    within = (inside - 1.0) / power
    folded = np.where(power < nodes, 2.0 * alpha + 2.0 * size * beta, 0.0)
    moved = size * beta * 2.0 * (across * oversubscription + within)
    return 2.0 * np.log2(power) * alpha + moved + folded


def bus_bandwidth(kind: str, size: Number, n: Number, seconds: Number) -> Number:
    """Bus bandwidth in bytes per second as nccl-tests prints it.

    For a ring it is what the slowest link carries.
    """
    factor: dict[str, Any] = {
        "all_reduce": 2.0 * (n - 1.0) / n,
        "reduce_scatter": (n - 1.0) / n,
        "all_gather": (n - 1.0) / n,
        "all_to_all": (n - 1.0) / n,
    }
    result: Number = size / seconds * factor.get(kind, 1.0)
    return result


# All-reduce algorithms that take (size, n, alpha, beta, gamma), by their usual names.
ALL_REDUCE: dict[str, Callable[..., Number]] = {
    "ring": ring,
    "recursive-doubling": recursive_doubling,
    "halving-doubling": halving_doubling,
    "tree": pipelined_tree,
    "double-binary-tree": double_binary_tree,
    "reduce-broadcast": reduce_broadcast,
    "in-switch": in_switch,
}
OTHERS: dict[str, Callable[..., Number]] = {
    "reduce-scatter": reduce_scatter,
    "all-gather": all_gather,
    "broadcast": broadcast,
    "all-to-all": all_to_all,
}
