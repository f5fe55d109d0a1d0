"""Events: the facts that the log records.

Each class declares its row of the transition table: where the event may happen (`allowed_in`,
`attempt_in`, `ranks_in`), where it leads (`leads_to`, `moves_attempt`), whether it wakes the
scheduler, and whether it is an input. The transition table is derived from these declarations. To
add an event about a job, write its class here and its fold in `controlplane/lifecycle/job.py`; every
other event is folded in `controlplane/state/state.py`.

A released event keeps its fields: add event types, or fields with defaults. An event whose meaning
must change gets a higher `version` and an upcast in `controlplane/log/codec.py`. Time, position and
cause are not in an event but in its envelope, `Recorded`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.model.cluster import NodeInfo, Placement
from controlplane.model.dependencies import Dependency
from controlplane.model.failures import Cause, Exit, Failure, Restart
from controlplane.model.faults import NodeFaultSpec
from controlplane.model.obstacle import Obstacle
from controlplane.model.owners import OwnedBy, OwnerFailure, OwnerSpec
from controlplane.model.phases import (
    ACTIVE,
    AWAKE,
    FINISHED,
    OWNER_FINISHED,
    UNFINISHED,
    WAITING,
    AttemptState,
    NodeState,
    OwnerPhase,
    Phase,
    RankState,
)
from controlplane.model.policy import Policy, Queue
from controlplane.model.reasons import (
    CordonReason,
    FailureFacts,
    FailureReason,
    JobRemovalReason,
    Loss,
    LossReason,
    NodeRemovalReason,
    OwnerRemovalReason,
    Wait,
    WaitFacts,
    WaitReason,
)
from controlplane.model.spec import CleanPods, JobSpec


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A fact that was recorded: an input or a decision."""

    version: ClassVar[int] = 1
    # Whether a scheduling pass after this event may decide more than the last pass did: the event
    # adds a gang, frees or adds devices, removes the head of a queue, loses ranks that may be
    # replaced, or changes what queues share. A pass that decided nothing leaves no trace in the log,
    # so re-deciding relies on this.
    wakes_scheduler: ClassVar[bool] = False
    # Whether the event records a person's request or a report of the cluster, as opposed to a
    # decision of the control plane.
    is_input: ClassVar[bool] = False
    # Whether the event is an input only if its envelope has a cause. The control plane may decide the
    # same event by itself: a policy cordons a node that is lost too often.
    needs_cause: ClassVar[bool] = False

    @property
    def stream(self) -> str:
        """Return what the event is about: a job's id, node/NAME, queue/NAME, cluster and the like."""
        raise AssertionError(f"{type(self).__name__} has no stream")


ANY_ATTEMPT = frozenset({None, *AttemptState})
# No rank has a process or devices, so a gang can be placed and a job can be removed.
NO_LIVE_ATTEMPT = frozenset({None, AttemptState.OVER})
LIVE_ATTEMPT = frozenset({AttemptState.STARTING, AttemptState.RUNNING})
# Ranks of the attempt are left in the cluster, so the cluster reports on them.
REPORTED_ATTEMPT = frozenset({*LIVE_ATTEMPT, AttemptState.STOPPING})
# The phases in which the last attempt may be live or stopping.
REPORTED_IN = frozenset(Phase) - frozenset(WAITING)
# A verdict, a restart or a suspension of the job stops a live attempt.
STOPS = {
    AttemptState.STARTING: AttemptState.STOPPING,
    AttemptState.RUNNING: AttemptState.STOPPING,
}


class JobEvent(Event, frozen=True):
    """An event about one job, with its row of the transition table.

    `controlplane/lifecycle/job.py` derives the table from these declarations and refuses an event
    that the table does not allow. `docs/states.md` shows the table.
    """

    # The phases in which the event may happen, and the phase that it leads to (None: no change).
    allowed_in: ClassVar[Collection[Phase]]
    leads_to: ClassVar[Phase | None] = None
    # The states of the job's last attempt in which the event may happen; None stands for no attempt.
    attempt_in: ClassVar[Collection[AttemptState | None]] = ANY_ATTEMPT
    # The transitions of the attempt's state; a state that is not listed does not change.
    moves_attempt: ClassVar[Mapping[AttemptState, AttemptState]] = {}

    job: str

    @property
    def stream(self) -> str:
        return self.job

    @property
    def attempt_number(self) -> int | None:
        """Return the attempt of the event, which must be the job's last one; None if it has none."""
        return None


