"""NCCL's choice between algorithms and protocols, and the time of the choice.

The tables are those of NCCL 2.30's tuner. It adds hop latencies and a bandwidth term for every
algorithm and protocol and takes the smallest sum. Its latencies rank the choices; measured times
are longer by the launch of the kernel and a factor on the hops (`Costs`, both fitted). Latencies
are in microseconds and rates in GB/s here, as in the tables; the results are in seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ALGORITHMS = ("ring", "tree", "nvls", "nvls-tree")
PROTOCOLS = ("LL", "LL128", "Simple")
GENERATIONS = ("volta", "ampere", "hopper", "blackwell")

_SIMPLE = 2
_HOPPER = GENERATIONS.index("hopper")
# Stands for an infinite rate in GB/s; finite, so that a product with 0 is 0 and not NaN.
_NO_LIMIT = 1e9
_BASE = np.array([[6.6, 14.0, 8.4], [6.8, 14.0, 8.4], [0, 0, 0], [0, 0, 0]])
# Hop latencies by medium, algorithm and protocol.
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
# The factor on the hops of a ring with Simple over a network: before Ampere, and from Ampere on.
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
    """What measured times have beyond those of the tuner: a kernel launch, and longer hops."""

    launch_us: float
    hop_factor: float


class Ranks(NamedTuple):
    """The ranks of a collective and their links; fields are numbers or arrays of equal shape."""

    ranks: Array
    nodes: Array
    # The bus bandwidth of rings inside a node, and over the NICs of a node.
    intra_gbs: Array
    net_gbs: Array
    # The index into GENERATIONS, and 0 for NVLink or 1 for PCIe.
    generation: NDArray[np.intp]
    medium: NDArray[np.intp]
    # Whether the switches inside a node reduce.
    nvls: NDArray[np.bool_]
    # Whether the network keeps the order of bytes; without it only Simple works.
    ordered: NDArray[np.bool_]
    # The latency that the network plugin reports, in microseconds, on top of NCCL's table, which is
    # that of InfiniBand.
    net_us: Array


class Chosen(NamedTuple):
    """The time of NCCL's choice, and the indices of its algorithm and protocol."""

    seconds: Array
    # The part of `seconds` that is latency: it does not shrink with more bandwidth.
    latency_s: Array
    algorithm: NDArray[np.intp]
    protocol: NDArray[np.intp]


def generation_of(name: str) -> int:
    """Return the row of a GPU's generation in the tables; a missing one counts as the oldest."""
    return GENERATIONS.index(name) if name in GENERATIONS else 0


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
    net_us: object = 0.0,
) -> Ranks:
    """Return the numbers or arrays broadcast to one shape."""
    arrays = np.broadcast_arrays(
        *(
            np.asarray(x)
            for x in (ranks, nodes, intra_gbs, net_gbs, generation, medium, nvls, ordered, net_us)
        )
    )
    n, k, b_i, b_n, g, m, s, o, us = arrays
    return Ranks(
        n.astype(np.float64),
        k.astype(np.float64),
        np.minimum(b_i.astype(np.float64), _NO_LIMIT),
        np.minimum(b_n.astype(np.float64), _NO_LIMIT),
        g.astype(np.intp),
        m.astype(np.intp),
        s.astype(np.bool_),
        o.astype(np.bool_),
        us.astype(np.float64),
    )


def all_reduce(size_bytes: object, who: Ranks, costs: Costs) -> Chosen:
    """Return NCCL's choice for each element, and its time.

    The choice compares the tuner's own numbers; `costs` applies only to the time of the result.
    """
    size = np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), who.ranks.shape)
    shape = who.ranks.shape
    best = np.full(shape, np.inf)
    latency, moved = np.zeros(shape), np.zeros(shape)
    choice = np.zeros(shape, dtype=np.intp)
    for algorithm, protocol, hops, rate in _candidates(size, who):
        carried = size / (1e3 * rate)
        nominal = hops + carried
        better = nominal < best
        best = np.where(better, nominal, best)
        latency = np.where(better, hops, latency)
        moved = np.where(better, carried, moved)
        choice = np.where(better, algorithm * len(PROTOCOLS) + protocol, choice)
    alone = who.ranks < 2
    fixed = np.where(alone, 0.0, costs.launch_us + costs.hop_factor * latency) * 1e-6
    seconds = np.where(alone, 0.0, fixed + moved * 1e-6)
    algorithms, protocols = np.divmod(choice, len(PROTOCOLS))
    return Chosen(seconds, fixed, algorithms, protocols)


# A rate that is never chosen.
_NEVER = 1e-12


