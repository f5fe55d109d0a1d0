"""Faults as values.

A fault takes a node down (`crash`, `spot_reclaim`, `maintenance`), or leaves it up and reduces the
speed of its devices (`slow`), its links (`link`) or its storage (`storage`).
"""

from dataclasses import dataclass
from enum import StrEnum

from simulator.faults.presets import Preset


class FaultKind(StrEnum):
    CRASH = "crash"
    SPOT_RECLAIM = "spot_reclaim"
    MAINTENANCE = "maintenance"
    # Not a fault: the pool returns the node.
    GIVEN_BACK = "given_back"
    SLOW = "slow"
    LINK = "link"
    STORAGE = "storage"

    @property
    def takes_node(self) -> bool:
        return self not in (FaultKind.SLOW, FaultKind.LINK, FaultKind.STORAGE)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one node. Without `repair_s` it is permanent."""

    at_s: float
    node: str
    repair_s: float | None = None
    kind: FaultKind = FaultKind.CRASH
    # Which part failed, for people.
    cause: str = ""
    # The remaining fraction of the speed of a node that stays up.
    factor: float = 1.0
    # The notice that the node's ranks get, in which they can write a checkpoint.
    notice_s: float = 0.0

    @property
    def over_at_s(self) -> float:
        return float("inf") if self.repair_s is None else self.at_s + self.repair_s


@dataclass(frozen=True, slots=True)
class Window:
    """Planned, repeated maintenance of the nodes of a rack, or of all nodes without one."""

    at_s: float
    duration_s: float
    rack: str = ""
    every_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """Spot nodes: the mean time until one is reclaimed, the notice, and how long it is away."""

    mean_s: float
    notice_s: float = 120.0
    gone_s: float = 1800.0
    # The racks with spot nodes; empty for all racks.
    racks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FaultModel:
    """The faults of a cluster: mean times to failure and to repair, presets, and a script."""

    node_mtbf_s: float | None = None
    node_repair_s: float = 600.0
    script: tuple[Fault, ...] = ()
    preset: Preset | None = None
    windows: tuple[Window, ...] = ()
    spot: Spot | None = None
