"""What has happened. Add event types and fields with defaults; never edit what exists.

An event whose meaning must change gets a higher `version` and an upcast in `codec.py`. Events
carry no time, position or cause: those are in the envelope, `Recorded`.
"""

from typing import ClassVar

import msgspec

from controlplane.model import (
    Cause,
    CleanPods,
    Exit,
    JobSpec,
    NodeInfo,
    Obstacle,
    Placement,
    Restart,
)
from controlplane.sharing import Policy, Queue


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    version: ClassVar[int] = 1

    @property
    def stream(self) -> str:
        """What the event is about: a job's id, node/NAME, queue/NAME or cluster."""
        raise AssertionError(f"{type(self).__name__} has no stream")


class JobEvent(Event, frozen=True):
    job: str

    @property
    def stream(self) -> str:
        return self.job


class JobSubmitted(JobEvent, frozen=True):
    namespace: str
    name: str
    spec: JobSpec


class GangPlaced(JobEvent, frozen=True):
    """The scheduler gave every rank its devices, all in one decision."""

    attempt: int
    placement: Placement
    # For each rank the thousandths of its device that it has, or 0 for whole devices; empty if
    # nothing is shared.
    shares: tuple[int, ...] = ()
    # The flavour of GPUs whose quota it uses, where its queue tells flavours apart.
    flavor: str = ""
    # GPUs times seconds that the attempts before had, where the policy asks to know.
    gpu_s: float = 0.0
    # When it will have had so much that others go before it, where they may then take its place.
    step_at: float | None = None
    # Until when nobody may evict it, where the policy protects it for a while.
    safe_until: float | None = None


class ProtectionEnded(JobEvent, frozen=True):
    """The gang has run so long that it may be evicted from here on."""

    attempt: int


class StepPassed(JobEvent, frozen=True):
    """The gang has had so much GPU time by now that those who had less go before it."""

    attempt: int
    step: int
    next_at: float | None = None


class GangHeld(JobEvent, frozen=True):
    """The reason changed for which a queued job does not start."""

    code: str
    message: str
    needed: int | None = None
    available: int | None = None


class JobUnschedulable(JobEvent, frozen=True):
    """The job could not start on the cluster as it is, even if nothing ran: it is set aside.

    It comes again when the job is set aside already and the reason is another one.
    """

    obstacle: Obstacle


class JobSchedulable(JobEvent, frozen=True):
    """Nothing but other jobs keeps it from starting any more: it is back at its place in line."""


class RanksReplaced(JobEvent, frozen=True):
    """Ranks that were lost with their nodes get other devices; the rest of the gang runs on."""

    attempt: int
    ranks: tuple[int, ...]
    slots: Placement


class RanksStarted(JobEvent, frozen=True):
    attempt: int
    ranks: tuple[int, ...]


class GangStarted(JobEvent, frozen=True):
    """Every rank has started."""

    attempt: int


class RanksExited(JobEvent, frozen=True):
    attempt: int
    exits: tuple[Exit, ...]


class RanksLost(JobEvent, frozen=True):
    """Nothing more is to be had of these ranks; their devices stay held until they are gone.

    Their node no longer answers, or somebody told them to end.
    """

    attempt: int
    ranks: tuple[int, ...]
    message: str = ""
    cause: Cause = Cause.NODE_LOST


class RanksStuck(JobEvent, frozen=True):
    """The cluster says why these ranks do not come up; it goes on trying. `REASON: what it said`."""

    attempt: int
    ranks: tuple[int, ...]
    message: str


class RanksAdded(JobEvent, frozen=True):
    """A running gang grows: the ranks from `first` on get these slots and are to be launched."""

    attempt: int
    first: int
    placement: Placement


class RanksRestartedInPlace(JobEvent, frozen=True):
    """The cluster itself started the processes of running ranks again, so many times by now."""

    attempt: int
    counts: tuple[tuple[int, int], ...]
    restarts: tuple[Restart, ...]


class RanksGone(JobEvent, frozen=True):
    attempt: int
    ranks: tuple[int, ...]


class RankRestarting(JobEvent, frozen=True):
    """One rank waits in back-off and keeps its devices; the rest of the gang runs on."""

    attempt: int
    rank: int
    restart: Restart
    streak: int
    retry_at: float


class RankRelaunched(JobEvent, frozen=True):
    attempt: int
    rank: int


class JobRestarting(JobEvent, frozen=True):
    """The attempt is to stop; the next one may be placed from `retry_at` on, when it is gone."""

    restart: Restart
    streak: int
    retry_at: float


class JobRequeued(JobEvent, frozen=True):
    """Back-off is over and nothing is left of the last attempt.

    Whoever was stopped for no fault of its own keeps its place in the line.
    """

    keeps_place: bool = False


class AttemptEnded(JobEvent, frozen=True):
    """Every rank of the attempt has exited or is gone."""

    attempt: int


class JobSucceeded(JobEvent, frozen=True): ...


class JobFailed(JobEvent, frozen=True):
    reason: str
    message: str
    rank: int | None = None
    exit_code: int | None = None


class JobCancelled(JobEvent, frozen=True): ...


class JobSuspended(JobEvent, frozen=True):
    """Nothing of it runs until somebody resumes it; the reason is empty if a person asked for it."""

    reason: str = ""
    message: str = ""


class JobResumed(JobEvent, frozen=True): ...


class CodeResolved(JobEvent, frozen=True):
    """A rank got its code: the branch or tag that the job named was this commit then."""

    attempt: int
    rank: int
    commit: str


