"""The answers of the HTTP API, field by field.

Times are UTC seconds, and a field that does not apply is null.
"""

from typing import Any

from msgspec import Struct

from controlplane.messages import Reason
from controlplane.model.faults import NodeFaultKind
from controlplane.model.obstacle import Obstacle
from controlplane.model.phases import AttemptState, Phase, RankState
from controlplane.model.policy import FlavorQuota, Policy, Preempt, ResourceQuota
from controlplane.model.spec import JobSpec


class ArrayView(Struct, frozen=True, kw_only=True):
    """The number of indices of an array in each state; they add up to `total`."""

    # As it was submitted (0-99), and the maximum number of unfinished members at a time.
    indices: str
    limit: int | None
    total: int
    # Not submitted yet.
    pending: int
    queued: int
    running: int
    suspended: int
    succeeded: int
    failed: int
    cancelled: int


class JobView(Struct, frozen=True, kw_only=True):
    """A job in one row, or an array, which then has `array` and its phase as a whole."""

    namespace: str
    name: str
    id: str
    kind: str
    queue: str
    priority: int
    phase: Phase
    # Why it is unschedulable, failed or last restarted: the code, and the sentence.
    reason: str
    message: str
    # The GPUs that its ranks request in total, with fractions where they share devices. A request
    # by memory counts with the allocated share, and with 0 before its placement.
    gpus: float
    ranks: int
    ranks_running: int
    attempt: int
    restarts: int
    failures: int
    failures_max: int | None
    submitted_at: float
    queued_at: float
    placed_at: float | None
    running_at: float | None
    finished_at: float | None
    retry_at: float | None
    # The GPUs that the job has now; a finished job has some until its ranks are gone.
    gpus_held: float
    deleting: bool
    # The memory of GPUs that ranks which share by memory ask for together.
    gpu_memory_mib: int = 0
    # Since when it is unschedulable.
    set_aside_at: float | None = None
    # Jobs and arrays that must end before it is queued.
    waits_for: tuple[str, ...] = ()
    # The array that it belongs to, NAMESPACE/NAME, and its index there.
    owner: str = ""
    index: int | None = None
    array: ArrayView | None = None
    # In a list, for a job in its queue: its place from 1, and the last recorded reason to wait, as a
    # code and in words; `GET /v1/line` and `why` have it with numbers.
    place_in_queue: int | None = None
    wait_reason: str = ""
    wait_message: str = ""
    # The label `user`.
    user: str = ""


class RankView(Struct, frozen=True, kw_only=True):
    rank: int
    name: str
    role: str
    state: RankState
    node: str
    devices: tuple[int, ...]
    incarnation: int
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    cause: str | None
    message: str
    # Why it was lost, or else the cluster's reason why it ended or does not start.
    reason: str = ""
    # Thousandths of its one device, if it shares the device; 0 for whole devices.
    share: int = 0


class AttemptView(Struct, frozen=True, kw_only=True):
    number: int
    state: AttemptState
    placed_at: float
    running_at: float | None
    ended_at: float | None
    ranks: list[RankView]


class FailureView(Struct, frozen=True, kw_only=True):
    """The rank whose end made the job fail, and the last lines that it wrote."""

    rank: int
    name: str
    node: str
    exit_code: int | None
    cause: str | None
    message: str
    lines: tuple[str, ...]


class RestartView(Struct, frozen=True, kw_only=True):
    """One restart of a job. `lost_s` is the work in seconds that a preemption lost."""

    at: float
    attempt: int
    cause: str
    spends_budget: bool
    message: str
    rank: int | None = None
    exit_code: int | None = None
    node: str = ""
    lost_s: float = 0.0


class JobDetail(Struct, frozen=True, kw_only=True):
    """A job with its spec, its latest attempt and its restarts."""

    job: JobView
    failure: FailureView | None
    spec: JobSpec
    attempt: AttemptView | None
    restarts: tuple[RestartView, ...]
    # The commits of its code that ranks received, oldest first.
    commits: tuple[str, ...] = ()
    # Why it could not start even if nothing ran, while it is unschedulable.
    obstacle: Obstacle | None = None
    # For an array: its indices by state, as {"failed": "7,9", "succeeded": "0-6"}.
    indices: dict[str, str] = {}


class SharedGpu(Struct, frozen=True, kw_only=True):
    """A device that ranks share, and the thousandths of it that are allocated."""

    device: int
    taken: int