def _candidates(size: Array, who: Ranks) -> Iterator[tuple[int, int, Array, Array]]:
    """Yield algorithm, protocol, hop latencies in microseconds and algorithm bandwidth in GB/s."""
    n, k, generation = who.ranks, who.nodes, who.generation
    many = k > 1
    column = np.where(k <= 1, 0, np.where(k <= 2, 1, 2))
    bus = np.where(
        many, np.where(n == k, who.net_gbs, np.minimum(who.intra_gbs, who.net_gbs)), who.intra_gbs
    )
    channels = _CHANNELS[generation]
    ll_max = _LL_MAX[generation, column]
    ordered = who.ordered | ~many
    on_nvlink = (who.medium == 0) & ordered
    yield from _rings(who, bus, many, ll_max, channels, ordered, on_nvlink)
    # NCCL does not use trees inside one node.
    if many.any():
        tree = np.minimum(0.92 * bus, channels * _TREE_MAX[generation, column])
        yield from _trees(size, who, tree, many, ll_max, ordered, on_nvlink)
    if who.nvls.any():
        yield from _switched(who, many, channels * _NVLS_TREE_MAX[generation, column])


def _rings(
    who: Ranks,
    bus: Array,
    many: NDArray[np.bool_],
    ll_max: Array,
    channels: Array,
    ordered: NDArray[np.bool_],
    on_nvlink: NDArray[np.bool_],
) -> Iterator[tuple[int, int, Array, Array]]:
    n, k = who.ranks, who.nodes
    to_ring = n / np.maximum(2.0 * (n - 1.0), 1.0)
    inside, across = 2.0 * (n - k), 2.0 * (k - 1.0)
    single = n <= k
    rates = (
        np.where(ordered, np.minimum(ll_max, 0.5 * bus) * to_ring, _NEVER),
        np.where(
            on_nvlink,
            np.minimum(0.92 * bus, channels * _RING_LL128_MAX[who.generation]) * to_ring,
            _NEVER,
        ),
        bus * to_ring,
    )
    for protocol, rate in enumerate(rates):
        overhead = np.where(many, _NET_OVERHEAD_US * (3.0 if protocol == _SIMPLE else 1.0), 0.0)
        # With one GPU per node, NCCL uses the tree's network latency for rings too.
        net = np.where(single, _NET[1, protocol], _NET[0, protocol]) + _reach(who, protocol)
        hops = inside * np.maximum(_HOP[who.medium, 0, protocol], overhead) + across * net
        if protocol == _SIMPLE:
            hops = hops * np.where(many, _PLATEAU[who.generation], 1.0)
        yield 0, protocol, _BASE[0, protocol] + hops, rate


def _reach(who: Ranks, protocol: int) -> Array:
    return np.asarray(
        reach_us(who.net_us, who.generation, flushes=protocol == _SIMPLE), dtype=np.float64
    )


def reach_us(
    net_us: Array | float, generation: NDArray[np.intp] | int, *, flushes: bool = True
) -> Array | float:
    """Return what a hop over the network takes beyond the table's value, in microseconds.

    With Simple the receiver flushes received data, which costs the network's latency once more;
    GPUs from Hopper on need no flush, although the tuner counts it for them too.
    """
    return net_us * np.where(flushes & (generation < _HOPPER), 2.0, 1.0)


def _trees(
    size: Array,
    who: Ranks,
    tree: Array,
    many: NDArray[np.bool_],
    ll_max: Array,
    ordered: NDArray[np.bool_],
    on_nvlink: NDArray[np.bool_],
) -> Iterator[tuple[int, int, Array, Array]]:
    index = np.clip(np.log2(np.maximum(size, 64.0)) - 6.0, 0, _TREE_CORRECTION.shape[1] - 1)
    index = index.astype(np.intp)
    depth = np.log2(who.nodes)
    below = who.ranks / who.nodes - 1.0
    buses = (
        np.where(ordered, np.minimum(ll_max, tree / 3.8), _NEVER),
        np.where(on_nvlink, tree * (120 / 128), _NEVER),
        tree,
    )
    for protocol, bus in enumerate(buses):
        rate = np.where(many, bus * _TREE_CORRECTION[protocol][index] * 0.5, _NEVER)
        net = _NET[1, protocol] + _reach(who, protocol)
        hops = 2.0 * (below * _HOP[who.medium, 1, protocol] + depth * net)
        yield 1, protocol, _BASE[1, protocol] + hops, rate


def _switched(
    who: Ranks, many: NDArray[np.bool_], cap: Array
) -> Iterator[tuple[int, int, Array, Array]]:
    n = who.ranks
    reduced = _NVLS[who.generation] * who.intra_gbs
    inside = np.where(who.nvls & ~many, reduced * n / (n + 1.0), 0.0)
    hop = _HOP[who.medium, 2, _SIMPLE] + np.where(many, _NET[2, _SIMPLE], 0.0)
    yield 2, _SIMPLE, hop, np.maximum(inside, _NEVER)
    spread = np.minimum(reduced, np.minimum(who.net_gbs, cap))
    across = np.where(who.nvls & many & who.ordered, spread * 0.5, 0.0)
    net = _NET[3, _SIMPLE] + _reach(who, _SIMPLE)
    far = _HOP[who.medium, 3, _SIMPLE] + 2.0 * np.log2(who.nodes) * net
    yield 3, _SIMPLE, far, np.maximum(across, _NEVER)
