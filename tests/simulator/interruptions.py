"""A reference model of one job on many nodes: how often it is interrupted, and what checkpoints save.

It has no events. It merges the streams of faults and walks through them, so a run of months on
thousands of nodes takes a second.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simulator.faults.chance import node_faults, rack_faults
from simulator.faults.model import Fault, FaultModel
from simulator.training.checkpoints import Checkpointing


class Run(NamedTuple):
    """What became of a run. Seconds."""

    interruptions: int
    wall_s: float
    # Work that was done twice because no checkpoint held it.
    lost_s: float
    # Writing checkpoints, and starting again.
    written_s: float
    restarted_s: float
    causes: dict[str, int]

    @property
    def effective(self) -> float:
        """The share of the wall time in which the run got further."""
        spent = self.lost_s + self.written_s + self.restarted_s
        return 1.0 - spent / self.wall_s if self.wall_s > 0 else 1.0


def faults_of(racks: dict[str, tuple[str, ...]], model: FaultModel, seed: int) -> Iterator[Fault]:
    """Faults of all nodes that take one down, in the order of time."""
    streams: list[Iterable[Fault]] = []
    for rack, nodes in racks.items():
        streams += [node_faults(node, rack, model, seed) for node in nodes]
        streams.append(rack_faults(rack, nodes, model, seed))
    merged = heapq.merge(*streams, key=lambda fault: fault.at_s)
    return (fault for fault in merged if fault.kind.takes_node)


def interruptions(
    racks: dict[str, tuple[str, ...]],
    model: FaultModel,
    seed: int,
    *,
    for_s: float,
    restart_s: float,
    how: Checkpointing | None = None,
) -> Run:
    """A gang that always has all its nodes, because spares replace what fails.

    Faults that fall into a restart, and those that strike several nodes at once, count once.
    """
    count, lost, written, restarted, back_s, since_s = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    causes: dict[str, int] = {}
    for fault in faults_of(racks, model, seed):
        if fault.at_s >= for_s:
            break
        if fault.at_s < back_s:
            continue
        count += 1
        causes[fault.cause] = causes.get(fault.cause, 0) + 1
        done_s = fault.at_s - since_s
        pause, kept = _kept(done_s, how)
        lost += done_s - pause - kept
        written += pause
        restarted += restart_s
        back_s = since_s = fault.at_s + restart_s
    return Run(count, for_s, lost, written, restarted, causes)


def _kept(done_s: float, how: Checkpointing | None) -> tuple[float, float]:
    """Of so much time since the start, what went into checkpoints and what work they hold."""
    if how is None or how.interval_s <= 0.0:
        return 0.0, 0.0
    whole = done_s // (how.interval_s + how.write_s)
    return whole * how.write_s, whole * how.interval_s