class NodeView(Struct, frozen=True, kw_only=True):
    name: str
    rack: str
    gpu_type: str
    gpu_memory_mib: int
    gpus: int
    # Devices of which nothing is allocated.
    gpus_free: int
    ready: bool
    cordoned: bool
    message: str
    jobs: list[str]
    # What ranks may request in addition to GPUs, and the free amounts, in Kubernetes notation.
    resources: dict[str, str] = {}
    resources_free: dict[str, str] = {}
    # Devices that are allocated or unusable, with fractions where some are shared.
    gpus_used: float = 0
    shared: list[SharedGpu] = []
    # Why it does not respond, or was cordoned: the code of `message`.
    reason: str = ""


class QueueView(Struct, frozen=True, kw_only=True):
    name: str
    # The ceiling: the most GPUs that its jobs may hold, with borrowed ones; None: no ceiling.
    gpus_max: int | None
    gpus_used: float
    # Jobs in the queue; unschedulable jobs are counted separately.
    jobs_waiting: int
    jobs_unschedulable: int = 0
    parent: str = ""
    # Its quota; None: it has none.
    nominal: int | None = None
    borrow_max: int | None = None
    lend_max: int | None = None
    weight: float = 1.0
    rank: int = 0
    flavors: tuple[FlavorQuota, ...] = ()
    resources: tuple[ResourceQuota, ...] = ()
    # Its discipline and preemption rules: its own, or else the policy's.
    discipline: str = Policy().discipline
    preempt: Preempt = Preempt()
    # What it uses beyond its own quota, and how much of its idle quota other queues use.
    gpus_borrowed: float = 0.0
    gpus_lent: float = 0.0


class EstimateView(Struct, frozen=True, kw_only=True):
    """How long a job is planned to run, in seconds, and the source of the estimate.

    `source` is `estimate` or `limit` (the job's own), `learned` or `default` (the policy's). A
    learned estimate is from `jobs` that succeeded and have in common what `alike` names: half of
    them ran at most `median_s`, nine tenths at most `p90_s`.
    """

    planned_s: float
    source: str
    jobs: int = 0
    alike: str = ""
    median_s: float | None = None
    p90_s: float | None = None


class Why(Struct, frozen=True, kw_only=True):
    """Why a job is in its phase."""

    namespace: str
    name: str
    phase: Phase
    summary: str
    reasons: list[Reason]
    place_in_queue: int | None = None
    ahead: list[str] = []
    # The start that its queue's plan has reserved for it, where the queue plans ahead: it holds as
    # long as jobs keep to their estimates. A forecast estimates when it is likely to start.
    planned_at: float | None = None
    # How long it is planned to run, where its queue's discipline depends on that.
    estimate: EstimateView | None = None


class LogLines(Struct, frozen=True, kw_only=True):
    """The last lines that a rank wrote, in the latest attempt unless another was requested."""

    namespace: str
    name: str
    attempt: int
    rank: int
    lines: list[str]


class PlannedRank(Struct, frozen=True, kw_only=True):
    """Where a rank would run."""

    rank: int
    name: str
    node: str
    devices: tuple[int, ...]
    # Thousandths of its one device, if it would share the device; 0 for whole devices.
    share: int = 0


class Plan(Struct, frozen=True, kw_only=True):
    """What would happen if the job were submitted now. Nothing was stored.

    `spec` is the job as it was parsed, with all defaults. A job that would start has `ranks`; one
    that would wait has `reasons`, its place in the queue and the jobs ahead of it.
    """

    namespace: str
    name: str
    kind: str
    spec: dict[str, Any]
    gpus: float
    starts_now: bool
    summary: str
    reasons: list[Reason]
    ranks: list[PlannedRank]
    place_in_queue: int | None
    ahead: list[str]
    # The memory of GPUs that ranks which share by memory ask for together.
    gpu_memory_mib: int = 0


class WaitingJob(Struct, frozen=True, kw_only=True):
    """A job in its line, and the first reason for which it waits."""

    # NAMESPACE/NAME.
    job: str
    queue: str
    # Its place in the line of its queue, from 1.
    place: int
    priority: int
    gpus: float
    queued_at: float
    reason: str
    message: str
    # What would let it start; empty if nothing is known.
    helps: str = ""
    # As in `Why`.
    planned_at: float | None = None


class WaitingLine(Struct, frozen=True, kw_only=True):
    """The first jobs of one queue or of all, and how many wait in total."""

    total: int
    items: list[WaitingJob]


class FaultAccepted(Struct, frozen=True, kw_only=True):
    """A fault that was recorded at `position`, and when it begins in UTC seconds."""

    node: str
    kind: NodeFaultKind
    begins_at: float
    position: int
    message: str
