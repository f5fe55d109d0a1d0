"""The speed of ranks that share a device: weighted time slicing.

A rank requests a share of its device's time, in thousandths. While several ranks compute on one
device, its time is divided between them as by a weighted fair scheduler (generalised processor
sharing; Parekh and Gallager, 1993):

1. Every rank gets what it can use, up to its share. The shares of one device never exceed the
   device, so this much is always available.
2. Time that a rank cannot use goes to the ranks that can, in proportion to their shares.

What a rank can use depends on what is known about its work. A rank that trains a model can use the
whole device: its compute time is known for a device of its own. A rank with a fixed duration can
use its share and no more: the duration holds for the share that it requested.

While two or more ranks compute, all of them lose `SWITCH_COST` of their speed to context switches
and to caches that other ranks have filled. A rank that computes alone loses nothing.

Only compute time is divided. Memory is not: a rank has its share of it from its start to its end.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from simulator.machine.gang import Key

# A device in thousandths.
WHOLE = 1_000
# An assumption within the range that time-slicing schedulers report (2 % for Gandiva, up to 5 % for
# KubeShare); it is not fitted to measurements.
SWITCH_COST = 0.05


class Owner(NamedTuple):
    """A rank of a gang that holds a device or a share of one."""

    gang: Key
    rank: int


class Device(NamedTuple):
    """A device of a node, by its index."""

    node: str
    number: int


class Ask(NamedTuple):
    """The request of a computing rank, both in thousandths of the device's time."""

    share: int
    # What it could use with the device to itself.
    usable: int


class TimeSlicing:
    """The ranks that compute on shared devices at this moment."""

    def __init__(self) -> None:
        self._asks: dict[Device, dict[Owner, Ask]] = {}
        self._speeds: dict[Device, dict[Owner, float]] = {}

    def enter(self, device: Device, owner: Owner, ask: Ask) -> None:
        """Add a computing rank; `ask` replaces the one of a rank that computes already."""
        self._asks.setdefault(device, {})[owner] = ask
        self._speeds.pop(device, None)

    def leave(self, device: Device, owner: Owner) -> bool:
        """Remove a computing rank; return whether it was there."""
        asks = self._asks.get(device)
        if asks is None or owner not in asks:
            return False
        del asks[owner]
        self._speeds.pop(device, None)
        if not asks:
            del self._asks[device]
        return True

    def owners(self, device: Device) -> Iterable[Owner]:
        """The ranks that compute on a device, in the order in which they began."""
        return self._asks.get(device, {}).keys()

    def speed(self, device: Device, owner: Owner) -> float:
        """Return a rank's share of its own speed; 1 for a rank that does not compute."""
        speeds = self._speeds.get(device)
        if speeds is None:
            speeds = self._speeds[device] = speeds_of(self._asks.get(device, {}))
        return speeds.get(owner, 1.0)


def speeds_of(asks: Mapping[Owner, Ask]) -> dict[Owner, float]:
    """Return for every rank that computes on one device the share of its own speed."""
    given = _divided(asks)
    kept = 1.0 - SWITCH_COST if len(asks) > 1 else 1.0
    return {owner: kept * given[owner] / ask.usable for owner, ask in asks.items()}


def _divided(asks: Mapping[Owner, Ask]) -> dict[Owner, float]:
    """Return the thousandths of the device's time that every rank gets (progressive filling)."""
    given: dict[Owner, float] = {}
    left, weight = float(WHOLE), sum(ask.share for ask in asks.values())
    # In this order a rank that cannot use its part leaves the rest to the ranks after it.
    for owner, ask in sorted(asks.items(), key=lambda entry: entry[1].usable / entry[1].share):
        given[owner] = min(float(ask.usable), left * ask.share / weight)
        left -= given[owner]
        weight -= ask.share
    return given
