"""Commands to the engine: requests of people and reports of the cluster.

A request carries an id that is made at the edge; a repeated id gets the first answer again. A
report carries none, because a repeated report decides nothing.
"""

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Exit, Stuck
from controlplane.model.faults import NodeFaultSpec
from controlplane.model.policy import Policy, Queue
from controlplane.model.reasons import Loss, LossReason
from controlplane.model.spec import CleanPods, JobSpec


class Command(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A request or a report; `id` and `actor` are empty for a report."""

    id: str = ""
    actor: str = ""


class SubmitJob(Command, frozen=True):
    """Submit a job, or an array if `spec.array` is not empty; `job` is the new id."""

    job: str
    namespace: str
    name: str
    spec: JobSpec
    suspended: bool = False


class JobRequest(Command, frozen=True, kw_only=True):
    """A request about an existing job or array, by namespace and name.

    A name may be reused. `job`, if it is not empty, is the id that the job must have.
    """

    namespace: str
    name: str
    job: str = ""


class CancelJob(JobRequest, frozen=True): ...


class SuspendJob(JobRequest, frozen=True): ...


class ResumeJob(JobRequest, frozen=True): ...


class DeleteJob(JobRequest, frozen=True): ...


class RetryMembers(JobRequest, frozen=True, kw_only=True):
    """Run indices of an array again; if `indices` is empty, all that failed or were cancelled."""

    indices: tuple[int, ...] = ()


class ScaleJob(JobRequest, frozen=True, kw_only=True):
    """Change the number of replicas of a role."""

    role: str
    replicas: int


class AmendJob(JobRequest, frozen=True, kw_only=True):
    """Change limits of a job without touching its ranks; an unset field stays as it is.

    The time to live of a finished job may still be changed. The queue and the priority can change
    while the job holds no devices.
    """

    ttl_s: float | UnsetType | None = UNSET
    active_deadline_s: float | UnsetType | None = UNSET
    restart_limit: int | UnsetType | None = UNSET
    clean: CleanPods | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    queue: str | UnsetType = UNSET


class InjectFault(Command, frozen=True):
    """Make a node of a simulated cluster fail, `delay_s` after the command is recorded.

    The delay gives the log the time to store the event before the fault begins, so that a replay of
    the log has the fault at the same instant.
    """

    node: str
    fault: NodeFaultSpec
    delay_s: float = 0.0


class DefineQueue(Command, frozen=True):
    """Create a queue, or replace the one with the same name."""

    queue: Queue


class RemoveQueue(Command, frozen=True):
    """Remove a queue, which must have no jobs and no child queues."""

    name: str


class SetPolicy(Command, frozen=True):
    """Replace the scheduling policy of the whole cluster."""

    policy: Policy


class DrainNode(Command, frozen=True):
    """Cordon the node and restart elsewhere the gangs that have ranks on it."""

    node: str


class ForgetNode(Command, frozen=True):
    """Declare a node that does not answer as gone for good, with everything that ran on it."""

    node: str


class CordonNode(Command, frozen=True):
    """Take the node out of scheduling; its ranks keep running."""

    node: str


class UncordonNode(Command, frozen=True):
    """Return a cordoned node to scheduling."""

    node: str


class ReportNode(Command, frozen=True):
    """The cluster has this node; it is ready and has these devices."""

    node: NodeInfo


class ReportNodeLost(Command, frozen=True):
    """The node no longer answers. Its ranks may still run until they are reported gone."""

    node: str
    # As in `Loss`.
    reason: LossReason = LossReason.UNREACHABLE
    detail: str = ""
    left_s: float | None = None

    @property
    def loss(self) -> Loss:
        return Loss(self.reason, self.node, self.detail, self.left_s)


class ReportNodeRemoved(Command, frozen=True):
    """The node left the cluster for good, with everything that ran on it."""

    node: str


class ReportCluster(Command, frozen=True):
    """All nodes of the cluster: `up` answer, `down` do not.

    It answers a survey. A known node that is not listed has left the cluster.
    """

    up: tuple[NodeInfo, ...]
    down: tuple[NodeInfo, ...] = ()


class ReportSurveyed(Command, frozen=True):
    """Every node of the cluster has been reported."""


class ReportModel(Command, frozen=True):
    """The cluster is simulated, and this JSON document describes it."""

    document: str


class ReportPoolRequest(Command, frozen=True):
    """Nodes were requested from a pool; each takes work at its time in `ready_at`."""

    pool: str
    nodes: tuple[str, ...]
    ready_at: tuple[float, ...]


class ReportPoolReturn(Command, frozen=True):
    """Nodes were returned to a pool."""

    pool: str
    nodes: tuple[str, ...]


class ReportTime(Command, frozen=True):
    """Time passed, and nothing else was reported."""


class ReportRanks(Command, frozen=True):
    """What the cluster observed of an attempt's ranks.

    `gone`: nothing of the rank is left, neither a process nor a held device. `leaving`: the rank
    was stopped from outside (a drain, a deletion by hand) and may still hold its devices. `stuck`:
    the rank does not come up, with the cluster's reason. `restarted`: pairs of a rank and how often
    the cluster restarted its process in place. `commits`: pairs of a rank and the commit of its
    code. `incarnation` distinguishes the runs of one rank within an attempt, for jobs that restart
    single ranks.
    """

    job: str
    attempt: int
    started: tuple[int, ...] = ()
    exited: tuple[Exit, ...] = ()
    gone: tuple[int, ...] = ()
    leaving: tuple[Exit, ...] = ()
    restarted: tuple[tuple[int, int], ...] = ()
    incarnation: int = 0
    commits: tuple[tuple[int, str], ...] = ()
    stuck: tuple[Stuck, ...] = ()


class ReportError(Command, frozen=True):
    """A kind, an adapter or the simulator raised an error while it worked for this job.

    `where` is the operation, `error` the error's type, `text` its message, bounded by
    `decisions.isolation.bounded_text`. `attempt` is the attempt concerned, or 0 for none in
    particular.
    """

    job: str
    where: str
    error: str
    text: str = ""
    attempt: int = 0


class QuarantineJob(Command, frozen=True):
    """Decide nothing more for this job: it stops engines. The fields are as in `ReportError`."""

    job: str
    where: str
    error: str
    text: str = ""


Request = (
    SubmitJob
    | RetryMembers
    | CancelJob
    | SuspendJob
    | ResumeJob
    | DeleteJob
    | ScaleJob
    | AmendJob
    | DefineQueue
    | RemoveQueue
    | SetPolicy
    | DrainNode
    | CordonNode
    | ForgetNode
    | UncordonNode
    | InjectFault
)
Report = (
    ReportNode
    | ReportNodeLost
    | ReportNodeRemoved
    | ReportCluster
    | ReportSurveyed
    | ReportModel
    | ReportPoolRequest
    | ReportPoolReturn
    | ReportTime
    | ReportRanks
    | ReportError
)
AnyCommand = Request | Report | QuarantineJob