class AttemptEvent(JobEvent, frozen=True):
    """An event about the job's last attempt."""

    attempt: int

    @property
    def attempt_number(self) -> int | None:
        return self.attempt


class RankEvent(AttemptEvent, frozen=True):
    """An event about ranks of the job's last attempt."""

    # The states that each of these ranks may have.
    ranks_in: ClassVar[Collection[RankState]]

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        """Return the ranks of the event, each once."""
        raise AssertionError(f"{type(self).__name__} has no ranks")


class RanksEvent(RankEvent, frozen=True):
    """An event that applies to several ranks in the same way."""

    ranks: tuple[int, ...]

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        return self.ranks


class JobSubmitted(JobEvent, frozen=True):
    """A person or an owner submitted a job."""

    allowed_in = ()
    wakes_scheduler = True
    is_input = True
    needs_cause = True

    namespace: str
    name: str
    spec: JobSpec
    # What the job waits for before it queues: `spec.after` with ids in place of names.
    after: tuple[Dependency, ...] = ()
    # The owner that submitted the job; None if a person did.
    owner: OwnedBy | None = None


class DependenciesMet(JobEvent, frozen=True):
    """All dependencies of the job are met: it enters its queue."""

    allowed_in = (Phase.QUEUED, Phase.SUSPENDED)
    attempt_in = frozenset({None})
    wakes_scheduler = True


class GangPlaced(JobEvent, frozen=True):
    """The scheduler placed every rank of the gang in one decision."""

    allowed_in = (Phase.QUEUED,)
    leads_to = Phase.STARTING
    attempt_in = NO_LIVE_ATTEMPT

    attempt: int
    placement: Placement
    # For each rank its share of a device in thousandths, or 0 for whole devices; empty if no rank
    # shares a device.
    shares: tuple[int, ...] = ()
    # The GPU flavor whose quota the gang uses, if its queue has quotas by flavor.
    flavor: str = ""
    # GPU-seconds that earlier attempts used, if the policy needs the number.
    gpu_s: float = 0.0
    # When the gang enters the next tier of attained service, if jobs of lower tiers may then preempt
    # it.
    next_tier_at: float | None = None
    # The end of its protection from preemption, if the policy protects it.
    safe_until: float | None = None


class ProtectionEnded(AttemptEvent, frozen=True):
    """The gang's protection is over: it may be preempted from now on."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    wakes_scheduler = True


class ServiceTierPassed(AttemptEvent, frozen=True):
    """The gang entered a higher tier of attained service: jobs of lower tiers now go before it."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    wakes_scheduler = True

    tier: int
    next_at: float | None = None


class GangWaiting(JobEvent, frozen=True):
    """The reason for which a waiting job does not start has changed."""

    allowed_in = WAITING
    attempt_in = NO_LIVE_ATTEMPT

    code: WaitReason
    needed: int | None = None
    available: int | None = None
    facts: WaitFacts | None = None

    @property
    def wait(self) -> Wait:
        return Wait(code=self.code, needed=self.needed, available=self.available, facts=self.facts)


class JobUnschedulable(JobEvent, frozen=True):
    """The job could not start even if the present cluster were empty; it waits outside its queue.

    The event repeats when the obstacle of an unschedulable job changes.
    """

    allowed_in = WAITING
    leads_to = Phase.UNSCHEDULABLE
    attempt_in = NO_LIVE_ATTEMPT
    wakes_scheduler = True

    obstacle: Obstacle


class JobSchedulable(JobEvent, frozen=True):
    """The obstacle is gone: the job is back at its place in the queue."""

    allowed_in = (Phase.UNSCHEDULABLE,)
    leads_to = Phase.QUEUED
    attempt_in = NO_LIVE_ATTEMPT
    wakes_scheduler = True


