"""One try at running a gang, and its ranks.

An attempt holds a rank's devices from the placement until the cluster says that the rank has
exited or is gone. A rank in back-off keeps them, since nothing else may take its place.
"""

from enum import StrEnum

from controlplane import events as e
from controlplane.model import Cause, JobSpec, Placement, Row, Value, in_gpus


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

# Of these nothing is left, or nothing can be seen.
MISSING = (RankState.LOST, RankState.GONE)

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


class Rank(Row, frozen=True):
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
    # How often the cluster itself started its process again, in place.
    restarted: int = 0
    # The last lines it wrote, if it ended badly.
    lines: tuple[str, ...] = ()
    # The gang was made smaller and does without this rank, however it ends.
    let_go: bool = False

    @property
    def done(self) -> bool:
        """Whether it has ended well."""
        return self.state is RankState.EXITED and (
            self.exit_code == 0 or self.cause is Cause.COMPLETED
        )

    @property
    def failed(self) -> bool:
        """Whether it has ended badly, or is about to, and nothing has been decided about it yet."""
        if self.retry_at is not None or self.let_go:
            return False
        if self.state is RankState.EXITED:
            return not self.done
        return self.state in (RankState.LOST, RankState.GONE)


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
    # As in GangPlaced.
    shares: tuple[int, ...] = ()
    flavor: str = ""
    # How often ranks that were lost got other devices.
    mended: int = 0
    # As in GangPlaced, or in the last StepPassed.
    step_at: float | None = None
    # As in GangPlaced, until that time has come.
    safe_until: float | None = None
    # Since when ranks wait for an image that the cluster cannot get.
    imageless_at: float | None = None

    def share(self, rank: int) -> int:
        """The thousandths of its device that a rank has, or 0 for whole devices."""
        return self.shares[rank] if rank < len(self.shares) else 0

    def runs(self, *states: RankState) -> dict[int, list[int]]:
        """The ranks in these states, by how often each was started anew: a report is about one."""
        found: dict[int, list[int]] = {}
        for index, rank in enumerate(self.ranks):
            if rank.state in states:
                found.setdefault(rank.incarnation, []).append(index)
        return found

    def milli(self, rank: int) -> int:
        """The GPUs that a rank was given, in thousandths."""
        return self.share(rank) or 1_000 * len(self.placement[rank].devices)

    @property
    def gpus(self) -> float:
        """How many GPUs the whole attempt was given."""
        return gpus_given(self.placement, self.shares)


def gpus_given(placement: Placement, shares: tuple[int, ...] = ()) -> float:
    """How many GPUs a placement is, with the parts of devices that `shares` lists by rank."""
    if not shares:
        return sum([len(slot.devices) for slot in placement])
    # Ranks that were added later have whole devices.
    listed = [*shares, *[0] * (len(placement) - len(shares))]
    pairs = zip(listed, placement, strict=True)
    return sum([share / 1_000 if share else len(slot.devices) for share, slot in pairs])


def asked_gpus(spec: JobSpec, attempt: Attempt | None = None) -> float:
    """GPUs that a gang asks for; by memory as much as the attempt was given, or 0 without one."""
    if not any([role.shares_device for role in spec.roles]):  # noqa: C419 - in every listing
        return spec.gpus
    milli = 0
    for role in spec.roles:
        if not role.gpu_memory_mib:
            milli += role.replicas * role.gpu_milli
        elif attempt is not None:
            milli += sum(attempt.share(rank) for rank in spec.ranks_of(role.name))
    return in_gpus(milli)


# What clusters call it when an image cannot be had; `RanksStuck` begins with such a word.
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


def lacks_image(rank: Rank) -> bool:
    """Whether it waits for an image that the cluster has tried to get and could not."""
    return rank.state is RankState.PENDING and rank.message.partition(":")[0] in NO_IMAGE


# Begins the message of a rank whose process runs and cannot be reached yet, where others wait for it.
NOT_READY = "NotReady"


def is_unready(rank: Rank) -> bool:
    """Whether its process runs, but those that wait for this rank cannot reach it yet."""
    return rank.state is RankState.PENDING and rank.message.partition(":")[0] == NOT_READY


def launched_at(attempt: Attempt, rank: Rank) -> float:
    """When the rank was last asked for."""
    return attempt.placed_at if rank.relaunched_at is None else rank.relaunched_at
