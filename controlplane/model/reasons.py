"""Why a job waits, restarts or fails, and why a node is lost: codes and facts.

A reason is a member of a `StrEnum`; its parameters are a small struct of facts. Events and the state
hold these values and no sentences: `controlplane/messages.py` renders the sentences, so that their
wording can change without touching a log, and no code has to parse one.

Facts are typed: names are in fields of their own, so that redaction can replace them, and amounts are
in the units of `model/resources.py`.
"""

from enum import StrEnum

from controlplane.model.dependencies import Condition
from controlplane.model.spec import RestartRule
from controlplane.model.values import Value


class Tier(StrEnum):
    """The class of a wait reason, from what only people can change to what ends by itself."""

    GATE = "gate"
    QUOTA = "quota"
    SHAPE = "shape"
    TOPOLOGY = "topology"
    FRAGMENTATION = "fragmentation"
    AHEAD = "ahead_in_queue"


class WaitReason(StrEnum):
    """Why a job does not start now (`Wait`), or could not start if nothing ran (`Obstacle`)."""

    # Gates: the job is not complete.
    GANG_INCOMPLETE = "gang_incomplete"
    GROUP_INCOMPLETE = "group_incomplete"
    GROUP_MEMBER_UNSCHEDULABLE = "group_member_unschedulable"
    # The job waits for other jobs and is not in its queue yet.
    WAITING_FOR_DEPENDENCY = "waiting_for_dependency"
    # Quotas.
    QUEUE_LIMIT = "queue_limit"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    NON_PREEMPTIBLE_OVER_QUOTA = "non_preemptible_over_quota"
    FAIR_SHARE = "fair_share"
    NO_PREEMPTION_CANDIDATES = "no_preemption_candidates"
    BLOCKED_BY_RESERVED_CAPACITY = "blocked_by_reserved_capacity"
    # Capacity of nodes, in total or free.
    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    INSUFFICIENT_RESOURCES = "insufficient_resources"
    GROUP_INCOMPLETE_CAPACITY = "group_incomplete_capacity"
    GROUP_EXCEEDS_CLUSTER = "group_exceeds_cluster"
    NO_MATCHING_NODE = "no_matching_node"
    NO_NODE_TAKES_WORK = "no_node_takes_work"
    PINNED_NODE_ABSENT = "pinned_node_absent"
    PINNED_NODE_UNAVAILABLE = "pinned_node_unavailable"
    PINNED_DEVICES_UNAVAILABLE = "pinned_devices_unavailable"
    GPU_MEMORY_EXCEEDS_DEVICE = "gpu_memory_exceeds_device"
    RANK_EXCEEDS_NODE = "rank_exceeds_node"
    WAITING_FOR_VICTIMS = "waiting_for_victims"
    # Topology of the ranks.
    UNKNOWN_TOPOLOGY_LEVEL = "unknown_topology_level"
    TOPOLOGY_UNSATISFIED = "topology_unsatisfied"
    NO_EXCLUSIVE_DOMAIN = "no_exclusive_domain"
    FRAGMENTED = "fragmented"
    # Other jobs come first.
    BLOCKED_BY_HEAD = "blocked_by_head"
    WOULD_DELAY_PLANNED_START = "would_delay_planned_start"
    STARTS_LIMITED = "starts_limited"
    # Reasons of jobs outside the queue, which have no tier: another controller runs the job, or its
    # ranks have devices and do not come up.
    MANAGED_ELSEWHERE = "managed_elsewhere"
    RANK_STUCK = "rank_stuck"


