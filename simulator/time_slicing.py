"""How fast ranks compute that share a device: weighted time slicing.

A rank asks for some share of its device's time, in thousandths. While several ranks compute on one
device, its time is divided between them as by a fair scheduler with weights (generalised processor
sharing; Parekh and Gallager, 1993):

1. Every rank gets what it can use, up to its share. Shares of one device never exceed the device, so
   this much is always there.
2. Time that a rank cannot use goes to the ranks that can, in proportion to their shares.

What a rank can use depends on what is known of its work. A rank that trains a model can use the
whole device: its compute time is known for a device of its own. A rank of which only the duration is
known can use its share and no more: the duration is what it takes on what it asked for.

While two or more ranks compute, all of them lose `SWITCH_COST` of their speed to switching contexts
and to caches that the others have filled. A rank that computes alone loses nothing.

Only computing is divided. Memory is not: a rank has its share of it from its start to its end.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from simulator.gangs import Key

# A device in thousandths.
WHOLE = 1_000
# An assumption within what time-slicing schedulers report (2 % for Gandiva, up to 5 % for KubeShare);
# it is not fitted to measurements.
SWITCH_COST = 0.05


class Holder(NamedTuple):
    """A rank of a gang that holds a device or a share of one."""

    gang: Key
    rank: int


class Device(NamedTuple):
    node: str
    number: int


class Ask(NamedTuple):
    """What a rank that computes asks of its device, both in thousandths of the device's time."""

    share: int
    # What it could use with the device to itself.
    usable: int


class TimeSlicing:
    """The ranks that compute on shared devices at this moment."""

    def __init__(self) -> None:
        self._asks: dict[Device, dict[Holder, Ask]] = {}
        self._speeds: dict[Device, dict[Holder, float]] = {}

    def enter(self, device: Device, holder: Holder, ask: Ask) -> None:
        """A rank begins to compute; one that computes already has another ask from here on."""
        self._asks.setdefault(device, {})[holder] = ask
        self._speeds.pop(device, None)

    def leave(self, device: Device, holder: Holder) -> bool:
        """A rank no longer computes. Return whether it did."""
        asks = self._asks.get(device)
        if asks is None or holder not in asks:
            return False
        del asks[holder]
        self._speeds.pop(device, None)
        if not asks:
            del self._asks[device]
        return True

    def holders(self, device: Device) -> Iterable[Holder]:
        """The ranks that compute on a device, in the order in which they began."""
        return self._asks.get(device, {}).keys()

    def speed(self, device: Device, holder: Holder) -> float:
        """The part of its own speed at which a rank computes; 1 for a rank that does not compute."""
        speeds = self._speeds.get(device)
        if speeds is None:
            speeds = self._speeds[device] = speeds_of(self._asks.get(device, {}))
        return speeds.get(holder, 1.0)


def speeds_of(asks: Mapping[Holder, Ask]) -> dict[Holder, float]:
    """The part of its own speed for every rank that computes on one device."""
    given = _divided(asks)
    kept = 1.0 - SWITCH_COST if len(asks) > 1 else 1.0
    return {holder: kept * given[holder] / ask.usable for holder, ask in asks.items()}


def _divided(asks: Mapping[Holder, Ask]) -> dict[Holder, float]:
    """The thousandths of the device's time that every rank gets (progressive filling)."""
    given: dict[Holder, float] = {}
    left, weight = float(WHOLE), sum(ask.share for ask in asks.values())
    # In this order a rank that can use less than its part leaves the rest to those behind it.
    for holder, ask in sorted(asks.items(), key=lambda entry: entry[1].usable / entry[1].share):
        given[holder] = min(float(ask.usable), left * ask.share / weight)
        left -= given[holder]
        weight -= ask.share
    return given
