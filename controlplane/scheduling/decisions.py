"""What one pass decides, as values; `enactment.py` makes events of them."""

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.model import Placement
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.reasons import Reason


class Start(NamedTuple):
    """The gang starts there now; an elastic one perhaps with fewer ranks than it would like."""

    job: str
    fit: Fit


class Claim(NamedTuple):
    """The gang starts there as soon as those have left who still hold some of it."""

    job: str
    fit: Fit


class Evict(NamedTuple):
    """The whole gang gives way. One that is moved has a place to go to."""

    job: str
    preemptor: str
    message: str
    moves_to: Fit | None = None


class Shrink(NamedTuple):
    """An elastic gang gives ranks back that it can do without."""

    job: str
    ranks: tuple[int, ...]
    preemptor: str


class Replace(NamedTuple):
    """Ranks that were lost get other devices."""

    job: str
    ranks: tuple[int, ...]
    slots: Placement


class GiveUp(NamedTuple):
    """A gang that lost ranks cannot be made whole where it is, and starts again as a whole."""

    job: str
    message: str
    reason: Reason


class Hold(NamedTuple):
    """The gang waits, for these reasons, the foremost first."""

    job: str
    reasons: tuple[Reason, ...]


Decision = Start | Claim | Evict | Shrink | Replace | GiveUp | Hold


def one_for_each_job(decisions: Sequence[Decision]) -> list[Decision]:
    """The decisions, in order, without reasons to wait of jobs about which more was decided.

    A gang may be held at its own turn and start later in the pass with its group.
    """
    decided = {d.job for d in decisions if not isinstance(d, Hold)}
    found: list[Decision] = []
    for decision in decisions:
        if isinstance(decision, Hold):
            if decision.job in decided:
                continue
            decided.add(decision.job)
        found.append(decision)
    return found
