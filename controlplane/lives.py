"""The usual life of a job, taken in at once.

Most jobs of a long log are placed, start, end well, and are over. Folding that event by event makes
a job and an attempt for each of them, of which only the last ones are ever seen. Here they are made
once: the same as `EVOLVE` makes one after the other, or None if the life took another course.
"""

from typing import Any, Final

from msgspec.structs import replace

from controlplane import events as e
from controlplane.attempt import Attempt, AttemptState, Rank, RankState
from controlplane.job import Job, Phase
from controlplane.model import Exit

_QUEUED, _SUCCEEDED = Phase.QUEUED, Phase.SUCCEEDED
_EXITED, _OVER = RankState.EXITED, AttemptState.OVER
# What is told of each event is three things: the event, its time and its position.
_EACH: Final = 3
_SHORTEST: Final = 6 * _EACH


def usual_life(job: Job, told: list[Any]) -> Job | None:
    """A queued job after GangPlaced, every rank's start, GangStarted, every rank's end,
    JobSucceeded and AttemptEnded, in this order."""
    size = len(told)
    if size < _SHORTEST or job.phase is not _QUEUED or job.crippled_at is not None:
        return None
    placed, placed_at = told[0], told[1]
    if not (
        isinstance(placed, e.GangPlaced)
        and isinstance(told[size - 2 * _EACH], e.JobSucceeded)
        and isinstance(told[size - _EACH], e.AttemptEnded)
    ):
        return None
    starts, begun = _starts(told, len(placed.placement))
    ranks = None if begun == 0 else _ends(told, begun + _EACH, starts)
    if ranks is None:
        return None
    running_at = told[begun + 1]
    lived = replace(
        job,
        phase=_SUCCEEDED,
        attempt=_over(placed, ranks, placed_at, running_at, told[size - _EACH + 1]),
        active_at=placed_at if job.active_at is None else job.active_at,
        running_at=running_at if job.running_at is None else job.running_at,
        finished_at=told[size - 2 * _EACH + 1],
        held="",
        retry_at=None,
        reason="",
        message="",
    )
    return replace(lived, gpu_s=placed.gpu_s) if placed.gpu_s else lived


def _starts(told: list[Any], size: int) -> tuple[list[Any], int]:
    """When each rank started, and which event then says that all have; 0 if it is another."""
    starts: list[Any] = [None] * size
    index, left = _EACH, size
    while isinstance(event := told[index], e.RanksStarted):
        for rank in event.ranks:
            if starts[rank] is not None:
                return starts, 0
            starts[rank] = told[index + 1]
            left -= 1
        index += _EACH
    return starts, 0 if left or not isinstance(event, e.GangStarted) else index


def _ends(told: list[Any], index: int, starts: list[Any]) -> tuple[Rank, ...] | None:
    """The ranks at their end, if the events from here on are that, up to the last two.

    Those that began and ended together, in the same way, are one value.
    """
    ranks: list[Any] = [None] * len(starts)
    left = len(starts)
    while isinstance(event := told[index], e.RanksExited):
        at = told[index + 1]
        last: Any = None
        for end in event.exits:
            rank, start = end.rank, starts[end.rank]
            if ranks[rank] is not None:
                return None
            if last is None or start is not last.started_at or not _ended_as(last, end):
                last = Rank(
                    _EXITED, 0, start, at, end.code, end.cause, None, end.message, None, 0,
                    end.lines,
                )  # fmt: skip
            ranks[rank] = last
            left -= 1
        index += _EACH
    if left or index != len(told) - 2 * _EACH:
        return None
    return tuple(ranks)


def _ended_as(rank: Rank, end: Exit) -> bool:
    return (
        rank.exit_code == end.code
        and rank.cause is end.cause
        and rank.message == end.message
        and rank.lines == end.lines
    )


def _over(
    placed: e.GangPlaced, ranks: tuple[Rank, ...], placed_at: Any, running_at: Any, ended_at: Any
) -> Attempt:
    return Attempt(
        number=placed.attempt,
        placement=placed.placement,
        ranks=ranks,
        state=_OVER,
        placed_at=placed_at,
        up=len(ranks),
        holding=0,
        running_at=running_at,
        ended_at=ended_at,
        shares=placed.shares,
        flavor=placed.flavor,
        step_at=placed.step_at,
        safe_until=placed.safe_until,
    )
