"""One attempt to run a gang, and its ranks.

An attempt holds a rank's devices from the placement until the cluster reports that the rank has
exited or is gone. A rank in back-off keeps its devices, since nothing else may take its place.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from controlplane.model import events as e
from controlplane.model.cluster import Placement
from controlplane.model.failures import Cause, Exit
from controlplane.model.phases import MISSING, UP, WITH_DEVICES, AttemptState, RankState
from controlplane.model.reasons import Loss
from controlplane.model.spec import JobSpec, Repair, goes_on_smaller
from controlplane.model.values import ArrayValue, Value, in_gpus

# The state that an event leads to, as `events.py` declares it. Other events leave the state
# unchanged.
ATTEMPT_TRANSITIONS: dict[tuple[AttemptState, type[e.Event]], AttemptState] = {
    (state, kind): target for kind in e.JOB_EVENTS for state, target in kind.moves_attempt.items()
}


class Rank(ArrayValue, frozen=True):
    """One replica as the log records it. `incarnation` counts its runs within the attempt, from 0."""

    state: RankState = RankState.PENDING
    incarnation: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    cause: Cause | None = None
    retry_at: float | None = None
    # Why the rank does not start, or how it ended, as the cluster reported it; and why it was lost.
    reason: str = ""
    detail: str = ""
    loss: Loss | None = None
    # When this rank alone was launched again; the first launch is the attempt's placement.
    relaunched_at: float | None = None
    # How often the cluster itself restarted its process in place.
    restarted: int = 0
    # The last lines that it wrote, if it failed.
    lines: tuple[str, ...] = ()
    # The gang has shrunk and does not need this rank, however it ends.
    released: bool = False

    @property
    def done(self) -> bool:
        """Whether it has ended successfully."""
        return self.state is RankState.EXITED and (
            self.exit_code == 0 or self.cause is Cause.COMPLETED
        )

    @property
    def failed(self) -> bool:
        """Whether it has failed or is lost, and no decision about that has been made yet."""
        if self.retry_at is not None or self.released:
            return False
        if self.state is RankState.EXITED:
            return not self.done
        return self.state in (RankState.LOST, RankState.GONE)


class Attempt(Value, frozen=True, kw_only=True):
    """The state of one attempt: placement, ranks, and the times of its timers."""

    number: int
    placement: Placement
    ranks: tuple[Rank, ...]
    state: AttemptState
    placed_at: float
    # How many ranks are up (running, or ended after running) and how many hold their devices. Both
    # could be counted from `ranks`; the counters make the cost of a report independent of the size
    # of the gang, and `World.check` verifies them.
    up: int
    with_devices: int
    running_at: float | None = None
    ended_at: float | None = None
    # As in GangPlaced.
    shares: tuple[int, ...] = ()
    flavor: str = ""
    # How often lost ranks got other devices.
    repairs: int = 0
    # As in GangPlaced, or in the last ServiceTierPassed.
    next_tier_at: float | None = None
    # As in GangPlaced; None once that time has passed.
    safe_until: float | None = None
    # Since when ranks wait for an image that the cluster cannot pull.
    image_missing_since: float | None = None

    def share(self, rank: int) -> int:
        """The thousandths of its device that a rank has, or 0 for whole devices."""
        return self.shares[rank] if rank < len(self.shares) else 0

    def runs(self, *states: RankState) -> dict[int, list[int]]:
        """The ranks in these states, by incarnation: a report is about one incarnation."""
        by_incarnation: dict[int, list[int]] = {}
        for index, rank in enumerate(self.ranks):
            if rank.state in states:
                by_incarnation.setdefault(rank.incarnation, []).append(index)
        return by_incarnation

    def milli(self, rank: int) -> int:
        """The GPUs allocated to a rank, in thousandths."""
        return self.share(rank) or 1_000 * len(self.placement[rank].devices)

    @property
    def gpus(self) -> float:
        """The number of GPUs allocated to the whole attempt."""
        return gpus_given(self.placement, self.shares)


def gpus_given(placement: Placement, shares: tuple[int, ...] = ()) -> float:
    """The number of GPUs in a placement; `shares` lists thousandths of a device by rank."""
    if not shares:
        return sum(len(slot.devices) for slot in placement)
    # Ranks that were added later have whole devices.
    listed = [*shares, *[0] * (len(placement) - len(shares))]
    pairs = zip(listed, placement, strict=True)
    return sum(share / 1_000 if share else len(slot.devices) for share, slot in pairs)


def asked_gpus(spec: JobSpec, attempt: Attempt | None = None) -> float:
    """The number of GPUs that a gang requests.

    A request by GPU memory counts with the share that `attempt` has, or with 0 without an attempt.
    """
    if not any(role.shares_device for role in spec.roles):
        return spec.gpus
    milli = 0
    for role in spec.roles:
        if not role.gpu_memory_mib:
            milli += role.replicas * role.gpu_milli
        elif attempt is not None:
            milli += sum(attempt.share(rank) for rank in spec.ranks_of(role.name))
    return in_gpus(milli)


# The reasons in `RanksStuck` that a cluster gives when it cannot get an image.
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


def lacks_image(rank: Rank) -> bool:
    """Whether the rank waits for an image that the cluster has tried to pull and could not."""
    return rank.state is RankState.PENDING and rank.reason in NO_IMAGE


# The reason in `RanksStuck` of a rank whose process runs but cannot be reached yet, where other
# ranks wait for it.
NOT_READY = "NotReady"


def is_unready(rank: Rank) -> bool:
    """Whether the rank's process runs, but the ranks that wait for it cannot reach it yet."""
    return rank.state is RankState.PENDING and rank.reason == NOT_READY