TIERS: dict[WaitReason, Tier] = {
    WaitReason.INSUFFICIENT_CAPACITY: Tier.SHAPE,
    WaitReason.INSUFFICIENT_RESOURCES: Tier.SHAPE,
    WaitReason.GROUP_INCOMPLETE_CAPACITY: Tier.SHAPE,
    WaitReason.GROUP_EXCEEDS_CLUSTER: Tier.SHAPE,
    WaitReason.NO_MATCHING_NODE: Tier.SHAPE,
    WaitReason.NO_NODE_TAKES_WORK: Tier.SHAPE,
    WaitReason.PINNED_NODE_ABSENT: Tier.SHAPE,
    WaitReason.PINNED_NODE_UNAVAILABLE: Tier.SHAPE,
    WaitReason.PINNED_DEVICES_UNAVAILABLE: Tier.SHAPE,
    WaitReason.GPU_MEMORY_EXCEEDS_DEVICE: Tier.SHAPE,
    WaitReason.RANK_EXCEEDS_NODE: Tier.SHAPE,
    WaitReason.WAITING_FOR_VICTIMS: Tier.SHAPE,
    WaitReason.GANG_INCOMPLETE: Tier.GATE,
    WaitReason.GROUP_INCOMPLETE: Tier.GATE,
    WaitReason.WAITING_FOR_DEPENDENCY: Tier.GATE,
    WaitReason.GROUP_MEMBER_UNSCHEDULABLE: Tier.GATE,
    WaitReason.QUEUE_LIMIT: Tier.QUOTA,
    WaitReason.INSUFFICIENT_QUOTA: Tier.QUOTA,
    WaitReason.NON_PREEMPTIBLE_OVER_QUOTA: Tier.QUOTA,
    WaitReason.FAIR_SHARE: Tier.QUOTA,
    WaitReason.NO_PREEMPTION_CANDIDATES: Tier.QUOTA,
    WaitReason.BLOCKED_BY_RESERVED_CAPACITY: Tier.QUOTA,
    WaitReason.UNKNOWN_TOPOLOGY_LEVEL: Tier.TOPOLOGY,
    WaitReason.TOPOLOGY_UNSATISFIED: Tier.TOPOLOGY,
    WaitReason.NO_EXCLUSIVE_DOMAIN: Tier.TOPOLOGY,
    WaitReason.FRAGMENTED: Tier.FRAGMENTATION,
    WaitReason.BLOCKED_BY_HEAD: Tier.AHEAD,
    WaitReason.WOULD_DELAY_PLANNED_START: Tier.AHEAD,
    WaitReason.STARTS_LIMITED: Tier.AHEAD,
}


class JobName(Value, frozen=True):
    """A job by namespace and name."""

    namespace: str
    name: str


class Facts(Value, frozen=True, tag=True):
    """The parameters of a reason. In a log the field `type` names the struct."""


# ---------------------------------------------------------------- waits


class CeilingReached(Facts, frozen=True):
    """The queue whose ceiling leaves the least room: the job's own or one above it."""

    queue: str
    ceiling: int


class DependencyOpen(Facts, frozen=True):
    """The job that this one waits for, as NAMESPACE/NAME, how it must end, and its present state."""

    job: str
    condition: Condition
    standing: str


class QuotaShort(Facts, frozen=True):
    """The most quota that the queue can ever have, if the job needs more than that."""

    ever: int


class ResourceQuotaShort(Facts, frozen=True):
    """The queue's quota of a resource other than GPUs is short."""

    resource: str
    needed: float
    available: float


class NodeAmount(Value, frozen=True):
    """How much of a resource a node has free, and in total."""

    node: str
    free: int
    total: int


class ResourceShort(Facts, frozen=True):
    """Ranks need between `least` and `most` of a resource.

    `nodes` are those with the most of it free, in descending order.
    """

    resource: str
    least: int
    most: int
    nodes: tuple[NodeAmount, ...] = ()
    # Whether more than one node limits the resource.
    other_nodes: bool = False


class ResourcesScattered(Facts, frozen=True):
    """Each resource is sufficient alone, but too few nodes have enough of all of them."""

    resources: tuple[str, ...]


class SharesShort(Facts, frozen=True):
    """Ranks need shares of up to `share_milli`; a shared GPU has at most `left_milli` left.

    Both are in thousandths of a GPU. `gpus_free` is the number of GPUs that are wholly free.
    """

    share_milli: int
    gpus_free: int
    left_milli: int


class RanksShort(Facts, frozen=True):
    """Each rank needs `gpus` GPUs on one node."""

    gpus: int


class NodesTooFull(Facts, frozen=True):
    """Each rank needs `gpus` GPUs on one node, and no node has more than `most` free."""

    gpus: int
    most: int


class DomainRoom(Value, frozen=True):
    """How many of the ranks fit into a topology domain."""

    domain: str
    ranks: int


