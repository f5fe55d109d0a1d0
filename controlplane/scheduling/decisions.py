"""The decisions of a pass, as values; `decisions/scheduling_events.py` makes events of them."""

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.model.cluster import Placement
from controlplane.model.reasons import MovedAside, NoRoomInDomain, Preempted, Wait
from controlplane.scheduling.placement.fit import Fit


class Start(NamedTuple):
    """The gang starts at `fit` now; an elastic gang possibly with fewer ranks than it asks for."""

    job: str
    fit: Fit


class Claim(NamedTuple):
    """The gang starts at `fit` as soon as the gangs that still hold some of it have released it."""

    job: str
    fit: Fit


class Evict(NamedTuple):
    """The whole gang is preempted. A gang that is moved (consolidation) has a place to go to."""

    job: str
    preemptor: str
    facts: Preempted | MovedAside
    moves_to: Fit | None = None


class Shrink(NamedTuple):
    """An elastic gang releases ranks above its minimum."""

    job: str
    ranks: tuple[int, ...]
    preemptor: str


class Replace(NamedTuple):
    """Lost ranks get other devices."""

    job: str
    ranks: tuple[int, ...]
    slots: Placement


class Grow(NamedTuple):
    """A running gang gets more ranks, numbered from `first` on."""

    job: str
    first: int
    placement: Placement


class GiveUp(NamedTuple):
    """A gang that lost ranks cannot be repaired where it is, and restarts as a whole."""

    job: str
    facts: NoRoomInDomain
    reason: Wait


class KeepWaiting(NamedTuple):
    """The gang waits, for these reasons, the most important first."""

    job: str
    reasons: tuple[Wait, ...]


SchedulingDecision = Start | Claim | Evict | Shrink | Replace | Grow | GiveUp | KeepWaiting


def one_for_each_job(decisions: Sequence[SchedulingDecision]) -> list[SchedulingDecision]:
    """The decisions in order, without wait reasons for jobs that have another decision.

    A gang may wait at its own turn and start later in the pass with its group.
    """
    decided = {d.job for d in decisions if not isinstance(d, KeepWaiting)}
    kept: list[SchedulingDecision] = []
    for decision in decisions:
        if isinstance(decision, KeepWaiting):
            if decision.job in decided:
                continue
            decided.add(decision.job)
        kept.append(decision)
    return kept