class RanksReplaced(RanksEvent, frozen=True):
    """Ranks that were lost with their nodes get other devices; the other ranks keep running."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = frozenset({RankState.EXITED, RankState.GONE})

    slots: Placement


class RanksStarted(RanksEvent, frozen=True):
    """The cluster reported that these ranks are up."""

    allowed_in = REPORTED_IN
    attempt_in = REPORTED_ATTEMPT
    ranks_in = frozenset({RankState.PENDING})
    is_input = True


class GangStarted(AttemptEvent, frozen=True):
    """Every rank has started."""

    allowed_in = (Phase.STARTING,)
    leads_to = Phase.RUNNING
    attempt_in = (AttemptState.STARTING,)
    moves_attempt = {AttemptState.STARTING: AttemptState.RUNNING}


class RanksExited(RankEvent, frozen=True):
    """The cluster reported that these ranks ended; they no longer hold devices."""

    allowed_in = REPORTED_IN
    attempt_in = REPORTED_ATTEMPT
    ranks_in = frozenset({RankState.PENDING, RankState.RUNNING, RankState.LOST})
    wakes_scheduler = True
    is_input = True

    exits: tuple[Exit, ...]

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        return tuple(end.rank for end in self.exits)


class RanksLost(RanksEvent, frozen=True):
    """These ranks are given up; they hold their devices until they are reported gone.

    `loss` is the reason, if it is known, and `detail` the cluster's text. A rank in back-off is
    already gone.
    """

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = frozenset({RankState.PENDING, RankState.RUNNING, RankState.BACKOFF, RankState.LOST})
    wakes_scheduler = True
    is_input = True

    detail: str = ""
    cause: Cause = Cause.NODE_LOST
    loss: Loss | None = None


class RanksReleased(RanksEvent, frozen=True):
    """The gang shrinks and does not need these ranks; they hold their devices until they are gone."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = RanksLost.ranks_in
    wakes_scheduler = True

    reason: LossReason


class RanksStuck(RanksEvent, frozen=True):
    """These ranks do not come up, for the cluster's reason and with its text. It keeps trying."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = frozenset({RankState.PENDING})
    is_input = True

    reason: str
    detail: str = ""


class RanksAdded(AttemptEvent, frozen=True):
    """A running gang grows: new ranks, numbered from `first`, get these slots and are launched."""

    allowed_in = (Phase.RUNNING,)
    attempt_in = (AttemptState.RUNNING,)

    first: int
    placement: Placement


class RanksRestartedInPlace(RankEvent, frozen=True):
    """The cluster restarted processes of ranks in place.

    `counts` has pairs of a rank and its total number of such restarts.
    """

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = frozenset({RankState.PENDING, RankState.RUNNING})
    is_input = True

    counts: tuple[tuple[int, int], ...]
    restarts: tuple[Restart, ...]

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        return tuple(rank for rank, _ in self.counts)


class RanksGone(RanksEvent, frozen=True):
    """The cluster reported that nothing of these ranks is left: no process, no device held."""

    allowed_in = REPORTED_IN
    attempt_in = REPORTED_ATTEMPT
    ranks_in = frozenset({RankState.PENDING, RankState.RUNNING, RankState.LOST})
    wakes_scheduler = True
    is_input = True


class RankRestarting(RankEvent, frozen=True):
    """One rank waits in back-off and keeps its devices; the rest of the gang keeps running."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = frozenset({RankState.LOST, RankState.EXITED, RankState.GONE})

    rank: int
    restart: Restart
    streak: int
    retry_at: float

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        return (self.rank,)


class RankRelaunched(RankEvent, frozen=True):
    """The back-off of one rank is over, and the rank starts again."""

    allowed_in = ACTIVE
    attempt_in = LIVE_ATTEMPT
    ranks_in = frozenset({RankState.BACKOFF})

    rank: int

    @property
    def rank_numbers(self) -> tuple[int, ...]:
        return (self.rank,)