class DomainsShort(Facts, frozen=True):
    """The required topology level, and how many ranks fit into its domains."""

    level: str
    domains: tuple[DomainRoom, ...] = ()
    slice_size: int = 0


class LevelUnknown(Facts, frozen=True):
    level: str


class HeadWaits(Facts, frozen=True):
    """The GPUs that the job at the head needs, and its name if the namespace is the same."""

    gpus: float
    job: JobName | None = None


class CycleFull(Facts, frozen=True):
    """The limit on starts per cycle, and the time at which the scheduling cycle ends."""

    limit: int
    until: float


class VictimsLeaving(Facts, frozen=True):
    """How many victims still hold devices that are reserved for the job."""

    jobs: int


class ManagedElsewhere(Facts, frozen=True):
    """The controller that the job's `managedBy` names."""

    controller: str


class RanksNotUp(Facts, frozen=True):
    """A rank, and `others` more, do not come up; `reason` and `detail` are the cluster's."""

    rank_name: str
    others: int
    reason: str
    detail: str = ""


class RankTooLarge(Facts, frozen=True):
    """A rank needs more than any node has of `resource`, or of GPUs if `resource` is empty."""

    needed: int
    largest: int
    resource: str = ""
    role: str = ""


class RanksTooMany(Facts, frozen=True):
    """The whole cluster, even if it were empty, has room for only `room` of the ranks."""

    ranks: int
    room: int
    gpus: int = 0
    role: str = ""
    # What each rank requests besides GPUs.
    amounts: tuple[tuple[str, int], ...] = ()


class SharesTooMany(Facts, frozen=True):
    """Ranks that share GPUs need `gpus` GPUs, besides `whole` unshared ones, of `total`."""

    ranks: int
    share_milli: int
    gpus: int
    whole: int
    total: int


class GangTooLarge(Facts, frozen=True):
    """The GPUs of the gang, in thousandths, and the number of GPUs of the cluster."""

    milli: int
    total: int


# Why a gang can never start, even if the cluster were empty.
NeverFits = RankTooLarge | RanksTooMany | SharesTooMany | GangTooLarge
WaitFacts = (
    CeilingReached
    | DependencyOpen
    | QuotaShort
    | ResourceQuotaShort
    | ResourceShort
    | ResourcesScattered
    | SharesShort
    | RanksShort
    | NodesTooFull
    | DomainsShort
    | LevelUnknown
    | HeadWaits
    | CycleFull
    | VictimsLeaving
    | ManagedElsewhere
    | RanksNotUp
    | RankTooLarge
    | RanksTooMany
    | SharesTooMany
    | GangTooLarge
)


class Wait(Value, frozen=True, kw_only=True):
    """Why a queued job does not start now.

    `needed` and `available` count GPUs, or ranks if the facts are about ranks.
    """

    code: WaitReason
    needed: int | None = None
    available: int | None = None
    facts: WaitFacts | None = None


# ---------------------------------------------------------------- losses of nodes and ranks


class LossReason(StrEnum):
    """Why a node takes no more work, or why a rank of a live gang is lost."""

    # For a node, and for the ranks on it.
    UNREACHABLE = "unreachable"
    CRASHED = "crashed"
    RECLAIMED = "reclaimed"
    MAINTENANCE = "maintenance"
    # The node was returned to the pool that it was rented from.
    GIVEN_BACK = "given_back"
    REMOVED = "removed"
    # For ranks only.
    NODE_REFUSED = "node_refused"
    POD_DELETED = "pod_deleted"
    SCALED_DOWN = "scaled_down"
    # An elastic gang was shrunk to make room for other jobs.
    PREEMPTED = "preempted"


class Loss(Value, frozen=True):
    """Why a node or a rank is lost; `detail` is the text that the cluster reported.

    `left_s` is set if the cluster announced the loss: the seconds until the node goes.
    """

    reason: LossReason
    node: str = ""
    detail: str = ""
    left_s: float | None = None


class CordonReason(StrEnum):
    """Why a node is cordoned, other than by a person's request to cordon it."""

    DRAINED = "drained"
    # The node was lost too often within a day.
    QUARANTINED = "quarantined"