def launched_at(attempt: Attempt, rank: Rank) -> float:
    """When the rank was last requested from the cluster."""
    return attempt.placed_at if rank.relaunched_at is None else rank.relaunched_at


RankChanges = list[tuple[int, Rank]]


def placed(event: e.GangPlaced, at: float) -> Attempt:
    """The first state of an attempt."""
    size = len(event.placement)
    return Attempt(
        number=event.attempt,
        placement=event.placement,
        ranks=(Rank(),) * size,
        state=AttemptState.STARTING,
        placed_at=at,
        up=0,
        with_devices=size,
        shares=event.shares,
        flavor=event.flavor,
        next_tier_at=event.next_tier_at,
        safe_until=event.safe_until,
    )


def moved(attempt: Attempt | None, event: e.JobEvent, at: float) -> Attempt | None:
    """The attempt after an event that may change its state; None without an attempt."""
    if attempt is None:
        return None
    state = ATTEMPT_TRANSITIONS.get((attempt.state, type(event)))
    if state is None:
        return attempt
    if state is AttemptState.STOPPING:
        return _changed(replace(attempt, state=state), _dismissed(attempt.ranks))
    if state is AttemptState.OVER:
        return replace(attempt, state=state, ended_at=at)
    return replace(attempt, state=state, running_at=at)


def added(attempt: Attempt, event: e.RanksAdded, at: float) -> Attempt:
    """The gang with more ranks at its end; released ranks with these numbers get a new incarnation."""
    first, slots, size = event.first, event.placement, len(attempt.ranks)
    runs = [
        attempt.ranks[i].incarnation + 1 if i < size else 0
        for i in range(first, first + len(slots))
    ]
    ranks = [*attempt.ranks[:first], *(Rank(incarnation=run, relaunched_at=at) for run in runs)]
    grown = replace(attempt, ranks=tuple(ranks), placement=(*attempt.placement[:first], *slots))
    return _with_images(
        replace(grown, up=count_up(grown), with_devices=count_with_devices(grown)), at
    )


def staying(attempt: Attempt, size: int) -> int:
    """How many of the first `size` ranks stay: all before the first released rank."""
    ranks = attempt.ranks[:size]
    return next((i for i, rank in enumerate(ranks) if rank.released), len(ranks))