class JobScaled(JobEvent, frozen=True):
    role: str
    replicas: int


class JobAmended(JobEvent, frozen=True):
    """How long and how often it may run, and what is kept of it, is from here on this."""

    ttl_s: float | None
    active_deadline_s: float | None
    restart_limit: int | None
    clean: CleanPods


class JobDeleteRequested(JobEvent, frozen=True):
    """The job is to be forgotten as soon as nothing of it is left."""


class JobErrored(JobEvent, frozen=True):
    """A kind, an adapter or the simulator raised while it worked for this job.

    `where` is the operation that raised, `error` the error's type and `text` what it said, bounded.
    """

    where: str
    error: str
    text: str = ""
    # The attempt that it concerned; 0 if none in particular.
    attempt: int = 0


class EngineFailed(JobEvent, frozen=True):
    """An engine stopped because of a bug that it met while it decided about this job."""

    epoch: int
    where: str
    error: str
    text: str = ""


class JobQuarantined(JobEvent, frozen=True):
    """Nothing is decided for this job any more: it stopped the engine twice, or an operator asked."""

    where: str
    error: str
    text: str = ""


class JobRemoved(JobEvent, frozen=True):
    reason: str


class NodeEvent(Event, frozen=True):
    node: str

    @property
    def stream(self) -> str:
        return f"node/{self.node}"


class NodeReported(NodeEvent, frozen=True):
    info: NodeInfo


class NodeLost(NodeEvent, frozen=True):
    message: str = ""
    # When it was lost before and now, where the policy asks to know.
    losses: tuple[float, ...] = ()
    # Whether it went on purpose, back to the pool that it was rented from: that is no failure.
    given_back: bool = False


# Why a node is removed that the cluster still lists: a person gave it up.
FORGOTTEN = "forgotten"


class NodeRemoved(NodeEvent, frozen=True):
    reason: str = ""


# Why a node is cordoned that somebody drains.
DRAINED = "drained"


class NodeCordoned(NodeEvent, frozen=True):
    reason: str = ""


class NodeUncordoned(NodeEvent, frozen=True): ...


class QueueDefined(Event, frozen=True):
    queue: Queue

    @property
    def stream(self) -> str:
        return f"queue/{self.queue.name}"


class QueueRemoved(Event, frozen=True):
    name: str

    @property
    def stream(self) -> str:
        return f"queue/{self.name}"


class PolicySet(Event, frozen=True):
    """How the cluster is scheduled from here on."""

    policy: Policy

    @property
    def stream(self) -> str:
        return "policy"


class StartsCounted(Event, frozen=True):
    """How many gangs have started in the present scheduling cycle, where the policy limits them.

    A pass records it after its decisions. The fold takes the events of jobs in job by job, so it cannot
    count them itself.
    """

    # When the cycle ends: `cycle_s` after its first start.
    ends_at: float
    # Gangs that were placed in this cycle, or for which others began to make room.
    admitted: int
    # Whether gangs were left over because of the limit: the next cycle then begins at `ends_at`.
    limited: bool = False

    @property
    def stream(self) -> str:
        return "cluster"


class CycleEnded(Event, frozen=True):
    """A scheduling cycle that left gangs over because of the limit on starts is over."""

    @property
    def stream(self) -> str:
        return "cluster"


class ClusterSurveyed(Event, frozen=True):
    """Every node of the cluster is known, so what fits on none of them can never fit."""

    @property
    def stream(self) -> str:
        return "cluster"


class ClusterModelled(Event, frozen=True):
    """The simulated cluster is, from here on, the one that this document describes.

    The document is the cluster file as JSON, with the seed in it, so that the cluster can be made
    again from the log alone.
    """

    document: str

    @property
    def stream(self) -> str:
        return "simulator"


class PoolNodesRequested(Event, frozen=True):
    """A pool's autoscaler asked the provider for nodes; each takes work at its `ready_at`."""

    pool: str
    nodes: tuple[str, ...]
    ready_at: tuple[float, ...]

    @property
    def stream(self) -> str:
        return f"pool/{self.pool}"


class PoolNodesReturned(Event, frozen=True):
    """A pool's autoscaler gave idle nodes back to the provider."""

    pool: str
    nodes: tuple[str, ...]

    @property
    def stream(self) -> str:
        return f"pool/{self.pool}"


class TimePassed(Event, frozen=True):
    """Nothing happened up to the time of this event, and the cluster's clock shows that time."""

    @property
    def stream(self) -> str:
        return "cluster"


# By which rules an engine decides, where they have changed: logs of older engines are decided again
# by the rules that held then. 1: jobs that could not start if nothing ran are set aside.
# 2: run lengths are learned, and a job that outlives its estimate is planned anew.
SETS_ASIDE = 1
LEARNS = 2
RULES = LEARNS


class EngineStarted(Event, frozen=True):
    """A control plane began to lead; what it decides from here on is this release's doing."""

    epoch: int
    release: str
    # Where it answers, for those who follow the log; empty if nobody needs to know.
    address: str = ""
    # Whether a scheduling pass follows though nothing else made room: a step was cut off before its
    # own. A start by itself decides nothing that would not have been decided without it.
    passes: bool = True
    rules: int = 0

    @property
    def stream(self) -> str:
        return "cluster"


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event with its place in the log, its time, and who or what caused it.

    `cause` is the id of the command; it is empty for what the cluster reported and for what the
    control plane decided by itself.
    """

    position: int
    at: float
    event: Event
    cause: str = ""
    actor: str = ""
