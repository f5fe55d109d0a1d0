"""NCCL's choice between algorithms and protocols, and how long what it chose takes.

The tables are those of NCCL 2.30's tuner. It adds hop latencies and a bandwidth term for every
algorithm and protocol and takes the smallest sum. Its latencies rank the choices; measured times
are longer by the launch of the kernel and a factor on the hops (`Costs`, both fitted).
Latencies are in microseconds and rates in GB/s here, as in the tables; the answers are in seconds.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ALGORITHMS = ("ring", "tree", "nvls", "nvls-tree")
PROTOCOLS = ("LL", "LL128", "Simple")
GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
MEDIA = ("nvlink", "pci")

_SIMPLE = 2
# Stands for an infinite rate, in GB/s, so that it can be multiplied by nothing.
_NO_LIMIT = 1e9
_BASE = np.array([[6.6, 14.0, 8.4], [6.8, 14.0, 8.4], [0, 0, 0], [0, 0, 0]])
# Hops by medium, algorithm and protocol.
_HOP = np.array(
    [
        [[0.6, 1.9, 3.4], [0.6, 1.25, 4.0], [0, 0, 25.0], [0, 0, 25.0]],
        [[1.0, 2.5, 5.7], [1.0, 1.9, 4.0], [0, 0, 0], [0, 0, 0]],
    ]
)
_NET = np.array([[2.7, 4.0, 14.0], [5.0, 8.5, 14.0], [0, 0, 18.0], [0, 0, 20.9]])
# Columns: one node, two nodes, more.
_LL_MAX = np.array(
    [[39.0, 39.0, 20.4], [87.7, 22.5, 19.0], [141.0, 45.0, 35.0], [282.0, 90.0, 70.0]]
)
_TREE_MAX = np.array(
    [[26.5, 18.5, 10.0], [24.0, 23.6, 17.8], [38.7, 41.4, 36.0], [70.0, 42.8, 24.0]]
)
_NVLS_TREE_MAX = np.array([[26.5, 18.5, 10.0], [24, 23.6, 17.8], [0, 57.7, 45.5], [0, 96.0, 80.0]])
_RING_LL128_MAX = np.array([20.0, 20.0, 36.7, 40.0])
_CHANNELS = np.array([12.0, 24.0, 24.0, 32.0])
_NVLS = np.array([0.0, 0.0, 0.85, 0.74])
# Ring with Simple over a network takes hops this much longer: before Ampere, and from it on.
_PLATEAU = np.array([1.9, 1.4, 1.4, 1.4])
_NET_OVERHEAD_US = 1.0
# The tree's share of its bandwidth for sizes of 64 B, 128 B and so on to 256 MB.
_TREE_CORRECTION = np.array(
    [
        [1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
        + [1] * 5,
        [
            1,
            1,
            1,
            1,
            1,
            0.9,
            0.8,
            0.8,
            0.8,
            0.7,
            0.6,
            0.6,
            0.6,
            0.6,
            0.6,
            0.6,
            0.8,
            0.9,
            0.9,
            0.9,
            0.9,
            1,
            1,
            1,
        ],
        [0.9] * 7
        + [0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9],
    ]
)


@dataclass(frozen=True, slots=True)
class Costs:
    """What measured times have beyond the tuner's: a launch, and longer hops."""

    launch_us: float
    hop_factor: float


class Ranks(NamedTuple):
    """Who communicates, and over what; every field a number or an array of equal shape."""

    ranks: Array
    nodes: Array
    # The bus bandwidth of rings inside a node and over the NICs of a node.
    intra_gbs: Array
    net_gbs: Array
    # Indices into GENERATIONS and MEDIA.
    generation: NDArray[np.intp]
    medium: NDArray[np.intp]
    # Whether the switches inside a node reduce.
    nvls: NDArray[np.bool_]
    # Whether the network keeps the order of bytes, without which only Simple works.
    ordered: NDArray[np.bool_]


class Chosen(NamedTuple):
    seconds: Array
    # Of which latency: what does not shrink with more bandwidth.
    latency_s: Array
    algorithm: NDArray[np.intp]
    protocol: NDArray[np.intp]


def ranks_of(
    *,
    ranks: object,
    nodes: object,
    intra_gbs: object,
    net_gbs: object,
    generation: object = 0,
    medium: object = 0,
    nvls: object = False,
    ordered: object = True,
) -> Ranks:
    """Numbers or arrays, brought to one shape."""
    arrays = np.broadcast_arrays(
        *(
            np.asarray(x)
            for x in (ranks, nodes, intra_gbs, net_gbs, generation, medium, nvls, ordered)
        )
    )
    n, k, b_i, b_n, g, m, s, o = arrays
    return Ranks(
        n.astype(np.float64),
        k.astype(np.float64),
        np.minimum(b_i.astype(np.float64), _NO_LIMIT),
        np.minimum(b_n.astype(np.float64), _NO_LIMIT),
        g.astype(np.intp),
        m.astype(np.intp),
        s.astype(np.bool_),
        o.astype(np.bool_),
    )