class JobRestarting(JobEvent, frozen=True):
    """The attempt stops; the next one may be placed from `retry_at` on, once this one is gone."""

    allowed_in = ACTIVE
    leads_to = Phase.RESTARTING
    attempt_in = LIVE_ATTEMPT
    moves_attempt = STOPS
    wakes_scheduler = True

    restart: Restart
    streak: int
    retry_at: float

    @property
    def attempt_number(self) -> int | None:
        return self.restart.attempt


class JobRequeued(JobEvent, frozen=True):
    """Back-off is over and nothing of the last attempt is left.

    `keeps_place`: a job that was stopped through no fault of its own keeps its place in the queue.
    """

    allowed_in = (Phase.RESTARTING,)
    leads_to = Phase.QUEUED
    attempt_in = NO_LIVE_ATTEMPT
    wakes_scheduler = True

    keeps_place: bool = False


class AttemptEnded(AttemptEvent, frozen=True):
    """Every rank of the attempt has exited or is gone."""

    allowed_in = (Phase.RESTARTING, Phase.SUSPENDED, *FINISHED)
    attempt_in = (AttemptState.STOPPING,)
    moves_attempt = {AttemptState.STOPPING: AttemptState.OVER}
    wakes_scheduler = True


class JobSucceeded(JobEvent, frozen=True):
    """The ranks that `spec.done_when` names have succeeded."""

    allowed_in = ACTIVE
    leads_to = Phase.SUCCEEDED
    attempt_in = LIVE_ATTEMPT
    moves_attempt = STOPS


class JobFailed(JobEvent, frozen=True):
    """The job ended without success; the fields are those of `Failure`."""

    allowed_in = UNFINISHED
    leads_to = Phase.FAILED
    moves_attempt = STOPS
    wakes_scheduler = True

    reason: FailureReason
    rank: int | None = None
    exit_code: int | None = None
    last: Restart | None = None
    facts: FailureFacts | None = None

    @property
    def failure(self) -> Failure:
        return Failure(self.reason, self.rank, self.exit_code, self.last, self.facts)


class JobCancelled(JobEvent, frozen=True):
    """The job was cancelled; a live attempt stops."""

    allowed_in = UNFINISHED
    leads_to = Phase.CANCELLED
    moves_attempt = STOPS
    wakes_scheduler = True
    is_input = True
    needs_cause = True


class JobSuspended(JobEvent, frozen=True):
    """The job does not run until it is resumed. `reason` is None if a person requested it."""

    allowed_in = AWAKE
    leads_to = Phase.SUSPENDED
    moves_attempt = STOPS
    wakes_scheduler = True
    is_input = True
    needs_cause = True

    reason: FailureReason | None = None
    last: Restart | None = None
    facts: FailureFacts | None = None

    @property
    def failure(self) -> Failure | None:
        if self.reason is None:
            return None
        return Failure(self.reason, last=self.last, facts=self.facts)


class JobResumed(JobEvent, frozen=True):
    """A suspended job was resumed; it queues again once nothing of its last attempt is left."""

    allowed_in = (Phase.SUSPENDED,)
    leads_to = Phase.RESTARTING
    is_input = True
    needs_cause = True


class CodeResolved(AttemptEvent, frozen=True):
    """A rank got its code: the job's branch or tag resolved to this commit."""

    allowed_in = tuple(Phase)
    attempt_in = tuple(AttemptState)
    is_input = True

    rank: int
    commit: str


class JobScaled(JobEvent, frozen=True):
    """A role got another number of replicas."""

    allowed_in = UNFINISHED
    wakes_scheduler = True
    is_input = True
    needs_cause = True

    role: str
    replicas: int


class JobAmended(JobEvent, frozen=True):
    """A person changed limits of the job, or its place in the line while it waits.

    Limits are its deadline, restarts, time to live and pod cleanup. A field that was not named is
    unset and does not change.
    """

    allowed_in = tuple(Phase)
    wakes_scheduler = True
    is_input = True
    needs_cause = True

    ttl_s: float | UnsetType | None = UNSET
    active_deadline_s: float | UnsetType | None = UNSET
    restart_limit: int | UnsetType | None = UNSET
    clean: CleanPods | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    queue: str | UnsetType = UNSET


