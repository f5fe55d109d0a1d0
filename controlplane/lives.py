"""The usual life of a job, taken in at once.

Most jobs of a long log are placed, start, end well, and are over. Folding that event by event makes
a job and an attempt for each of them, of which only the last ones are ever seen. Here they are made
once: the same as `EVOLVE` makes one after the other, or None if the life took another course.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from controlplane import events as e
from controlplane.attempt import Attempt, AttemptState, Rank, RankState
from controlplane.job import Job, Phase

_QUEUED, _SUCCEEDED = Phase.QUEUED, Phase.SUCCEEDED
_EXITED, _OVER = RankState.EXITED, AttemptState.OVER
_SHORTEST = 6


def usual_life(job: Job, events: Sequence[e.Event], ats: Sequence[float]) -> Job | None:
    """A queued job after GangPlaced, every rank's start, GangStarted, every rank's end,
    JobSucceeded and AttemptEnded, in this order."""
    size = len(events)
    if size < _SHORTEST or job.phase is not _QUEUED or job.crippled_at is not None:
        return None
    placed, succeeded, over = events[0], events[size - 2], events[size - 1]
    if not (
        isinstance(placed, e.GangPlaced)
        and isinstance(succeeded, e.JobSucceeded)
        and isinstance(over, e.AttemptEnded)
    ):
        return None
    starts, begun = _starts(events, ats, len(placed.placement))
    ranks = None if begun == 0 else _ends(events, ats, begun + 1, starts)
    if ranks is None:
        return None
    lived = replace(
        job,
        phase=_SUCCEEDED,
        attempt=_over(placed, ranks, ats[0], ats[begun], ats[size - 1]),
        active_at=ats[0] if job.active_at is None else job.active_at,
        running_at=ats[begun] if job.running_at is None else job.running_at,
        finished_at=ats[size - 2],
        held="",
        retry_at=None,
        reason="",
        message="",
    )
    return replace(lived, gpu_s=placed.gpu_s) if placed.gpu_s else lived


def _starts(
    events: Sequence[e.Event], ats: Sequence[float], size: int
) -> tuple[list[float | None], int]:
    """When each rank started, and which event then says that all have; 0 if it is another."""
    starts: list[float | None] = [None] * size
    index, left = 1, size
    while isinstance(event := events[index], e.RanksStarted):
        for rank in event.ranks:
            if starts[rank] is not None:
                return starts, 0
            starts[rank] = ats[index]
            left -= 1
        index += 1
    return starts, 0 if left or not isinstance(event, e.GangStarted) else index


def _ends(
    events: Sequence[e.Event], ats: Sequence[float], index: int, starts: list[float | None]
) -> tuple[Rank, ...] | None:
    """The ranks at their end, if the events from here on are that, up to the last two."""
    ranks: list[Rank | None] = [None] * len(starts)
    left = len(starts)
    while isinstance(event := events[index], e.RanksExited):
        at = ats[index]
        for end in event.exits:
            rank = end.rank
            if ranks[rank] is not None:
                return None
            ranks[rank] = Rank(
                _EXITED, 0, starts[rank], at, end.code, end.cause, None, end.message,
                lines=end.lines,
            )  # fmt: skip
            left -= 1
        index += 1
    if left or index != len(events) - 2:
        return None
    return tuple(ranks)  # type: ignore[arg-type]


def _over(
    placed: e.GangPlaced,
    ranks: tuple[Rank, ...],
    placed_at: float,
    running_at: float,
    ended_at: float,
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
