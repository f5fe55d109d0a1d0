"""An owner of jobs: its value, its transition table, its fold, and when it must act.

An owner is a second kind of aggregate in addition to the job. It is submitted once, submits jobs of
its own (its members) while an engine step decides, and ends when they have ended. Its state is the
fold of its events (`evolve_owner`); `OWNER_TRANSITIONS` defines their order. The submission of a
member is an event of both: it begins a job, and the table of the owner must allow it, so a
suspended or finished owner cannot get another member.

    Active <-> Suspended         Members follow: what an owner wants of its members is derived from
      |            |             its phase (`places_to_leave`), never remembered. A cancelled owner
      v            v             cancels the members that are unfinished, a suspended one suspends
    Succeeded  Failed  Cancelled those that are awake, and so on, one decision for each member.
                  |
                  +-> Active     when members are retried

Members are numbered by an index. They stay until their owner is removed, so the member itself shows
how its index ended. A retried member is replaced: the old job is removed once nothing of it is
left, and a job with another id and the same name is submitted in its place.

What differs between kinds of owners is a row of `OWNER_RULES`: which members come next, and whether
the owner is done. `must_act` is exact: the state keeps the owners for which it holds in an index,
and the decision that follows from it (`controlplane/workflows/`) always has events.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.dependencies import Dependency
from controlplane.model.errors import ImpossibleEvent
from controlplane.model.owners import ArraySpec, OwnerFailure, OwnerSpec
from controlplane.model.phases import (
    AWAKE,
    FINISHED,
    OWNER_FINISHED,
    UNFINISHED,
    WAITING,
    AttemptState,
    OwnerPhase,
    Phase,
)
from controlplane.model.reasons import FailureReason
from controlplane.model.values import Value

# At most this many members of one owner wait in their queue; the next ones are submitted as these
# start. It bounds the work of one engine step, whatever the size of the array.
MEMBERS_WAITING_MAX = 1_000

_ACTIVE, _SUSPENDED = OwnerPhase.ACTIVE, OwnerPhase.SUSPENDED

# The phase that each event leads to, from each phase in which it may happen. The events declare it;
# in addition an active owner gets members.
OWNER_TRANSITIONS: dict[tuple[OwnerPhase, type[e.Event]], OwnerPhase] = {
    (_ACTIVE, e.JobSubmitted): _ACTIVE,
    **{
        (phase, kind): after
        for kind in e.EVENT_TYPES.values()
        if issubclass(kind, e.OwnerEvent)
        for phase, after in kind.moves.items()
    },
}


class Owner(Value, frozen=True, kw_only=True):
    """The state of one owner, as the fold of its events."""

    id: str
    namespace: str
    name: str
    spec: OwnerSpec
    phase: OwnerPhase
    submitted_at: float
    submitted_position: int
    # The dependencies that are open before it submits members.
    awaits: tuple[Dependency, ...] = ()
    # How many indices have been submitted, in the order of the spec.
    submitted: int = 0
    # How often each index was retried (the keys of a mapping are text in a snapshot), and the
    # indices whose new job is not submitted yet.
    retries: dict[str, int] = msgspec.field(default_factory=dict)
    retrying: tuple[int, ...] = ()
    finished_at: float | None = None
    # Why it failed, the dependency or member concerned, and the code or text of an error.
    failure: OwnerFailure | None = None
    failed_job: str = ""
    error: str = ""
    deleting: bool = False

    @property
    def finished(self) -> bool:
        return self.phase in OWNER_FINISHED

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def member_id(owner: Owner, index: int, retries: int | None = None) -> str:
    """The id of the job of an index: the latest one, unless a number of retries is given."""
    times = retries_of(owner, index) if retries is None else retries
    return f"{owner.id}-{index}-{times}" if times else f"{owner.id}-{index}"


def retries_of(owner: Owner, index: int) -> int:
    """How often an index was retried."""
    return owner.retries.get(str(index), 0)


def member_name(owner: Owner, index: int) -> str:
    """The name of an index's job: a DNS label, since pods are named after it."""
    return f"{owner.name}-{index}"


# ------------------------------------------------------------------ the fold