class JobDeleteRequested(JobEvent, frozen=True):
    """The job will be removed as soon as nothing of it is left in the cluster."""

    allowed_in = FINISHED
    is_input = True
    needs_cause = True


class JobErrored(JobEvent, frozen=True):
    """A kind, an adapter or the simulator raised an error while it worked for this job.

    `where` is the operation that raised, `error` the error's type and `text` its message, bounded.
    """

    allowed_in = UNFINISHED
    is_input = True

    where: str
    error: str
    text: str = ""
    # The attempt concerned; 0 for none in particular.
    attempt: int = 0

    @property
    def attempt_number(self) -> int | None:
        return self.attempt or None


class EngineFailed(JobEvent, frozen=True):
    """An engine stopped because of a bug while it decided about this job."""

    allowed_in = tuple(Phase)
    is_input = True

    epoch: int
    where: str
    error: str
    text: str = ""


class JobQuarantined(JobEvent, frozen=True):
    """Nothing more is decided for this job: it stopped the engine twice, or an operator asked."""

    allowed_in = tuple(Phase)
    is_input = True

    where: str
    error: str
    text: str = ""


class JobRemoved(JobEvent, frozen=True):
    """A finished job was removed from the state; the log keeps its events."""

    allowed_in = FINISHED
    attempt_in = NO_LIVE_ATTEMPT

    reason: JobRemovalReason


_OWNER_UNFINISHED = (OwnerPhase.ACTIVE, OwnerPhase.SUSPENDED)


class OwnerEvent(Event, frozen=True):
    """An event about an owner of jobs, such as an array. Its members have events of their own.

    `controlplane/lifecycle/owner.py` derives the transition table of owners from these declarations.
    """

    # The phases in which the event may happen, each with the phase that it leads to.
    moves: ClassVar[Mapping[OwnerPhase, OwnerPhase]]

    owner: str

    @property
    def stream(self) -> str:
        return self.owner


class OwnerSubmitted(OwnerEvent, frozen=True):
    """A person submitted an owner of jobs, such as an array."""

    moves = {}
    is_input = True

    namespace: str
    name: str
    spec: OwnerSpec
    # What the owner waits for before it submits its first member.
    after: tuple[Dependency, ...] = ()


class OwnerReady(OwnerEvent, frozen=True):
    """All dependencies of the owner are met: it may submit members."""

    moves = {phase: phase for phase in _OWNER_UNFINISHED}


class OwnerSuspended(OwnerEvent, frozen=True):
    """The owner submits no members and suspends its unfinished ones, until it is resumed."""

    moves = {OwnerPhase.ACTIVE: OwnerPhase.SUSPENDED}
    is_input = True


class OwnerResumed(OwnerEvent, frozen=True):
    """The owner submits members again and resumes those that it suspended."""

    moves = {OwnerPhase.SUSPENDED: OwnerPhase.ACTIVE}
    is_input = True


class OwnerCancelled(OwnerEvent, frozen=True):
    """The owner submits no more members and cancels its unfinished ones."""

    moves = dict.fromkeys(_OWNER_UNFINISHED, OwnerPhase.CANCELLED)
    is_input = True


class OwnerSucceeded(OwnerEvent, frozen=True):
    """All members of the owner have succeeded."""

    moves = {OwnerPhase.ACTIVE: OwnerPhase.SUCCEEDED}


class OwnerFailed(OwnerEvent, frozen=True):
    """The owner failed; its unfinished members are cancelled."""

    moves = dict.fromkeys(_OWNER_UNFINISHED, OwnerPhase.FAILED)

    reason: OwnerFailure
    # The dependency that failed, or the member that was refused; NAMESPACE/NAME.
    job: str = ""
    # The code of a refusal.
    error: str = ""


class OwnerErrored(OwnerEvent, frozen=True):
    """An error was raised while something worked for this owner; fields are as in `JobErrored`."""

    moves = dict.fromkeys(_OWNER_UNFINISHED, OwnerPhase.FAILED)
    is_input = True

    where: str
    error: str
    text: str = ""


