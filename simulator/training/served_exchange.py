"""The exchange of a gang with parameter servers: the most loaded server, and the burst at its port."""

import numpy as np

from simulator.collectives import parameter_server as ps
from simulator.collectives.buckets import exposure, fill
from simulator.hardware.constants import Constants
from simulator.hardware.networks import Transport
from simulator.training.placement import TCP_SHARE, Place
from simulator.training.plans import Gradients, Plan, Scheme, Software, pieces

# A connection that was idle for a while, as between two steps, begins with ten segments again (RFC
# 6928, RFC 2861); this many bytes of each client arrive at once.
BURST_BYTES = 10 * 1448.0
# A round trip through the switches of a rack and two network stacks.
ROUND_TRIP_S = 100e-6


def incast_s(place: Place, clients: float) -> float:
    """Return the seconds that the clients' common burst costs a synchronous step.

    A part of the burst is lost at the port of a server if it exceeds what the port and the wire
    hold, and the last flow of the step then waits for a time-out. Networks with flow control
    between switches drop nothing.
    """
    network = place.network
    if network.transport is Transport.RDMA or network.large_packets or place.nodes < 2:
        return 0.0
    held = place.fabric.port_buffer_kb * 1e3 + network.line_gbs * 1e9 * ROUND_TRIP_S
    return float(np.asarray(ps.incast_s(clients, BURST_BYTES, held)))


def servers_of(
    place: Place, clients: int, constants: Constants, software: Software, *, every_gpu: bool
) -> ps.Servers:
    """Return the parameter servers of a gang: those that it has, or one on every second node.

    Servers on one node share its NICs. The busiest server is one on a node without clients, and the
    busiest client one on a node without servers, if there are such nodes.
    """
    served = place.served_from
    line = TCP_SHARE * place.network.line_gbs
    rate = constants.ps_server_gbs
    if place.network.large_packets:
        # Packets cost little here; the copies remain, as for any TCP flow.
        rate = max(rate, place.flow_gbs(constants))
    # gRPC goes through the network stack even to a server on the same node.
    loops_back = place.network.transport is Transport.GRPC and place.per_node > 1 and every_gpu
    if served is not None:
        apart = loops_back or served.shared < served.nodes
        alone = loops_back or served.shared < place.nodes
        return ps.Servers(
            clients=clients,
            servers=served.servers,
            server_rate=min(rate, TCP_SHARE * served.line_gbs / served.per_node) * 1e9,
            client_rate=line * 1e9,
            clients_per_node=clients / place.nodes,
            server_away=1.0 if apart else 1.0 - 1.0 / place.nodes,
            client_away=1.0 if alone else 1.0 - 1.0 / served.nodes,
        )
    return ps.Servers(
        clients=clients,
        servers=software.servers or max(1, -(-place.nodes // 2)),
        server_rate=min(rate, line) * 1e9,
        client_rate=line * 1e9,
        clients_per_node=clients / place.nodes,
        colocated=not loops_back,
    )


def served(
    place: Place,
    gradients: Gradients,
    scheme: Scheme,
    constants: Constants,
    software: Software,
    largest_bytes: float,
) -> Plan:
    """Return the plan of an exchange with parameter servers.

    When every GPU is a client, parameters are fetched during the forward pass. When a node sums
    first and keeps copies, they are fetched after the step; where tensors are split and pushed and
    pulled one by one, both directions overlap with the backward pass.
    """
    size = sum(part for part, _ in gradients)
    every_gpu = scheme is Scheme.PS_GPU or (scheme is Scheme.PS_NODE and place.per_node == 1)
    clients = place.ranks if scheme is Scheme.PS_GPU else place.nodes
    who = servers_of(place, clients, constants, software, every_gpu=every_gpu)
    split = scheme is Scheme.PS_SPLIT
    hot = ps.hottest_bytes(size, who.servers, largest_bytes, split=split)
    one_way = float(ps.one_way_s(size, who, hot))
    at_server, at_client = server_bytes(place, who, size, hot)
    return Plan(
        exposure(fill(gradients, pieces(size)), lambda _: 0.0),
        tail_s=incast_s(place, clients),
        net_s_per_byte=one_way * (2.0 if split else 1.0) / size,
        fetch_net_s=one_way if every_gpu else 0.0,
        tail_net_s=0.0 if every_gpu or split else one_way,
        node_bytes=at_client,
        server_bytes=at_server,
    )


def server_bytes(place: Place, who: ps.Servers, size: float, hot: ps.Number) -> tuple[float, float]:
    """Return the bytes that leave a node with servers, and one with clients, in one direction.

    If the servers' nodes are not known, every node has both, and the first number is 0.
    """
    if place.served_from is None:
        away = (place.nodes - 1) / place.nodes
        both = who.clients * hot * away + who.clients / place.nodes * size * away
        return 0.0, float(both)
    server_away, client_away = who.away()
    served = who.clients * hot * server_away * place.served_from.per_node
    return float(served), float(who.clients_per_node * size * client_away)