def begin_owner(recorded: e.Recorded) -> Owner:
    """The owner after its first event, OwnerSubmitted."""
    event = recorded.event
    assert isinstance(event, e.OwnerSubmitted)
    return Owner(
        id=event.owner,
        namespace=event.namespace,
        name=event.name,
        spec=event.spec,
        phase=_ACTIVE,
        submitted_at=recorded.at,
        submitted_position=recorded.position,
        awaits=event.after,
    )


def evolve_owner(owner: Owner, recorded: e.Recorded) -> Owner:
    """The owner after one more event. Raises ImpossibleEvent if the table does not allow it now."""
    event = recorded.event
    phase = OWNER_TRANSITIONS.get((owner.phase, type(event)))
    if phase is None:
        raise ImpossibleEvent(f"{type(event).__name__} cannot happen to {owner.id}, {owner.phase}")
    changes = OWNER_EVOLVE[type(event)](owner, event)
    if phase in OWNER_FINISHED and not owner.finished:
        changes = {**changes, "finished_at": recorded.at, "awaits": (), "retrying": ()}
    return replace(owner, phase=phase, **changes)


def require_owner_removable(owner: Owner, event: e.OwnerRemoved) -> None:
    """Raise ImpossibleEvent unless the owner is being deleted."""
    _require(owner.deleting, event, "it is not being deleted")


def _require(holds: bool, event: e.Event, what: str) -> None:
    if not holds:
        raise ImpossibleEvent(f"{type(event).__name__}: {what}")


def _member_submitted(owner: Owner, event: e.JobSubmitted) -> dict[str, Any]:
    assert event.owner is not None
    index = event.owner.index
    _require(not owner.awaits, event, f"{owner.id} still waits for other jobs")
    _require(event.job == member_id(owner, index), event, f"{owner.id} has no such member")
    if index in owner.retrying:
        return {"retrying": tuple(i for i in owner.retrying if i != index)}
    return {"submitted": owner.submitted + 1}


def _ready(owner: Owner, event: e.OwnerReady) -> dict[str, Any]:
    _require(bool(owner.awaits), event, f"{owner.id} waits for nothing")
    return {"awaits": ()}


def _retried(owner: Owner, event: e.MembersRetried) -> dict[str, Any]:
    twice = set(event.indices) & set(owner.retrying)
    _require(not twice, event, f"{owner.id} retries {sorted(twice)} already")
    more = {str(index): retries_of(owner, index) + 1 for index in event.indices}
    return {
        "retries": {**owner.retries, **more},
        "retrying": (*owner.retrying, *event.indices),
        "finished_at": None,
        "failure": None,
        "failed_job": "",
        "error": "",
    }


def _failed(owner: Owner, event: e.OwnerFailed) -> dict[str, Any]:
    return {"failure": event.reason, "failed_job": event.job, "error": event.error}


def _errored(owner: Owner, event: e.OwnerErrored) -> dict[str, Any]:
    line = ": ".join(part for part in (event.where, event.error, event.text) if part)
    return {"failure": OwnerFailure.PLATFORM_ERROR, "error": line}


OWNER_EVOLVE: dict[type[e.Event], Callable[[Owner, Any], dict[str, Any]]] = {
    e.JobSubmitted: _member_submitted,
    e.OwnerReady: _ready,
    e.OwnerSuspended: lambda owner, event: {},
    e.OwnerResumed: lambda owner, event: {},
    e.OwnerCancelled: lambda owner, event: {},
    e.OwnerSucceeded: lambda owner, event: {},
    e.OwnerFailed: _failed,
    e.OwnerErrored: _errored,
    e.MembersRetried: _retried,
    e.OwnerDeleteRequested: lambda owner, event: {"deleting": True},
}


# ------------------------------------------------------------------ members

# The place of a member: its phase, or one of these.
PAUSED = "paused"
LEAVING = "leaving"


def place_of(member: Job) -> str:
    """`LEAVING` once it is being deleted, `PAUSED` if its owner suspended it, else its phase."""
    if member.deleting:
        return LEAVING
    if member.phase is Phase.SUSPENDED and member.reason is FailureReason.OWNER_SUSPENDED:
        return PAUSED
    return member.phase.value


