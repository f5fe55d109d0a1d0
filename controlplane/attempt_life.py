"""What events make of an attempt and its ranks."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from controlplane import events as e
from controlplane.attempt import (
    ATTEMPT_TRANSITIONS,
    HOLDING,
    MISSING,
    Attempt,
    AttemptState,
    Rank,
    RankState,
    lacks_image,
)
from controlplane.model import Cause, JobSpec, Repair, goes_on_smaller

RankChanges = list[tuple[int, Rank]]

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
        shares=event.shares,
        flavor=event.flavor,
        step_at=event.step_at,
        safe_until=event.safe_until,
    )


# The next functions run for nearly every event of a replay, and looking a member up in its enum
# costs as much as making a new value.
_RUNNING, _EXITED, _BACKOFF = RankState.RUNNING, RankState.EXITED, RankState.BACKOFF
_STOPPING, _OVER = AttemptState.STOPPING, AttemptState.OVER


def moved(attempt: Attempt | None, event: e.JobEvent, at: float) -> Attempt | None:
    """The attempt after an event that may move it along its table."""
    if attempt is None:
        return None
    state = ATTEMPT_TRANSITIONS.get((attempt.state, type(event)))
    if state is None:
        return attempt
    if state is _STOPPING:
        return _changed(replace(attempt, state=state), _dismissed(attempt.ranks))
    if state is _OVER:
        return replace(attempt, state=state, ended_at=at)
    return replace(attempt, state=state, running_at=at)


def started(attempt: Attempt, event: e.RanksStarted, at: float) -> Attempt:
    """Ranks that were pending run."""
    ranks = list(attempt.ranks)
    for index in event.ranks:
        rank = ranks[index]
        # What kept it from starting, if anything, does so no more.
        kept = {"message": ""} if rank.message else {}
        ranks[index] = replace(rank, state=_RUNNING, started_at=at, **kept)
    begun = replace(attempt, ranks=tuple(ranks), up=attempt.up + len(event.ranks))
    return begun if attempt.imageless_at is None else _with_images(begun, at)


def exited(attempt: Attempt, event: e.RanksExited, at: float) -> Attempt:
    """Ranks that held their devices have let go of them, unless they are to run once more."""
    ranks, up, holding = list(attempt.ranks), attempt.up, attempt.holding
    for end in event.exits:
        rank = ranks[end.rank]
        if rank.retry_at is not None:
            ranks[end.rank] = replace(rank, state=_BACKOFF, ended_at=at, exit_code=end.code)
            continue
        holding -= 1
        up += rank.state is not _RUNNING
        ranks[end.rank] = replace(
            rank,
            state=_EXITED,
            ended_at=at,
            exit_code=end.code,
            cause=end.cause,
            message=end.message,
            lines=end.lines,
        )
    ended = replace(attempt, ranks=tuple(ranks), up=up, holding=holding)
    return ended if attempt.imageless_at is None else _with_images(ended, at)


def added(attempt: Attempt, event: e.RanksAdded, at: float) -> Attempt:
    """The gang with more ranks at its end, where earlier ones may have been let go before."""
    first, slots, size = event.first, event.placement, len(attempt.ranks)
    held = [i for i in range(first, size) if attempt.ranks[i].state in HOLDING]
    assert not held, f"ranks {held} still hold their devices, so none can take their numbers"
    runs = [
        attempt.ranks[i].incarnation + 1 if i < size else 0
        for i in range(first, first + len(slots))
    ]
    ranks = [*attempt.ranks[:first], *(Rank(incarnation=run, relaunched_at=at) for run in runs)]
    grown = replace(attempt, ranks=tuple(ranks), placement=(*attempt.placement[:first], *slots))
    return _with_images(replace(grown, up=count_up(grown), holding=count_holding(grown)), at)


def staying(attempt: Attempt, size: int) -> int:
    """How many of the first `size` ranks are there to stay: all before one that was let go."""
    ranks = attempt.ranks[:size]
    return next((i for i, rank in enumerate(ranks) if rank.let_go), len(ranks))


def replaced(attempt: Attempt, event: e.RanksReplaced, at: float) -> Attempt:
    """Ranks of which nothing was left get other slots, and are to be launched there."""
    placement = list(attempt.placement)
    changes: RankChanges = []
    for index, slot in zip(event.ranks, event.slots, strict=True):
        placement[index] = slot
        run = attempt.ranks[index].incarnation + 1
        changes.append((index, Rank(incarnation=run, relaunched_at=at)))
    mended = replace(attempt, placement=tuple(placement), mended=attempt.mended + 1)
    return _with_images(_changed(mended, changes), at)


def with_ranks(attempt: Attempt, event: e.JobEvent, at: float) -> Attempt:
    """The attempt after one of the rarer events about its ranks."""
    changed = _changed(attempt, _RANK_CHANGES[type(event)](attempt.ranks, event, at))
    if attempt.imageless_at is None and type(event) is not e.RanksStuck:
        return changed
    return _with_images(changed, at)


def _with_images(attempt: Attempt, at: float) -> Attempt:
    """The attempt that knows whether ranks of it still, or by now, wait for images."""
    if any(lacks_image(rank) for rank in attempt.ranks):
        return attempt if attempt.imageless_at is not None else replace(attempt, imageless_at=at)
    return attempt if attempt.imageless_at is None else replace(attempt, imageless_at=None)


def _dismissed(ranks: tuple[Rank, ...]) -> RankChanges:
    """No rank runs once more. Those in back-off have no process that could be reported gone, so
    they let go at once; the others that were to run again let go when the old process is gone."""
    return [
        (
            index,
            replace(rank, state=_EXITED if rank.state is _BACKOFF else rank.state, retry_at=None),
        )
        for index, rank in enumerate(ranks)
        if rank.retry_at is not None
    ]


def _lost(ranks: tuple[Rank, ...], event: e.RanksLost, at: float) -> RankChanges:
    lost = {
        "state": RankState.LOST,
        "cause": event.cause,
        "message": event.message,
        "retry_at": None,
    }
    let_go = event.cause is Cause.SCALED
    return [(i, replace(ranks[i], **lost, let_go=let_go or ranks[i].let_go)) for i in event.ranks]


def _stuck(ranks: tuple[Rank, ...], event: e.RanksStuck, at: float) -> RankChanges:
    return [(i, replace(ranks[i], message=event.message)) for i in event.ranks]


def _gone(ranks: tuple[Rank, ...], event: e.RanksGone, at: float) -> RankChanges:
    return [(i, _gone_rank(ranks[i], at)) for i in event.ranks]


def _gone_rank(rank: Rank, at: float) -> Rank:
    """A rank that is to run once more keeps its devices although nothing runs on them now."""
    state = RankState.GONE if rank.retry_at is None else RankState.BACKOFF
    return replace(rank, state=state, ended_at=at)


def _waiting(ranks: tuple[Rank, ...], event: e.RankRestarting, at: float) -> RankChanges:
    """Back-off begins when the old process is gone, so that a rank never runs twice at once."""
    rank = ranks[event.rank]
    state = RankState.LOST if rank.state is RankState.LOST else RankState.BACKOFF
    return [(event.rank, replace(rank, state=state, retry_at=event.retry_at))]


def _restarted_in_place(
    ranks: tuple[Rank, ...], event: e.RanksRestartedInPlace, at: float
) -> RankChanges:
    return [(i, replace(ranks[i], restarted=count)) for i, count in event.counts]


def _relaunched(ranks: tuple[Rank, ...], event: e.RankRelaunched, at: float) -> RankChanges:
    again = Rank(incarnation=ranks[event.rank].incarnation + 1, relaunched_at=at)
    return [(event.rank, again)]


# What a rarer event makes of which ranks.
_RANK_CHANGES: dict[type[e.Event], Callable[[tuple[Rank, ...], Any, float], RankChanges]] = {
    e.RanksLost: _lost,
    e.RanksStuck: _stuck,
    e.RanksGone: _gone,
    e.RankRestarting: _waiting,
    e.RankRelaunched: _relaunched,
    e.RanksRestartedInPlace: _restarted_in_place,
}


# A rank in one of these states has been up, whatever became of it since.
_UP = frozenset({RankState.RUNNING, RankState.EXITED})
# What a rank in a state adds to the attempt's two counters.
_COUNTS = {state: (int(state in _UP), int(state in HOLDING)) for state in RankState}


def _changed(attempt: Attempt, changes: RankChanges) -> Attempt:
    """The attempt with some ranks replaced, and its counters kept true."""
    if not changes:
        return attempt
    ranks = list(attempt.ranks)
    up, holding = attempt.up, attempt.holding
    for index, rank in changes:
        up_before, held_before = _COUNTS[ranks[index].state]
        up_after, held_after = _COUNTS[rank.state]
        up += up_after - up_before
        holding += held_after - held_before
        ranks[index] = rank
    return replace(attempt, ranks=tuple(ranks), up=up, holding=holding)


def leaving(attempt: Attempt) -> list[int]:
    """The ranks that were let go and still hold their devices."""
    return [i for i, rank in enumerate(attempt.ranks) if rank.let_go and rank.state in HOLDING]


def missing(attempt: Attempt, size: int) -> list[int]:
    """Those of the first `size` ranks of which nothing is left though they should run."""
    return [i for i, rank in enumerate(attempt.ranks[:size]) if is_missing(rank)]


def replaces_missing(spec: JobSpec) -> bool:
    """Whether missing ranks get other devices while the attempt goes on."""
    if spec.scheduling.repair is Repair.REPLACE:
        return True
    return any([goes_on_smaller(role) for role in spec.roles])  # noqa: C419 - in the hot path


def goes_on(spec: JobSpec, attempt: Attempt, *, coming: bool = False) -> bool:
    """Whether a running gang misses ranks, and those that are left are enough to go on.

    Elastic roles go on with their fewest replicas, and with one at least; a gang that misses a rank
    of any other role does not. Ranks that are `coming` in place of lost ones may count as missing.
    """
    if attempt.state is not AttemptState.RUNNING:
        return False
    gone = missing(attempt, spec.size)
    if coming:
        ranks = enumerate(attempt.ranks[: spec.size])
        gone += [i for i, rank in ranks if rank.state is RankState.PENDING]
    for role in spec.roles:
        mine = spec.ranks_of(role.name)
        lost = sum(i in mine for i in gone)
        if not lost:
            continue
        here = attempt.ranks[mine.start : mine.stop]
        left = sum(rank.state is RankState.RUNNING or rank.done for rank in here)
        if not goes_on_smaller(role) or left < max(1, role.min_replicas or 0):
            return False
    return bool(gone)


def is_missing(rank: Rank) -> bool:
    """Whether it was lost with its node, or taken from it, and not by its own doing."""
    if rank.let_go or rank.retry_at is not None:
        return False
    taken = rank.state is RankState.EXITED and rank.cause in _TAKEN
    return taken or rank.state in MISSING


_TAKEN = frozenset({Cause.NODE_LOST, Cause.SPOT_RECLAIM, Cause.EVICTION, Cause.REFUSED})


def count_up(attempt: Attempt) -> int:
    return sum(rank.state in _UP for rank in attempt.ranks)


def count_holding(attempt: Attempt) -> int:
    return sum(rank.state in HOLDING for rank in attempt.ranks)