def all_reduce(size_bytes: object, who: Ranks, costs: Costs) -> Chosen:
    """What NCCL would choose for each, and the time that takes."""
    size = np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), who.ranks.shape)
    latency = _latencies(who)
    rate = _rates(size, who)
    usable = rate > 0.0
    moved = np.where(usable, size / (1e3 * np.where(usable, rate, 1.0)), np.inf)
    # The tuner compares its own numbers; only then are they made into times.
    nominal = np.where(usable, latency + moved, np.inf)
    flat = nominal.reshape(-1, *who.ranks.shape)
    best = np.argmin(flat, axis=0)
    taken = np.take_along_axis(latency.reshape(flat.shape), best[None], axis=0)[0]
    carried = np.take_along_axis(moved.reshape(flat.shape), best[None], axis=0)[0]
    alone = who.ranks < 2
    fixed = np.where(alone, 0.0, costs.launch_us + costs.hop_factor * taken) * 1e-6
    seconds = np.where(alone, 0.0, fixed + carried * 1e-6)
    algorithm, protocol = np.divmod(best, len(PROTOCOLS))
    return Chosen(seconds, fixed, algorithm, protocol)


def _latencies(who: Ranks) -> Array:
    """Microseconds by algorithm, protocol and collective."""
    n, k = who.ranks, who.nodes
    per_node = n / k
    hop = np.moveaxis(_HOP[who.medium], (-2, -1), (0, 1))
    shape = (len(ALGORITHMS), len(PROTOCOLS), *n.shape)
    extra = (slice(None), slice(None), *([None] * n.ndim))
    net = np.broadcast_to(_NET[extra], shape).copy()
    # With one GPU a node the tree's network latency is used for all.
    net[0] = np.where(per_node <= 1, _NET[1][(slice(None), *([None] * n.ndim))], net[0])
    latency = np.broadcast_to(_BASE[extra], shape).copy()
    overhead = (
        np.where(k > 1, _NET_OVERHEAD_US, 0.0)
        * np.array([1.0, 1.0, 3.0])[(slice(None), *([None] * n.ndim))]
    )
    inside = 2.0 * (n - 1.0) - 2.0 * (k - 1.0)
    ring = inside * np.maximum(hop[0], overhead) + 2.0 * (k - 1.0) * net[0]
    ring[_SIMPLE] *= np.where(k > 1, _PLATEAU[who.generation], 1.0)
    latency[0] += ring
    latency[1] += 2.0 * ((per_node - 1.0) * hop[1] + np.log2(k) * net[1])
    latency[2] += hop[2] + np.where(k > 1, net[2], 0.0)
    latency[3] += hop[3] + 2.0 * np.log2(k) * net[3]
    return latency


def _rates(size: Array, who: Ranks) -> Array:
    """Algorithm bandwidths in GB/s by algorithm, protocol and collective; 0 where impossible."""
    n, k, generation = who.ranks, who.nodes, who.generation
    column = np.where(k <= 1, 0, np.where(k <= 2, 1, 2))
    many = k > 1
    bus = np.where(many, np.minimum(who.intra_gbs, who.net_gbs), who.intra_gbs)
    bus = np.where(many & (n == k), who.net_gbs, bus)
    channels = _CHANNELS[generation]
    ll_max = _LL_MAX[generation, column]
    rates = np.zeros((len(ALGORITHMS), len(PROTOCOLS), *n.shape))
    to_ring = n / np.maximum(2.0 * (n - 1.0), 1.0)
    on_nvlink = who.medium == 0
    rates[0, 0] = np.minimum(ll_max, 0.5 * bus) * to_ring
    rates[0, 1] = np.where(
        on_nvlink, np.minimum(0.92 * bus, channels * _RING_LL128_MAX[generation]) * to_ring, 0.0
    )
    rates[0, 2] = bus * to_ring
    tree = np.minimum(0.92 * bus, channels * _TREE_MAX[generation, column])
    correction = _tree_correction(size)
    rates[1, 0] = np.minimum(ll_max, tree / 3.8) * correction[0] * 0.5
    rates[1, 1] = np.where(
        on_nvlink, tree * np.where(many, 120 / 128, 7 / 9) * correction[1] * 0.5, 0.0
    )
    rates[1, 2] = tree * correction[2] * 0.5
    # NCCL does not use trees inside one node.
    rates[1] *= many
    switched = who.nvls & ~many
    rates[2, 2] = np.where(switched, _NVLS[generation] * who.intra_gbs * n / (n + 1.0), 0.0)
    cap = channels * _NVLS_TREE_MAX[generation, column]
    spread = np.minimum(_NVLS[generation] * who.intra_gbs, np.minimum(who.net_gbs, cap))
    rates[3, 2] = np.where(who.nvls & many, spread * 0.5, 0.0)
    rates[:, :_SIMPLE] *= who.ordered | ~many
    return rates


def _tree_correction(size: Array) -> Array:
    index = np.clip(np.log2(np.maximum(size, 64.0)) - 6.0, 0, _TREE_CORRECTION.shape[1] - 1)
    return np.asarray(_TREE_CORRECTION[:, index.astype(np.intp)], dtype=np.float64)
