"""Faults as values.

A fault takes a node down (`crash`, `spot_reclaim`, `maintenance`), or leaves it up and makes what
runs there slower: the node computes (`slow`), its links carry (`link`), or its storage delivers
(`storage`) only a part of what they should.
"""

from dataclasses import dataclass
from enum import StrEnum

from simulator.faults.presets import Preset


class FaultKind(StrEnum):
    CRASH = "crash"
    SPOT_RECLAIM = "spot_reclaim"
    MAINTENANCE = "maintenance"
    # No fault: a pool has no more use for the node.
    GIVEN_BACK = "given_back"
    SLOW = "slow"
    LINK = "link"
    STORAGE = "storage"

    @property
    def takes_node(self) -> bool:
        return self not in (FaultKind.SLOW, FaultKind.LINK, FaultKind.STORAGE)


@dataclass(frozen=True, slots=True)
class Fault:
    """One node fails. Without `repair_s` it never comes back."""

    at_s: float
    node: str
    repair_s: float | None = None
    kind: FaultKind = FaultKind.CRASH
    # Which part failed, for people.
    cause: str = ""
    # What is left of the speed of a node that stays up.
    factor: float = 1.0
    # How long before it the node's ranks are told, so that they can write a checkpoint.
    notice_s: float = 0.0

    @property
    def over_at_s(self) -> float:
        return float("inf") if self.repair_s is None else self.at_s + self.repair_s


@dataclass(frozen=True, slots=True)
class Window:
    """Planned maintenance: nodes of a rack (of all, without one) are down for a while, repeatedly."""

    at_s: float
    duration_s: float
    rack: str = ""
    every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """Nodes that the cloud takes back: how often each, with what notice, and for how long."""

    mean_s: float
    notice_s: float = 120.0
    gone_s: float = 1800.0
    # The racks that are rented so; all of them without any.
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FaultModel:
    """Mean times of a node between repair and crash, and from crash to repair; and a script."""

    node_mtbf_s: float | None = None
    node_repair_s: float = 600.0
    script: tuple[Fault, ...] = ()
    preset: Preset | None = None
    windows: tuple[Window, ...] = ()
    spot: Spot | None = None
