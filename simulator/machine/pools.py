"""Node pools: racks whose nodes are rented on demand and returned when idle.

A pool scales the nodes of one rack between two bounds. A requested node arrives after a random
delay, and requests may be refused for a while; the node is paid for from its request to its return.
The number of nodes to request is a pure function of the demand; `Rent` accounts for the cost.
"""

import random
from dataclasses import dataclass, field
from math import ceil

from simulator.config.parsing import BadCluster, Fields

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Pool:
    rack: str
    least: int = 0
    most: int = 0
    # From the request until the node accepts work: the mean, and the relative standard deviation.
    delay_s: float = 180.0
    delay_spread: float = 0.25
    idle_s: float = 600.0
    price_h: float = 0.0
    spot: bool = False
    # The probability that the provider has no capacity, and the request is repeated later.
    refused: float = 0.0


def pool_of(fields: Fields, racks: set[str]) -> Pool:
    rack = fields.label("rack")
    if rack not in racks:
        raise BadCluster(fields.at("rack"), f"names {rack}, which is no rack of this cluster")
    default = Pool(rack)
    pool = Pool(
        rack=rack,
        least=fields.integer("least", 0, least=0, most=100_000),
        most=fields.integer("most", 0, least=0, most=100_000),
        delay_s=fields.number("delay_s", default.delay_s),
        delay_spread=fields.number("delay_spread", default.delay_spread),
        idle_s=fields.number("idle_s", default.idle_s),
        price_h=fields.number("price_h", 0.0),
        spot=fields.flag("spot", False),
        refused=fields.number("refused", 0.0),
    )
    if pool.most < pool.least:
        raise BadCluster(fields.at("most"), f"is less than the {pool.least} that are always there")
    if pool.refused >= 1.0:
        raise BadCluster(fields.at("refused"), "must be below 1, or no node would ever come")
    fields.done()
    return pool


def wanted_nodes(
    pool: Pool, *, waiting_gpus: int, gpus_per_node: int, busy: int, coming: int
) -> int:
    """Return the number of nodes to request now, so that the queued gangs would fit."""
    needed = busy + ceil(waiting_gpus / max(1, gpus_per_node))
    target = max(pool.least, min(pool.most, needed))
    return max(0, target - busy - coming)


def ready_after_s(pool: Pool, request: int, seed: int) -> float:
    """Return the seconds until the node of this request accepts work, with refusals."""
    dice = random.Random(f"{seed}/{pool.rack}/{request}/provision")
    delay = 0.0
    while True:
        delay += max(1.0, pool.delay_s * (1.0 + pool.delay_spread * dice.gauss(0.0, 1.0)))
        if dice.random() >= pool.refused:
            return delay


@dataclass(slots=True)
class Rent:
    """The cost of a pool's nodes so far."""

    price_h: float
    since_s: dict[str, float] = field(default_factory=dict)
    paid_s: float = 0.0

    def begin(self, node: str, now: float) -> None:
        self.since_s.setdefault(node, now)

    def end(self, node: str, now: float) -> None:
        began = self.since_s.pop(node, None)
        if began is not None:
            self.paid_s += now - began

    def paid_for_s(self, now: float) -> float:
        """Return the paid seconds of all nodes together."""
        return self.paid_s + sum(now - began for began in self.since_s.values())

    def cost(self, now: float) -> float:
        return self.paid_for_s(now) / HOUR * self.price_h