def replaced(attempt: Attempt, event: e.RanksReplaced, at: float) -> Attempt:
    """The attempt after missing ranks got other slots, in which they must be launched."""
    placement = list(attempt.placement)
    changes: RankChanges = []
    for index, slot in zip(event.ranks, event.slots, strict=True):
        placement[index] = slot
        run = attempt.ranks[index].incarnation + 1
        changes.append((index, Rank(incarnation=run, relaunched_at=at)))
    repaired = replace(attempt, placement=tuple(placement), repairs=attempt.repairs + 1)
    return _with_images(_changed(repaired, changes), at)


def with_ranks(attempt: Attempt, event: e.JobEvent, at: float) -> Attempt:
    """The attempt after an event about its ranks."""
    changed = _changed(attempt, _RANK_CHANGES[type(event)](attempt.ranks, event, at))
    if attempt.image_missing_since is None and type(event) is not e.RanksStuck:
        return changed
    return _with_images(changed, at)


def _with_images(attempt: Attempt, at: float) -> Attempt:
    """The attempt with `image_missing_since` set if a rank waits for an image, else cleared."""
    if any(lacks_image(rank) for rank in attempt.ranks):
        return (
            attempt
            if attempt.image_missing_since is not None
            else replace(attempt, image_missing_since=at)
        )
    return (
        attempt
        if attempt.image_missing_since is None
        else replace(attempt, image_missing_since=None)
    )


def _dismissed(ranks: tuple[Rank, ...]) -> RankChanges:
    """Changes that cancel every pending relaunch.

    A rank in back-off has no process that could be reported gone, so it releases its devices at
    once. Any other rank with a pending relaunch releases them when its old process is gone.
    """
    return [
        (
            index,
            replace(
                rank,
                state=RankState.EXITED if rank.state is RankState.BACKOFF else rank.state,
                retry_at=None,
            ),
        )
        for index, rank in enumerate(ranks)
        if rank.retry_at is not None
    ]


def _started(ranks: tuple[Rank, ...], event: e.RanksStarted, at: float) -> RankChanges:
    # The reason why the rank did not start is no longer true.
    return [
        (i, replace(ranks[i], state=RankState.RUNNING, started_at=at, reason="", detail=""))
        for i in event.ranks
    ]


def _exited(ranks: tuple[Rank, ...], event: e.RanksExited, at: float) -> RankChanges:
    return [(end.rank, _exited_rank(ranks[end.rank], end, at)) for end in event.exits]


def _exited_rank(rank: Rank, end: Exit, at: float) -> Rank:
    """The rank after its exit; with a pending relaunch it keeps its devices through the back-off."""
    if rank.retry_at is not None:
        return replace(rank, state=RankState.BACKOFF, ended_at=at, exit_code=end.code)
    return replace(
        rank,
        state=RankState.EXITED,
        ended_at=at,
        exit_code=end.code,
        cause=end.cause,
        reason=end.reason,
        detail=end.detail,
        loss=end.loss,
        lines=end.lines,
    )


def _lost(ranks: tuple[Rank, ...], event: e.RanksLost, at: float) -> RankChanges:
    return [(i, _lost_rank(ranks[i], event.cause, event.loss, event.detail)) for i in event.ranks]


def _released(ranks: tuple[Rank, ...], event: e.RanksReleased, at: float) -> RankChanges:
    loss = Loss(event.reason)
    lost = [(i, _lost_rank(ranks[i], Cause.SCALED, loss)) for i in event.ranks]
    return [(i, replace(rank, released=True)) for i, rank in lost]


def _lost_rank(rank: Rank, cause: Cause, loss: Loss | None, detail: str = "") -> Rank:
    """The rank after its loss.

    A rank in back-off has no process whose end could be reported, so it is gone at once.
    """
    return replace(
        rank,
        state=RankState.GONE if rank.state is RankState.BACKOFF else RankState.LOST,
        cause=cause,
        reason="",
        detail=detail,
        loss=loss,
        retry_at=None,
    )


