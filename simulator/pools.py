"""Capacity that moves: racks whose nodes are rented when they are wanted and given back when idle.

A pool scales the nodes of one rack between two bounds. A node that is wanted comes after a delay
that varies, and may not come at all while the provider has none; it is paid for from when it is
asked for until it is given back. The decision is a pure function of what is wanted, what is there
and for how long it has been idle; what carries it out keeps the books in `Rent`.
"""

import random
from dataclasses import dataclass, field
from math import ceil

from simulator.fields import BadCluster, Fields

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Pool:
    rack: str
    least: int = 0
    most: int = 0
    # From the request until the node takes work: the mean, and how much it varies.
    delay_s: float = 180.0
    delay_spread: float = 0.25
    idle_s: float = 600.0
    price_h: float = 0.0
    spot: bool = False
    # How often a request is refused for want of capacity, and is made again later.
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
    """How many more nodes to ask for now, so that what waits would fit."""
    needed = busy + ceil(waiting_gpus / max(1, gpus_per_node))
    target = max(pool.least, min(pool.most, needed))
    return max(0, target - busy - coming)


def ready_after_s(pool: Pool, request: int, seed: int) -> float:
    """When the node of this request takes work, refusals and all."""
    dice = random.Random(f"{seed}/{pool.rack}/{request}/provision")
    delay = 0.0
    while True:
        delay += max(1.0, pool.delay_s * (1.0 + pool.delay_spread * dice.gauss(0.0, 1.0)))
        if dice.random() >= pool.refused:
            return delay


@dataclass(slots=True)
class Rent:
    """What a pool's nodes have cost so far."""

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
        """Seconds of all nodes together."""
        return self.paid_s + sum(now - began for began in self.since_s.values())

    def cost(self, now: float) -> float:
        return self.paid_for_s(now) / HOUR * self.price_h
