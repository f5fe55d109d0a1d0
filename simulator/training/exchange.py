"""The exchange of gradients in a gang: for every scheme, what a step moves and when."""

from math import log2

import numpy as np

from simulator.collectives import nccl
from simulator.collectives.buckets import exposure, fill
from simulator.collectives.compression import COMPRESSIONS, encode_s, wire_bytes
from simulator.hardware.constants import Constants
from simulator.hardware.hosts import HOST
from simulator.hardware.links import Wiring
from simulator.training.grouped_exchange import grouped
from simulator.training.placement import Place, nccl_ranks
from simulator.training.plans import NOTHING, SERVED, Gradients, Plan, Scheme, Software, pieces
from simulator.training.served_exchange import served

# Assumed where no switches are described: leaves of 48 ports, as the edge switches of Omni-Path and
# the usual Ethernet ones have, half of them for nodes. There are as many uplinks as nodes, but with
# static routes, so that some flows share one: butterflies get 55 to 60 % of the bisection (Hoefler,
# Schneider and Lumsdaine, "Multistage switches are not crossbars", Cluster 2008). Rings are not
# affected.
USUAL_LEAF = 24
USUAL_OVERSUBSCRIPTION = 1.0 / 0.575
# The interval of Horovod's background thread; a step waits for it once.
HOROVOD_CYCLE_S = 5e-3
# PCIe 3 between host and device, as NCCL counts it.
HOST_LINK_GBS = 12.0
# A CPU that adds one gradient to another reads both and writes one: bytes of memory per byte.
ADDED_BYTES = 3.0


def plan(
    place: Place,
    gradients: Gradients,
    scheme: Scheme,
    constants: Constants,
    software: Software = Software(),  # noqa: B008
    largest_bytes: float = 0.0,
) -> Plan:
    """Return the exchange of one step; an empty plan if there is nothing to exchange.

    `largest_bytes` is the size of the largest tensor, for parameter servers.
    """
    size = sum(part for part, _ in gradients)
    served_alone = scheme in SERVED and place.served_from is not None
    if (place.ranks <= 1 and not served_alone) or scheme is Scheme.NONE or size <= 0.0:
        return Plan(NOTHING)
    match scheme:
        case Scheme.ALL_REDUCE:
            return _all_reduce(place, gradients, constants, software, volume=1.0)
        case Scheme.SHARDED:
            return _all_reduce(place, gradients, constants, software, volume=1.5)
        case Scheme.HIERARCHICAL | Scheme.TORUS if place.nodes > 1 and place.per_node > 1:
            return grouped(place, gradients, scheme, constants, software)
        case Scheme.HIERARCHICAL | Scheme.TORUS:
            # With one GPU per node, or one node, there is one ring.
            return _all_reduce(place, gradients, constants, software, volume=1.0)
        case Scheme.MPI:
            return _mpi(place, gradients, constants, software)
        case Scheme.ONE_BIT:
            return _one_bit(place, gradients, constants)
        case Scheme.PS_ASYNC if place.crosses_network:
            # No rank waits for an exchange; its cost is in the pace of each client.
            at_servers = place.served_from and place.ranks / place.served_from.nodes
            return Plan(
                NOTHING,
                node_bytes=2.0 * place.per_node * size,
                server_bytes=2.0 * (at_servers or 0.0) * size,
            )
        case Scheme.PS_HOST:
            return _host_variables(place, gradients)
        case _ if not place.crosses_network and place.served_from is not None:
            # The servers are processes on the only node of the gang.
            return _host_variables(place, gradients)
        case _ if place.nodes == 1 and place.served_from is None:
            return _device_variables(place, gradients)
        case _:
            return served(place, gradients, scheme, constants, software, largest_bytes)