class MembersRetried(OwnerEvent, frozen=True):
    """A person asked to run these members again: a new job replaces each finished one."""

    moves = {
        **{phase: phase for phase in _OWNER_UNFINISHED},
        OwnerPhase.FAILED: OwnerPhase.ACTIVE,
    }
    is_input = True

    indices: tuple[int, ...]


class OwnerDeleteRequested(OwnerEvent, frozen=True):
    """The owner and its members will be removed as soon as nothing of them is left in the cluster.

    A person asked for it, or the owner's time to live is over.
    """

    moves = {phase: phase for phase in OWNER_FINISHED}
    is_input = True
    needs_cause = True


class OwnerRemoved(OwnerEvent, frozen=True):
    """A finished owner was removed from the state; the log keeps its events."""

    moves = {}

    reason: OwnerRemovalReason


class NodeEvent(Event, frozen=True):
    """An event about one node; `controlplane/state/state.py` refuses it if it is not allowed."""

    # The states of the node in which the event may happen.
    allowed_in: ClassVar[Collection[NodeState]]
    # Whether the node must be cordoned (True) or must not be (False); None: either.
    if_cordoned: ClassVar[bool | None] = None

    node: str

    @property
    def stream(self) -> str:
        return f"node/{self.node}"


class NodeReported(NodeEvent, frozen=True):
    """The cluster reported a ready node, which is new, changed or back."""

    allowed_in = tuple(NodeState)
    wakes_scheduler = True
    is_input = True

    info: NodeInfo


class NodeLost(NodeEvent, frozen=True):
    """A node no longer takes work; its ranks may still run until they are reported gone."""

    allowed_in = (NodeState.READY,)
    wakes_scheduler = True
    is_input = True

    # As in `Loss`.
    reason: LossReason = LossReason.UNREACHABLE
    detail: str = ""
    left_s: float | None = None
    # The times of this and earlier losses, if the policy needs them.
    losses: tuple[float, ...] = ()

    @property
    def loss(self) -> Loss:
        return Loss(self.reason, self.node, self.detail, self.left_s)


class NodeRemoved(NodeEvent, frozen=True):
    """A node left the cluster for good; `reason` is None if the cluster reported it."""

    allowed_in = (NodeState.READY, NodeState.LOST)
    wakes_scheduler = True
    is_input = True

    reason: NodeRemovalReason | None = None


class NodeCordoned(NodeEvent, frozen=True):
    """A node was taken out of scheduling; `reason` is None if a person asked for just that."""

    allowed_in = (NodeState.READY, NodeState.LOST)
    if_cordoned = False
    wakes_scheduler = True
    is_input = True
    needs_cause = True

    reason: CordonReason | None = None
    # How often the node was lost within a day, if it is quarantined for that.
    losses: int = 0


class NodeDrainRequested(NodeEvent, frozen=True):
    """A person asked to drain a node that is already cordoned; the gangs on it stop."""

    allowed_in = (NodeState.READY, NodeState.LOST)
    if_cordoned = True
    is_input = True
    needs_cause = True


class NodeUncordoned(NodeEvent, frozen=True):
    """A cordoned node was returned to scheduling."""

    allowed_in = (NodeState.READY, NodeState.LOST)
    if_cordoned = True
    wakes_scheduler = True
    is_input = True
    needs_cause = True


class QueueDefined(Event, frozen=True):
    """A queue was created, or replaced by another definition."""

    wakes_scheduler = True
    is_input = True
    needs_cause = True

    queue: Queue

    @property
    def stream(self) -> str:
        return f"queue/{self.queue.name}"


class QueueRemoved(Event, frozen=True):
    """An empty queue was removed."""

    wakes_scheduler = True
    is_input = True
    needs_cause = True

    name: str

    @property
    def stream(self) -> str:
        return f"queue/{self.name}"


class PolicySet(Event, frozen=True):
    """The policy by which the cluster is scheduled from now on."""

    wakes_scheduler = True
    is_input = True
    needs_cause = True

    policy: Policy

    @property
    def stream(self) -> str:
        return "policy"


