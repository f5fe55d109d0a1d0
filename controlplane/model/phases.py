"""The states of a job, an attempt, a rank and a node, and named groups of them."""

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a job's life; `docs/states.md` shows the transitions."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    # The job waits outside its queue: it could not start even if the present cluster were empty.
    UNSCHEDULABLE = "Unschedulable"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


ACTIVE = (Phase.STARTING, Phase.RUNNING)
WAITING = (Phase.QUEUED, Phase.UNSCHEDULABLE)
AWAKE = (*WAITING, *ACTIVE, Phase.RESTARTING)
UNFINISHED = (*AWAKE, Phase.SUSPENDED)
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


class OwnerPhase(StrEnum):
    """The phase of an owner of jobs, such as an array."""

    ACTIVE = "Active"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


OWNER_FINISHED = frozenset({OwnerPhase.SUCCEEDED, OwnerPhase.FAILED, OwnerPhase.CANCELLED})


class AttemptState(StrEnum):
    """The state of an attempt: one try at running the gang."""

    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    OVER = "Over"


LIVE = (AttemptState.STARTING, AttemptState.RUNNING)


class RankState(StrEnum):
    """The state of one rank of an attempt."""

    PENDING = "Pending"
    RUNNING = "Running"
    BACKOFF = "Backoff"
    LOST = "Lost"
    EXITED = "Exited"
    GONE = "Gone"


# A rank in one of these states keeps its devices.
WITH_DEVICES = frozenset({RankState.PENDING, RankState.RUNNING, RankState.BACKOFF, RankState.LOST})
# A rank in one of these states has no process, or none that can be observed.
MISSING = frozenset({RankState.LOST, RankState.GONE})
# A rank in one of these states has been up, even if it has ended since.
UP = frozenset({RankState.RUNNING, RankState.EXITED})


class NodeState(StrEnum):
    """The state of a node of the cluster. A removed node may be reported again."""

    UNKNOWN = "Unknown"
    READY = "Ready"
    LOST = "Lost"
    REMOVED = "Removed"
