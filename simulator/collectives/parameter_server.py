"""Push and pull through parameter servers, limited by the most loaded server.

Servers hold whole tensors unless these are split, so the largest tensor determines how uneven the
load is; a synchronous step ends with the last flow of the most loaded server. Rates are bytes per
second; all functions broadcast.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]

# Linux waits at least this long before it resends what an overfull port dropped.
RTO_S_MIN = 0.2


class Servers(NamedTuple):
    """Servers and clients; each client exchanges the whole model with all servers together."""

    clients: Number
    servers: Number
    # Bytes per second that a server receives or sends, and that a client's node does.
    server_rate: Number
    client_rate: Number
    # Clients that share a node and its NIC.
    clients_per_node: Number = 1.0
    # Whether servers run on the clients' nodes, so that a part of the traffic stays inside.
    colocated: bool = True
    # If the nodes of the servers are known: the share of the traffic that leaves the node of the
    # busiest server, and of the busiest client.
    server_away: float | None = None
    client_away: float | None = None

    def away(self) -> tuple[Number, Number]:
        """Return the shares of traffic that cross the network at the busiest server and client."""
        nodes = np.maximum(self.clients / self.clients_per_node, 1.0)
        even = (nodes - 1.0) / nodes if self.colocated else 1.0
        return (
            even if self.server_away is None else self.server_away,
            even if self.client_away is None else self.client_away,
        )


def hottest_bytes(size: Number, servers: Number, largest: Number, *, split: bool) -> Number:
    """Return the bytes on the most loaded server.

    That is an even share, or the largest tensor if that is more and tensors are not split.
    """
    even = size / servers
    return even if split else np.maximum(even, largest)


def one_way_s(size: Number, who: Servers, hot_bytes: Number) -> Number:
    """Return the time in which all clients push, or all pull.

    The most loaded server or the link of the busiest client limits it.
    """
    server_away, client_away = who.away()
    at_server = who.clients * hot_bytes * server_away / who.server_rate
    at_client = who.clients_per_node * size * client_away / who.client_rate
    return np.maximum(at_server, at_client)


def incast_s(clients: Number, window_bytes: Number, buffer_bytes: Number) -> Number:
    """Return the seconds lost to TCP incast, when all clients answer at once into a small buffer.

    The cost is the retransmission time-out, weighted with the share of data that is dropped.
    """
    over = clients * window_bytes / np.maximum(buffer_bytes, 1.0)
    lost = np.clip(1.0 - 1.0 / np.maximum(over, 1.0), 0.0, 1.0)
    return lost * RTO_S_MIN


class Asynchronous(NamedTuple):
    """Asynchronous training: steps per second of all clients, staleness in steps, wait in seconds."""

    steps_per_s: Number
    staleness: Number
    wait_s: Number


def asynchronous(
    size: Number, who: Servers, largest: Number, compute_s: Number, *, split: bool = False
) -> Asynchronous:
    """Return the throughput, staleness and wait at the servers of asynchronous training.

    Every client works at its own pace. The servers are an M/D/1 queue at the load that the clients
    generate; beyond the capacity of the most loaded server, that server limits the rate. Wait and
    load depend on each other, so they are iterated to their fixed point.
    """
    hot = hottest_bytes(size, who.servers, largest, split=split)
    server_away, client_away = who.away()
    # A server receives gradients of one client while it sends parameters to another; a client does
    # both in turn.
    service = hot * server_away / who.server_rate
    wire = size * client_away * who.clients_per_node / who.client_rate
    cycle = compute_s + 2.0 * np.maximum(service, wire)
    wait: Number = 0.0 * cycle
    for _ in range(60):
        load = np.minimum(who.clients * service / (cycle + wait), 0.999)
        wait = 0.5 * wait + 0.5 * load / (2.0 * (1.0 - load)) * service
    rate = np.minimum(who.clients / (cycle + wait), 1.0 / service)
    return Asynchronous(rate, np.maximum(who.clients - 1.0, 0.0), wait)