class NodeRemovalReason(StrEnum):
    """Why a node is removed although the cluster still lists it."""

    # A person declared it gone (`ForgetNode`).
    FORGOTTEN = "forgotten"


class JobRemovalReason(StrEnum):
    DELETED = "deleted"
    # The job's time to live has passed.
    TTL = "ttl"
    # The job's owner submits a new job for the same index.
    RETRIED = "retried"


class OwnerRemovalReason(StrEnum):
    DELETED = "deleted"


# ---------------------------------------------------------------- restarts


class RestartedInPlace(Facts, frozen=True):
    """The cluster restarted the rank's process in place."""


class Preempted(Facts, frozen=True):
    """The GPUs and priority of the preempting job, and its name if the namespace is the same."""

    gpus: int
    priority: int
    job: JobName | None = None


class MovedAside(Facts, frozen=True):
    """The gang is moved so that a gang of `gpus` GPUs fits in one piece."""

    gpus: int


class NodeDrained(Facts, frozen=True):
    node: str


class StartTimedOut(Facts, frozen=True):
    """`late` of `ranks` ranks had not started after `limit_s` seconds.

    `stuck_rank` is one whose problem is known, with the cluster's `reason` and `detail`.
    """

    late: int
    ranks: int
    limit_s: float
    stuck_rank: int | None = None
    reason: str = ""
    detail: str = ""


class RanksNotReplaced(Facts, frozen=True):
    """`ranks` lost ranks got no other devices within `limit_s` seconds."""

    ranks: int
    limit_s: float


class NoRoomInDomain(Facts, frozen=True):
    """`ranks` lost ranks do not fit into the topology domain of the other ranks."""

    ranks: int
    level: str


class Resized(Facts, frozen=True):
    role: str
    before: int
    after: int


RestartFacts = (
    RestartedInPlace
    | Preempted
    | MovedAside
    | NodeDrained
    | StartTimedOut
    | RanksNotReplaced
    | NoRoomInDomain
    | Resized
)

# ---------------------------------------------------------------- failures


class FailureReason(StrEnum):
    """Why a job ended without success, or why the control plane suspended it."""

    # The restart rule of the rank's role allows no restart.
    RESTART_NEVER = "restart_never"
    PERMANENT_EXIT_CODE = "permanent_exit_code"
    CANNOT_RUN = "cannot_run"
    RETRIES_EXHAUSTED = "retries_exhausted"
    # The job timed out at its start too often and is suspended until a person resumes it.
    DEACTIVATED = "deactivated"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NO_IMAGE = "no_image"
    # A kind, an adapter or the simulator raised an error.
    PLATFORM_ERROR = "platform_error"
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"
    # A dependency of the job ended otherwise than required.
    DEPENDENCY_FAILED = "dependency_failed"
    # The job's owner is suspended; the owner resumes the job when it is resumed itself.
    OWNER_SUSPENDED = "owner_suspended"


class DependencyUnmet(Facts, frozen=True):
    """The job that this one waited for, as NAMESPACE/NAME, and how it had to end."""

    job: str
    condition: Condition


class RestartRuleForbids(Facts, frozen=True):
    rule: RestartRule


class BudgetSpent(Facts, frozen=True):
    """`used` of `limit` restarts had been used before the last failure."""

    used: int
    limit: int


class BudgetSpentInPlace(Facts, frozen=True):
    """Restarts in place by the cluster have used up the limit."""

    limit: int


class TimeoutsSpent(Facts, frozen=True):
    """The number of consecutive start timeouts, and its limit."""

    timeouts: int
    limit: int


class DeadlinePassed(Facts, frozen=True):
    limit_s: float


class ImageMissing(Facts, frozen=True):
    """A rank, and `others` more, got no image within `limit_s` seconds.

    `reason` and `detail` are the cluster's.
    """

    rank_name: str
    node: str
    others: int
    limit_s: float
    reason: str
    detail: str = ""


class PlatformFault(Facts, frozen=True):
    """The operation that raised an error, the error's type and its text."""

    where: str
    error: str
    text: str = ""


FailureFacts = (
    DependencyUnmet
    | RestartRuleForbids
    | BudgetSpent
    | BudgetSpentInPlace
    | TimeoutsSpent
    | DeadlinePassed
    | ImageMissing
    | PlatformFault
)
