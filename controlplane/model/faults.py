"""Faults that a person asks a simulated cluster for, to see what happens."""

from enum import StrEnum

from controlplane.model.values import Value

# The usual notice of a provider that takes a node back.
NOTICE_S = 120.0


class NodeFaultKind(StrEnum):
    """What fails. The first three take the node down; the others leave it up and slow it."""

    CRASH = "crash"
    # The provider takes the node back, after a notice in which ranks can write a checkpoint.
    SPOT_RECLAIM = "spot_reclaim"
    MAINTENANCE = "maintenance"
    # Its devices, its network or its storage keep only a part of their speed.
    SLOW = "slow"
    LINK = "link"
    STORAGE = "storage"

    @property
    def takes_node(self) -> bool:
        return self in (NodeFaultKind.CRASH, NodeFaultKind.SPOT_RECLAIM, NodeFaultKind.MAINTENANCE)


class NodeFaultSpec(Value, frozen=True):
    """A fault of one node; times are seconds of the cluster's clock.

    `duration_s` is None for a fault that is never repaired. `factor` is the part of its speed that a
    slow node keeps. `notice_s` is how long before it goes a node that is reclaimed gets notice.
    """

    kind: NodeFaultKind
    duration_s: float | None = None
    factor: float = 1.0
    notice_s: float = 0.0
