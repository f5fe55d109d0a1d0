"""All-reduces in two dimensions: inside nodes and across them, or along the rows of a grid.

Every GPU of a node carries its own part across, so all NICs are busy and there are many flows; the
number of messages grows with the sides of the grid instead of its area.
"""

from simulator.collectives import algorithms, nccl
from simulator.collectives.buckets import exposure, fill
from simulator.hardware.constants import Constants
from simulator.training.placement import Place
from simulator.training.plans import Gradients, Plan, Scheme, Software, pieces

# Hops of NCCL's rings with large messages, in microseconds: over NVLink, PCIe and a network.
NVLINK_HOP_US, PCIE_HOP_US, NET_HOP_US = 3.4, 5.7, 14.0


def grouped(
    place: Place, gradients: Gradients, scheme: Scheme, constants: Constants, software: Software
) -> Plan:
    """Return the plan: reduce-scatter of rows, all-reduce of columns, all-gather of rows, in turn."""
    size = sum(part for part, _ in gradients)
    row = place.per_node if scheme is Scheme.HIERARCHICAL else _best_row(place, size, constants)
    fixed_s, inside, across, node_bytes = _phases(place, row, constants)
    launches_s = 3.0 * constants.nccl_launch_us * 1e-6
    return Plan(
        exposure(fill(gradients, pieces(size)), lambda _: fixed_s + launches_s),
        intra_s_per_byte=inside,
        net_s_per_byte=across,
        tail_s=software.cycle_s,
        overlap=software.overlap,
        in_turn=True,
        node_bytes=node_bytes * size,
    )


def _best_row(place: Place, size: float, constants: Constants) -> int:
    """Return the row length that exchanges the whole gradient fastest; a node stays in one row."""
    rows = [
        place.per_node * nodes for nodes in range(1, place.nodes) if place.nodes % nodes == 0
    ] or [place.per_node]

    def taken_s(row: int) -> float:
        fixed_s, inside, across, _ = _phases(place, row, constants)
        return fixed_s + (inside + across) * size

    return min(rows, key=taken_s)


def hops_s(place: Place, constants: Constants) -> tuple[float, float]:
    """Return the seconds of one hop of a large message inside a node, and between nodes."""
    generation = nccl.generation_of(place.gpu.generation)
    reach_us = float(nccl.reach_us(place.network.latency_us, generation))
    inside_us = NVLINK_HOP_US if place.link.is_nvlink else PCIE_HOP_US
    hop = constants.nccl_hop_factor * 1e-6
    return hop * inside_us, hop * (NET_HOP_US + reach_us)


def _phases(place: Place, row: int, constants: Constants) -> tuple[float, float, float, float]:
    """Return the latency and the times per byte of all phases for rows of `row` ranks.

    The tuple has the latency in seconds, seconds per byte inside nodes and across, and the bytes
    that leave a node for each byte of gradient.
    """
    near, far = hops_s(place, constants)
    per_node, columns = float(place.per_node), place.ranks / row
    inside_beta = 1e-9 / place.intra_gbs()
    # All GPUs of a node send to their columns at once, over as many flows.
    net_beta = 1e-9 / place.net_gbs(constants, flows=place.per_node)
    if row <= place.per_node:
        inside, across = algorithms.hierarchical(
            1.0, per_node, columns, (0.0, 0.0), (inside_beta, net_beta)
        )
        hops = 2.0 * (per_node - 1.0) * near + 2.0 * (columns - 1.0) * far
        return hops, float(inside), float(across), 2.0 * (columns - 1.0) / columns
    # Rows span nodes: each is a ring of its own, which crosses a NIC as one flow.
    along = 1e-9 / min(place.intra_gbs(), place.net_gbs(constants))
    both = algorithms.torus_2d(1.0, float(row), columns, 0.0, (along, per_node * net_beta))
    hops = 2.0 * (row - 1.0) * far + 2.0 * (columns - 1.0) * far
    sent = 2.0 * (row - 1.0) / row + per_node * 2.0 * (columns - 1.0) / columns / row
    return hops, 0.0, float(both), sent
