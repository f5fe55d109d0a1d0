"""Push and pull through parameter servers, with the hottest server in mind.

Servers hold whole tensors unless they are split, so the largest tensor decides how unevenly the
load falls; a synchronous step ends with the last flow of the hottest server. Rates are bytes a
second; every function broadcasts.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]

# Linux waits at least this long before it sends again what an overfull port dropped.
RTO_S_MIN = 0.2


class Servers(NamedTuple):
    """Who serves whom: clients each exchange the whole model with all servers together."""

    clients: Number
    servers: Number
    # What a server takes in or gives out in a second, and what a client's node does.
    server_rate: Number
    client_rate: Number
    # Clients that share a node and its NIC.
    clients_per_node: Number = 1.0
    # Servers run on the clients' nodes, so part of the traffic stays inside.
    colocated: bool = True
    # Where it is known which nodes hold the servers: what leaves the node of the busiest server, and
    # of the busiest client, as a share of all that it exchanges.
    server_away: float | None = None
    client_away: float | None = None

    def away(self) -> tuple[Number, Number]:
        """The share that crosses the network at the busiest server, and at the busiest client."""
        nodes = np.maximum(self.clients / self.clients_per_node, 1.0)
        even = (nodes - 1.0) / nodes if self.colocated else 1.0
        return (
            even if self.server_away is None else self.server_away,
            even if self.client_away is None else self.client_away,
        )


def hottest_bytes(size: Number, servers: Number, largest: Number, *, split: bool) -> Number:
    """What the busiest server holds: an even share, or the largest tensor if that is more."""
    even = size / servers
    return even if split else np.maximum(even, largest)


def one_way_s(size: Number, who: Servers, hot_bytes: Number) -> Number:
    """All clients push, or all pull: the hottest server or the busiest client's link decides."""
    server_away, client_away = who.away()
    at_server = who.clients * hot_bytes * server_away / who.server_rate
    at_client = who.clients_per_node * size * client_away / who.client_rate
    return np.maximum(at_server, at_client)


def synchronous_s(size: Number, who: Servers, largest: Number, *, split: bool = False) -> Number:
    """Push and pull of one step.

    They use opposite directions of a link and overlap tensor by tensor; the largest tensor's pull
    cannot begin before its push has ended, so its share of the time is paid twice.
    """
    hot = hottest_bytes(size, who.servers, largest, split=split)
    share = np.minimum(hot if not split else hot / 8.0, size) / size
    twice = np.minimum(1.0, np.minimum(largest / size, 1.0) if not split else share)
    return one_way_s(size, who, hot) * (1.0 + twice)


def incast_s(clients: Number, window_bytes: Number, buffer_bytes: Number) -> Number:
    """What a port with too small a buffer adds when all clients answer at once: a time-out."""
    over = clients * window_bytes / np.maximum(buffer_bytes, 1.0)
    lost = np.clip(1.0 - 1.0 / np.maximum(over, 1.0), 0.0, 1.0)
    return lost * RTO_S_MIN


class Asynchronous(NamedTuple):
    steps_per_s: Number
    staleness: Number
    wait_s: Number


def asynchronous(
    size: Number, who: Servers, largest: Number, compute_s: Number, *, split: bool = False
) -> Asynchronous:
    """Every client goes at its own pace: throughput, staleness, and the wait at the servers.

    The servers are an M/D/1 queue at the load that the clients give them; beyond what the hottest
    one can carry, it sets the pace. The wait and the load depend on each other, so they are
    iterated to their fixed point.
    """
    hot = hottest_bytes(size, who.servers, largest, split=split)
    server_away, client_away = who.away()
    # A server takes in one client's gradients while it gives out another's parameters; a client
    # does both in turn.
    service = hot * server_away / who.server_rate
    wire = size * client_away * who.clients_per_node / who.client_rate
    cycle = compute_s + 2.0 * np.maximum(service, wire)
    wait: Number = 0.0 * cycle
    for _ in range(60):
        load = np.minimum(who.clients * service / (cycle + wait), 0.999)
        wait = 0.5 * wait + 0.5 * load / (2.0 * (1.0 - load)) * service
    rate = np.minimum(who.clients / (cycle + wait), 1.0 / service)
    return Asynchronous(rate, np.maximum(who.clients - 1.0, 0.0), wait)
