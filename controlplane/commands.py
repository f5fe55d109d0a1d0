"""What may be asked of the control plane: people's requests and the cluster's reports.

A person's command carries an id made at the edge; the same id again gets the first answer. A
report carries none, because a report that brings nothing new decides nothing.
"""

import msgspec
from msgspec import UNSET, UnsetType

from controlplane.model import CleanPods, Exit, JobSpec, NodeInfo
from controlplane.sharing import Policy, Queue


class Command(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    id: str = ""
    actor: str = ""


class SubmitJob(Command, frozen=True):
    job: str
    namespace: str
    name: str
    spec: JobSpec
    suspended: bool = False


class JobRequest(Command, frozen=True, kw_only=True):
    """A request about a job that exists, named as people name it.

    A name may be used again; who means one job and no other gives its id too.
    """

    namespace: str
    name: str
    job: str = ""


class CancelJob(JobRequest, frozen=True): ...


class SuspendJob(JobRequest, frozen=True): ...


class ResumeJob(JobRequest, frozen=True): ...


class DeleteJob(JobRequest, frozen=True): ...


class ScaleJob(JobRequest, frozen=True, kw_only=True):
    role: str
    replicas: int


class AmendJob(JobRequest, frozen=True, kw_only=True):
    """What may change in the life of a job without touching its ranks; what is unset stays.

    A finished job may still be given another time to live.
    """

    ttl_s: float | UnsetType | None = UNSET
    active_deadline_s: float | UnsetType | None = UNSET
    restart_limit: int | UnsetType | None = UNSET
    clean: CleanPods | UnsetType = UNSET


class DefineQueue(Command, frozen=True):
    queue: Queue


class RemoveQueue(Command, frozen=True):
    """Nothing may be left in it: no job, and no queue below it."""

    name: str


class SetPolicy(Command, frozen=True):
    """How the whole cluster is scheduled from here on."""

    policy: Policy


class DrainNode(Command, frozen=True):
    """The node takes no more work, and the gangs that have ranks there start again elsewhere."""

    node: str


class ForgetNode(Command, frozen=True):
    """A person says that a node which does not answer is gone for good, with all that ran on it."""

    node: str


class CordonNode(Command, frozen=True):
    node: str


class UncordonNode(Command, frozen=True):
    node: str


class ReportNode(Command, frozen=True):
    """The cluster has this node, ready for work, with these devices."""

    node: NodeInfo


class ReportNodeLost(Command, frozen=True):
    """The node no longer answers. What ran on it may still run until ranks are reported gone."""

    node: str
    message: str = ""
    # Whether it went on purpose, back to the pool that it was rented from.
    given_back: bool = False


class ReportNodeRemoved(Command, frozen=True):
    """The node left the cluster for good, and everything on it."""

    node: str


class ReportCluster(Command, frozen=True):
    """Every node that the cluster has: those that answer, and those that do not.

    It answers a survey. A node that is known and not listed has left the cluster.
    """

    up: tuple[NodeInfo, ...]
    down: tuple[NodeInfo, ...] = ()


class ReportSurveyed(Command, frozen=True):
    """By now every node of the cluster has been reported."""


class ReportModel(Command, frozen=True):
    """The cluster is a simulated one, made of this document (JSON)."""

    document: str


class ReportPoolRequest(Command, frozen=True):
    """A pool was asked for nodes, which will take work at these times."""

    pool: str
    nodes: tuple[str, ...]
    ready_at: tuple[float, ...]


class ReportPoolReturn(Command, frozen=True):
    """A pool got nodes back."""

    pool: str
    nodes: tuple[str, ...]


class ReportTime(Command, frozen=True):
    """The clock has gone on, and nothing else was reported."""


class ReportRanks(Command, frozen=True):
    """What the cluster saw of an attempt's ranks.

    `gone` means that nothing of the rank is left: no process, no device held. `leaving` are ranks
    that somebody told to end (a drain, a deletion by hand) and that may still hold their devices.
    `stuck` are ranks that do not come up, with the cluster's reason: `REASON: what it said`.
    `restarted` counts how often the cluster itself has started a running rank's process again, in
    place. `commits` are the commits of the code that ranks were given. `incarnation` tells the
    runs of one rank within an attempt apart, for jobs that restart single ranks.
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
    stuck: tuple[tuple[int, str], ...] = ()


class ReportError(Command, frozen=True):
    """Something raised while it worked for this job: a kind, an adapter, the simulator.

    `where` is the operation, `error` the error's type, `text` what it said, bounded
    (`faults.bounded_text`). `attempt` is the one that it concerns, 0 if none in particular.
    """

    job: str
    where: str
    error: str
    text: str = ""
    attempt: int = 0


class QuarantineJob(Command, frozen=True):
    """Nothing more is to be decided for this job: it stops engines. The fields are a ReportError's."""

    job: str
    where: str
    error: str
    text: str = ""


Request = (
    SubmitJob
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
