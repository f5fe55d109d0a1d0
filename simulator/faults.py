"""What goes wrong with nodes, and when: by a script, and by chance from one seed.

Chance draws from one stream a node, so another node in the cluster changes nothing for the rest;
and times count from the cluster's birth, so a model that is built again later goes on where the
first one would be by then.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    CRASH = "crash"
    SPOT_RECLAIM = "spot_reclaim"


@dataclass(frozen=True, slots=True)
class Fault:
    """One node fails. Without `repair_s` it never comes back."""

    at_s: float
    node: str
    repair_s: float | None = None
    kind: FaultKind = FaultKind.CRASH

    @property
    def over_at_s(self) -> float:
        return float("inf") if self.repair_s is None else self.at_s + self.repair_s


@dataclass(frozen=True, slots=True)
class FaultModel:
    """Mean times of a node between repair and crash, and from crash to repair; and a script."""

    node_mtbf_s: float | None = None
    node_repair_s: float = 600.0
    script: tuple[Fault, ...] = ()


def chance_crashes(node: str, model: FaultModel, seed: int) -> Iterator[Fault]:
    """The crashes of one node for ever, in the order of time; none without a mean time."""
    if model.node_mtbf_s is None:
        return
    # A string seeds through SHA-512, so the stream does not hang on PYTHONHASHSEED.
    dice = random.Random(f"{seed}/{node}/crash")
    at_s = 0.0
    while True:
        at_s += dice.expovariate(1.0 / model.node_mtbf_s)
        repair_s = dice.expovariate(1.0 / model.node_repair_s)
        yield Fault(at_s, node, repair_s)
        at_s += repair_s