class StartsCounted(Event, frozen=True):
    """The number of gangs that started in the present scheduling cycle, if the policy limits it.

    A pass records it after its decisions. The fold applies events job by job, so it cannot count the
    starts itself.
    """

    # When the cycle ends: `cycle_s` after its first start.
    ends_at: float
    # Gangs that were placed in this cycle, or for which victims were preempted in it.
    admitted: int
    # Whether the limit kept gangs from starting: the next cycle then begins at `ends_at`.
    limited: bool = False

    @property
    def stream(self) -> str:
        return "cluster"


class CycleEnded(Event, frozen=True):
    """A scheduling cycle ended in which the limit on starts kept gangs from starting."""

    wakes_scheduler = True

    @property
    def stream(self) -> str:
        return "cluster"


class ClusterSurveyed(Event, frozen=True):
    """Every node of the cluster is known, so a job that fits on none of them can never fit."""

    is_input = True

    @property
    def stream(self) -> str:
        return "cluster"


class ClusterModelled(Event, frozen=True):
    """From now on the simulated cluster is the one that this document describes.

    The document is the cluster file as JSON, with the seed, so that the cluster can be rebuilt from
    the log alone.
    """

    is_input = True

    document: str

    @property
    def stream(self) -> str:
        return "simulator"


class PoolNodesRequested(Event, frozen=True):
    """A pool's autoscaler requested nodes from the provider; each takes work at its `ready_at`."""

    is_input = True

    pool: str
    nodes: tuple[str, ...]
    ready_at: tuple[float, ...]

    @property
    def stream(self) -> str:
        return f"pool/{self.pool}"


class PoolNodesReturned(Event, frozen=True):
    """A pool's autoscaler returned idle nodes to the provider."""

    is_input = True

    pool: str
    nodes: tuple[str, ...]

    @property
    def stream(self) -> str:
        return f"pool/{self.pool}"


class FaultInjected(Event, frozen=True):
    """A person asked for a fault of a node of the simulated cluster.

    It begins `delay_s` after the time of this event.
    """

    is_input = True

    node: str
    fault: NodeFaultSpec
    delay_s: float = 0.0

    @property
    def stream(self) -> str:
        return f"node/{self.node}"


class TimePassed(Event, frozen=True):
    """Nothing happened until the time of this event, which is the time of the cluster's clock."""

    is_input = True

    @property
    def stream(self) -> str:
        return "cluster"


class EngineStarted(Event, frozen=True):
    """A control plane began to lead; this release makes the decisions from here on."""

    wakes_scheduler = True
    is_input = True

    epoch: int
    release: str
    # The leader's address, for standbys that follow the log; empty if none needs it.
    address: str = ""
    # Whether a scheduling pass follows although no other event freed capacity: the last step was cut
    # off before its pass. A start by itself changes no decision.
    passes: bool = True

    @property
    def stream(self) -> str:
        return "cluster"


def _concrete(kind: type[Event]) -> Iterator[type[Event]]:
    """Yield the event types below a base class, in the order of this file."""
    for each in kind.__subclasses__():
        if each.__subclasses__():
            yield from _concrete(each)
        else:
            yield each


# Every event type by the name under which it is recorded, derived from the classes above.
EVENT_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in _concrete(Event)}
JOB_EVENTS: tuple[type[JobEvent], ...] = tuple(
    kind for kind in EVENT_TYPES.values() if issubclass(kind, JobEvent)
)


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event with its envelope: its position in the log, its time, and its cause.

    `command` is the type of the command that caused the event, for example `SubmitJob` or
    `ReportRanks`; it is empty for what a step decides by itself. `cause` is the id of that command
    and `actor` the person who sent it; a report of the cluster has neither.

    `step` is the number of the engine step that recorded the event. Steps that record nothing are
    not numbered, so numbers have no gaps. `ordinal` counts the commands of a step from 1, so
    (`step`, `ordinal`) identifies one command; it is 0 where `command` is empty.
    """

    position: int
    at: float
    event: Event
    cause: str = ""
    actor: str = ""
    command: str = ""
    step: int = 0
    ordinal: int = 0