def _stuck(ranks: tuple[Rank, ...], event: e.RanksStuck, at: float) -> RankChanges:
    return [(i, replace(ranks[i], reason=event.reason, detail=event.detail)) for i in event.ranks]


def _gone(ranks: tuple[Rank, ...], event: e.RanksGone, at: float) -> RankChanges:
    return [(i, _gone_rank(ranks[i], at)) for i in event.ranks]


def _gone_rank(rank: Rank, at: float) -> Rank:
    """The rank without a process; with a pending relaunch it keeps its devices."""
    state = RankState.GONE if rank.retry_at is None else RankState.BACKOFF
    return replace(rank, state=state, ended_at=at)


def _waiting(ranks: tuple[Rank, ...], event: e.RankRestarting, at: float) -> RankChanges:
    """Begin the back-off once the old process is gone, so that a rank never runs twice at once."""
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


# The changes of ranks for each type of event.
_RANK_CHANGES: dict[type[e.Event], Callable[[tuple[Rank, ...], Any, float], RankChanges]] = {
    e.RanksStarted: _started,
    e.RanksExited: _exited,
    e.RanksLost: _lost,
    e.RanksReleased: _released,
    e.RanksStuck: _stuck,
    e.RanksGone: _gone,
    e.RankRestarting: _waiting,
    e.RankRelaunched: _relaunched,
    e.RanksRestartedInPlace: _restarted_in_place,
}


# What a rank in each state adds to the attempt's two counters, `up` and `with_devices`.
_COUNTS = {state: (int(state in UP), int(state in WITH_DEVICES)) for state in RankState}


def _changed(attempt: Attempt, changes: RankChanges) -> Attempt:
    """The attempt with some ranks replaced and its counters updated."""
    if not changes:
        return attempt
    ranks = list(attempt.ranks)
    up, with_devices = attempt.up, attempt.with_devices
    for index, rank in changes:
        up_before, held_before = _COUNTS[ranks[index].state]
        up_after, held_after = _COUNTS[rank.state]
        up += up_after - up_before
        with_devices += held_after - held_before
        ranks[index] = rank
    return replace(attempt, ranks=tuple(ranks), up=up, with_devices=with_devices)


def leaving(attempt: Attempt) -> list[int]:
    """The released ranks that still hold their devices."""
    return [
        i for i, rank in enumerate(attempt.ranks) if rank.released and rank.state in WITH_DEVICES
    ]


def missing(attempt: Attempt, size: int) -> list[int]:
    """Those of the first `size` ranks that should run and were lost with their node."""
    return [i for i, rank in enumerate(attempt.ranks[:size]) if is_missing(rank)]


def replaces_missing(spec: JobSpec) -> bool:
    """Whether missing ranks get other devices while the attempt continues."""
    if spec.scheduling.repair is Repair.REPLACE:
        return True
    return any(goes_on_smaller(role) for role in spec.roles)


def goes_on(spec: JobSpec, attempt: Attempt, *, coming: bool = False) -> bool:
    """Whether a running gang misses ranks, and the remaining ones suffice to continue.

    An elastic role continues with its minimum of replicas, and at least one; a gang that misses a
    rank of any other role does not continue. With `coming`, pending replacements count as missing.
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
    """Whether the rank was lost with its node or taken off it, and did not fail by itself."""
    if rank.released or rank.retry_at is not None:
        return False
    taken = rank.state is RankState.EXITED and rank.cause in _TAKEN
    return taken or rank.state in MISSING


_TAKEN = frozenset({Cause.NODE_LOST, Cause.SPOT_RECLAIM, Cause.EVICTION, Cause.REFUSED})


def count_up(attempt: Attempt) -> int:
    """The number of ranks that are up, counted from the ranks."""
    return sum(rank.state in UP for rank in attempt.ranks)


def count_with_devices(attempt: Attempt) -> int:
    """The number of ranks that hold their devices, counted from the ranks."""
    return sum(rank.state in WITH_DEVICES for rank in attempt.ranks)
