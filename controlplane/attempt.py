"""One try at running a gang, and its ranks.

An attempt holds a rank's devices from the placement until the cluster says that the rank has
exited or is gone. A rank in back-off keeps them, since nothing else may take its place.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec.structs import replace

from controlplane import events as e
from controlplane.model import Cause, Exit, Placement, Value


class AttemptState(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    OVER = "Over"


class RankState(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    BACKOFF = "Backoff"
    LOST = "Lost"
    EXITED = "Exited"
    GONE = "Gone"


LIVE = (AttemptState.STARTING, AttemptState.RUNNING)
# In these states a rank's devices are nobody else's.
HOLDING = frozenset({RankState.PENDING, RankState.RUNNING, RankState.BACKOFF, RankState.LOST})

# A verdict, a restart or a suspension of the job tells a live attempt to stop.
STOPPERS: tuple[type[e.JobEvent], ...] = (
    e.JobRestarting,
    e.JobSuspended,
    e.JobSucceeded,
    e.JobFailed,
    e.JobCancelled,
)
ATTEMPT_TRANSITIONS: dict[tuple[AttemptState, type[e.Event]], AttemptState] = {
    (AttemptState.STARTING, e.GangStarted): AttemptState.RUNNING,
    **{(state, event): AttemptState.STOPPING for state in LIVE for event in STOPPERS},
    (AttemptState.STOPPING, e.AttemptEnded): AttemptState.OVER,
}


class Rank(Value, frozen=True, array_like=True):
    """One replica as the log knows it. Incarnations count its runs within the attempt."""

    state: RankState = RankState.PENDING
    incarnation: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    cause: Cause | None = None
    retry_at: float | None = None
    message: str = ""
    # When it was launched once more by itself; the first launch is the attempt's placement.
    relaunched_at: float | None = None


class Attempt(Value, frozen=True, kw_only=True):
    number: int
    placement: Placement
    ranks: tuple[Rank, ...]
    state: AttemptState
    placed_at: float
    # How many ranks are up (running, or ended after running) and how many hold their devices.
    # Both could be counted from `ranks`; keeping them makes a report cost the same in a gang of a
    # thousand, and `World.check` counts them again.
    up: int
    holding: int
    running_at: float | None = None
    ended_at: float | None = None


def launched_at(attempt: Attempt, rank: Rank) -> float:
    """When the rank was last asked for."""
    return attempt.placed_at if rank.relaunched_at is None else rank.relaunched_at


_PENDING = Rank()


def placed(event: e.GangPlaced, at: float) -> Attempt:
    """The first state of an attempt."""
    size = len(event.placement)
    return Attempt(
        number=event.attempt,
        placement=event.placement,
        ranks=(_PENDING,) * size,
        state=AttemptState.STARTING,
        placed_at=at,
        up=0,
        holding=size,
    )


def evolve(attempt: Attempt | None, event: e.Event, at: float) -> Attempt | None:
    """The attempt after an event of its job, whether or not the event is about it."""
    if attempt is None:
        return None
    state = ATTEMPT_TRANSITIONS.get((attempt.state, type(event)), attempt.state)
    if state is not attempt.state:
        attempt = replace(attempt, state=state)
        if state is AttemptState.STOPPING:
            attempt = _dismissed(attempt)
    return _after(attempt, event, at)


def _dismissed(attempt: Attempt) -> Attempt:
    """Ranks in back-off have no process that could be reported gone: they let go at once."""
    idle = [i for i, rank in enumerate(attempt.ranks) if rank.state is RankState.BACKOFF]
    if not idle:
        return attempt
    changes = [(i, replace(attempt.ranks[i], state=RankState.EXITED, retry_at=None)) for i in idle]
    return _changed(attempt, changes)


def _after(attempt: Attempt, event: e.Event, at: float) -> Attempt:
    ranks = attempt.ranks
    match event:
        case e.RanksStarted():
            up = {"state": RankState.RUNNING, "started_at": at}
            return _changed(attempt, [(i, replace(ranks[i], **up)) for i in event.ranks])
        case e.GangStarted():
            return replace(attempt, running_at=at)
        case e.RanksExited():
            return _changed(attempt, [(x.rank, _ended(ranks[x.rank], x, at)) for x in event.exits])
        case e.RanksLost(message=message):
            lost = {"state": RankState.LOST, "cause": Cause.NODE_LOST, "message": message}
            return _changed(attempt, [(i, replace(ranks[i], **lost)) for i in event.ranks])
        case e.RanksGone():
            gone = {"state": RankState.GONE, "ended_at": at}
            return _changed(attempt, [(i, replace(ranks[i], **gone)) for i in event.ranks])
        case e.RankRestarting(rank=rank, retry_at=retry_at):
            waiting = replace(ranks[rank], state=RankState.BACKOFF, retry_at=retry_at)
            return _changed(attempt, [(rank, waiting)])
        case e.RankRelaunched(rank=rank):
            again = Rank(incarnation=ranks[rank].incarnation + 1, relaunched_at=at)
            return _changed(attempt, [(rank, again)])
        case e.AttemptEnded():
            return replace(attempt, ended_at=at)
        case _:
            return attempt


def _ended(rank: Rank, exit: Exit, at: float) -> Rank:
    return replace(
        rank,
        state=RankState.EXITED,
        ended_at=at,
        exit_code=exit.code,
        cause=exit.cause,
        message=exit.message,
    )


# A rank in one of these states has been up, whatever became of it since.
_UP = frozenset({RankState.RUNNING, RankState.EXITED})


def _changed(attempt: Attempt, changes: Iterable[tuple[int, Rank]]) -> Attempt:
    """The attempt with some ranks replaced, and its counters kept true."""
    ranks = list(attempt.ranks)
    up, holding = attempt.up, attempt.holding
    for index, rank in changes:
        before = ranks[index].state
        up += (rank.state in _UP) - (before in _UP)
        holding += (rank.state in HOLDING) - (before in HOLDING)
        ranks[index] = rank
    return replace(attempt, ranks=tuple(ranks), up=up, holding=holding)


def count_up(attempt: Attempt) -> int:
    return sum(rank.state in _UP for rank in attempt.ranks)


def count_holding(attempt: Attempt) -> int:
    return sum(rank.state in HOLDING for rank in attempt.ranks)