class Members:
    """The jobs of one owner, by place. It is an index: only the state changes it."""

    def __init__(self) -> None:
        self.by_place: dict[str, dict[str, None]] = {}
        self.count = 0

    def add(self, place: str, job: str) -> None:
        self.by_place.setdefault(place, {})[job] = None
        self.count += 1

    def discard(self, place: str, job: str) -> None:
        del self.by_place[place][job]
        if not self.by_place[place]:
            del self.by_place[place]
        self.count -= 1

    def counted(self, places: Iterable[str]) -> int:
        """The number of members in these places."""
        return sum(len(self.by_place.get(place, ())) for place in places)

    def listed(self, places: Iterable[str]) -> list[str]:
        """The ids of the members in these places."""
        return [job for place in places for job in self.by_place.get(place, ())]

    def any_in(self, places: Iterable[str]) -> bool:
        """Whether any member is in one of these places."""
        return any(place in self.by_place for place in places)


AWAKE_PLACES = tuple(phase.value for phase in AWAKE)
UNFINISHED_PLACES = (*(phase.value for phase in UNFINISHED), PAUSED)
WAITING_PLACES = tuple(phase.value for phase in WAITING)
FINISHED_PLACES = tuple(phase.value for phase in Phase if phase in FINISHED)
STAYING_PLACES = (*UNFINISHED_PLACES, *FINISHED_PLACES)


def places_to_leave(owner: Owner) -> tuple[str, ...]:
    """The places in which no member of this owner may stay; the owner changes its members there."""
    if owner.deleting:
        return STAYING_PLACES
    if owner.finished:
        return UNFINISHED_PLACES
    return AWAKE_PLACES if owner.phase is _SUSPENDED else (PAUSED,)


# ------------------------------------------------------------------ when an owner must act


class OwnerRules(NamedTuple):
    """What differs between kinds of owners."""

    # The indices whose members may be submitted now, in order. The third argument has the retried
    # ones.
    next_indices: Callable[[Owner, Members, tuple[int, ...]], tuple[int, ...]]
    # Whether every member has been submitted.
    is_complete: Callable[[Owner], bool]


def _next_array_indices(owner: Owner, members: Members, again: tuple[int, ...]) -> tuple[int, ...]:
    room = MEMBERS_WAITING_MAX - members.counted(WAITING_PLACES)
    if owner.spec.limit is not None:
        room = min(room, owner.spec.limit - members.counted(UNFINISHED_PLACES))
    room = max(0, room)
    fresh = owner.spec.indices[owner.submitted : owner.submitted + room]
    return (*again, *fresh)[:room]


OWNER_RULES: dict[type[OwnerSpec], OwnerRules] = {
    ArraySpec: OwnerRules(
        next_indices=_next_array_indices,
        is_complete=lambda owner: owner.submitted == len(owner.spec.indices),
    ),
}


def next_indices(owner: Owner, members: Members, jobs: Mapping[str, Job]) -> tuple[int, ...]:
    """The indices whose members are submitted now, retried ones first; empty while the owner waits."""
    if owner.phase is not _ACTIVE or owner.awaits or owner.deleting:
        return ()
    rules = OWNER_RULES[type(owner.spec)]
    return rules.next_indices(owner, members, replaceable(owner, jobs))


def replaceable(owner: Owner, jobs: Mapping[str, Job]) -> tuple[int, ...]:
    """The retried indices whose last job has nothing left in the cluster."""

    def is_over(index: int) -> bool:
        job = jobs.get(member_id(owner, index, retries_of(owner, index) - 1))
        if job is None or job.attempt is None:
            return True
        return job.attempt.state is AttemptState.OVER

    return tuple(index for index in owner.retrying if is_over(index))


def is_done(owner: Owner, members: Members) -> bool:
    """Whether all members have been submitted and have ended."""
    return (
        not owner.awaits
        and not owner.retrying
        and OWNER_RULES[type(owner.spec)].is_complete(owner)
        and members.counted(FINISHED_PLACES) == members.count
    )


def must_act(owner: Owner, members: Members, jobs: Mapping[str, Job]) -> bool:
    """Whether a decision follows from the state of the owner and its members alone."""
    if members.any_in(places_to_leave(owner)):
        return True
    if owner.deleting:
        return members.count == 0
    if owner.phase is not _ACTIVE:
        return False
    return bool(next_indices(owner, members, jobs)) or is_done(owner, members)


def expires_at(owner: Owner) -> float | None:
    """When its time to live is over, or None."""
    if owner.deleting or owner.finished_at is None or owner.spec.ttl_s is None:
        return None
    return owner.finished_at + owner.spec.ttl_s
