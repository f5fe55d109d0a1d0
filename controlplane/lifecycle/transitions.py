"""The transition table: which event may happen to a job, and which phase it leads to.

Every event about a job goes through this table before it is folded, whether the control plane has
just decided it or reads it back from the log; h11 does the same for the events of an HTTP
connection. The classes in `controlplane/model/events.py` declare the rows. `require_allowed`
refuses an event if

1. the job's phase, or the state of its last attempt, is not one that the event's class lists;
2. the event names another attempt than the job's last one;
3. the event names a rank that the attempt does not have, names one twice, or one whose state the
   class does not list.

A refused event is a bug of the control plane, or a log that records what cannot have happened: its
hashes may be right, and replay still stops at the position of the event. Further requirements of
single events (an attempt ends only when no rank has devices) are checked where the event is folded.
"""

from collections.abc import Iterable
from typing import NoReturn

from controlplane.lifecycle.attempt import Attempt
from controlplane.model import events as e
from controlplane.model.errors import ImpossibleEvent
from controlplane.model.phases import AttemptState, Phase

# The phase that each event leads to, from each phase in which it may happen. Restarting is the wait
# for the back-off to pass and for the last attempt to be over; a resumed job goes through it too.
TRANSITIONS: dict[tuple[Phase, type[e.Event]], Phase] = {
    (phase, kind): phase if kind.leads_to is None else kind.leads_to
    for kind in e.JOB_EVENTS
    for phase in kind.allowed_in
}

_ALLOWED: frozenset[tuple[type[e.Event], Phase, AttemptState | None]] = frozenset(
    (kind, phase, state)
    for kind in e.JOB_EVENTS
    for phase in kind.allowed_in
    for state in kind.attempt_in
)


def require_allowed(event: e.JobEvent, phase: Phase, attempt: Attempt | None) -> None:
    """Raise ImpossibleEvent unless the table allows the event for a job in this phase and attempt."""
    state = None if attempt is None else attempt.state
    if (type(event), phase, state) not in _ALLOWED:
        _refuse(event, _why_not_here(event, phase, state))
    number = event.attempt_number
    if number is None:
        return
    if attempt is None:
        _refuse(event, f"it is about attempt {number}, and the job was never placed")
    if number != attempt.number:
        _refuse(event, f"it is about attempt {number}, and the job is at attempt {attempt.number}")
    if isinstance(event, e.RankEvent):
        _require_ranks(event, attempt)


def _require_ranks(event: e.RankEvent, attempt: Attempt) -> None:
    numbers, ranks = event.rank_numbers, attempt.ranks
    if len(set(numbers)) != len(numbers):
        _refuse(event, "it names a rank twice")
    for number in numbers:
        if not 0 <= number < len(ranks):
            _refuse(event, f"there is no rank {number}; attempt {attempt.number} has {len(ranks)}")
        if ranks[number].state not in event.ranks_in:
            _refuse(
                event,
                f"rank {number} is {ranks[number].state}, and it must be {_one_of(event.ranks_in)}",
            )


def _why_not_here(event: e.JobEvent, phase: Phase, state: AttemptState | None) -> str:
    if phase not in event.allowed_in:
        return f"the job is {phase}, and it must be {_one_of(event.allowed_in)}"
    where = "has no attempt" if state is None else f"has an attempt that is {state}"
    states = _one_of("none" if each is None else each for each in event.attempt_in)
    return f"the job is {phase} and {where}, and its attempt must be {states}"


def _one_of(names: Iterable[str]) -> str:
    return " or ".join(sorted(names)) or "new"


def _refuse(event: e.JobEvent, why: str) -> NoReturn:
    raise ImpossibleEvent(f"{type(event).__name__} cannot happen to job {event.job}: {why}")