def _all_reduce(
    place: Place, gradients: Gradients, constants: Constants, software: Software, volume: float
) -> Plan:
    size = sum(part for part, _ in gradients)
    buckets = fill(gradients, pieces(size))
    sizes = np.array([bucket.size_bytes for bucket in buckets])
    intra = place.intra_gbs()
    if software.single_ring and place.link.wiring is Wiring.CUBE_MESH:
        intra = place.link.link_gbs
    net = place.net_gbs(constants)
    who = nccl_ranks(place, intra_gbs=intra, net_gbs=net, sizes=len(sizes))
    costs = nccl.Costs(constants.nccl_launch_us, constants.nccl_hop_factor)
    chosen = nccl.all_reduce(sizes, who, costs)
    fixed = {
        bucket.size_bytes: float(s) for bucket, s in zip(buckets, chosen.latency_s, strict=True)
    }
    ring = 2.0 * (place.ranks - 1) / place.ranks * 1e-9
    moved = float(np.sum(chosen.seconds - chosen.latency_s)) / size * volume
    many = place.nodes > 1
    return Plan(
        exposure(buckets, lambda part: fixed[part]),
        intra_s_per_byte=ring / intra * volume if many else moved,
        net_s_per_byte=moved if many else 0.0,
        tail_s=software.cycle_s,
        overlap=software.overlap,
        node_bytes=2.0 * (place.ranks - 1) / place.ranks * size * volume if many else 0.0,
    )


def _mpi(place: Place, gradients: Gradients, constants: Constants, software: Software) -> Plan:
    """Device to host, a butterfly of all ranks that share their node's NIC, and back."""
    size = sum(part for part, _ in gradients)
    per_node, ranks = place.per_node, place.ranks
    inside = min(USUAL_LEAF * per_node, ranks)
    crossing = (1.0 - inside / ranks) * USUAL_OVERSUBSCRIPTION + (inside - per_node) / ranks
    node_bytes = 2.0 * per_node * crossing * size if place.nodes > 1 else 0.0
    net = place.net_gbs(constants, flows=per_node, from_host=True) * 1e9
    added = ADDED_BYTES / (place.host.memory_gbs * 1e9)
    # The results of CPUs are in host memory already.
    copied = 0.0 if place.gpu.generation == HOST else 2.0 * per_node / (HOST_LINK_GBS * 1e9)
    on_host = copied + (ranks - 1) / ranks * added
    steps_s = 2.0 * log2(ranks) * constants.mpi_hop_us * 1e-6
    return Plan(
        exposure(fill(gradients, pieces(size)), lambda _: steps_s),
        intra_s_per_byte=on_host,
        net_s_per_byte=node_bytes / size / net + on_host,
        tail_s=software.cycle_s,
        node_bytes=node_bytes,
    )


def _one_bit(place: Place, gradients: Gradients, constants: Constants) -> Plan:
    """1-bit SGD; the GPU itself encodes and decodes, so that cost is not hidden."""
    size = sum(part for part, _ in gradients)
    how = COMPRESSIONS["1bit"]
    wire = wire_bytes(size, how, place.ranks)
    slowest = min(place.intra_gbs(), place.net_gbs(constants)) * 1e9
    moved = 2.0 * (place.ranks - 1) / place.ranks * wire / size / slowest
    many = place.nodes > 1
    return Plan(
        exposure(fill(gradients, pieces(size)), lambda _: 0.0),
        intra_s_per_byte=0.0 if many else moved,
        net_s_per_byte=moved if many else 0.0,
        tail_s=encode_s(size, how, place.gpu.memory_gbs * 1e9),
        node_bytes=2.0 * wire if many else 0.0,
    )


def _host_variables(place: Place, gradients: Gradients) -> Plan:
    """Variables in host memory: every GPU reads all of them, and the CPU sums the gradients."""
    size = sum(part for part, _ in gradients)
    # Two chips on a board share its slot.
    slot = HOST_LINK_GBS * 1e9 / (2.0 if place.gpu.shares_slot else 1.0)
    if place.gpu.generation == HOST:
        slot = place.host.memory_gbs * 1e9
    once = place.ranks / (place.host.memory_gbs * 1e9)
    return Plan(
        exposure(fill(gradients, pieces(size)), lambda _: 0.0),
        intra_s_per_byte=max(1.0 / slot, ADDED_BYTES * once),
        tail_s=max(1.0 / slot, once) * size,
    )


def _device_variables(place: Place, gradients: Gradients) -> Plan:
    """Variables spread over the GPUs of a node: each GPU sends and fetches the parts of the others.

    Gradients are sent during the backward pass; new values are fetched when all gradients have
    arrived, as from host memory.
    """
    size = sum(part for part, _ in gradients)
    one_way = (place.ranks - 1) / place.ranks / (place.intra_gbs() * 1e9)
    return Plan(
        exposure(fill(gradients, pieces(size)), lambda _: 0.0),
        intra_s_per_byte=one_way,
        tail_s=one_way * size,
    )
