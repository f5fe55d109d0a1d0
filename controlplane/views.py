"""What people are shown, field by field as the HTTP API returns it.

Times are UTC seconds, and a field that does not apply is null.
"""

from typing import Any

from msgspec import Struct

from controlplane.attempt import AttemptState, RankState
from controlplane.job import Phase
from controlplane.model import JobSpec, Obstacle, Restart
from controlplane.scheduling.reasons import Reason
from controlplane.sharing import Discipline, FlavorQuota, Preempt, ResourceQuota


class JobView(Struct, frozen=True, kw_only=True):
    """A job in one line."""

    namespace: str
    name: str
    id: str
    kind: str
    queue: str
    priority: int
    phase: Phase
    reason: str
    message: str
    # GPUs that its ranks ask for together, with fractions where they share some. What is asked for by
    # memory counts as what it was given, and 0 before that.
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
    # GPUs that the job holds now; a finished job holds some until its ranks are gone.
    gpus_held: float
    deleting: bool
    # The memory of GPUs that ranks which share by memory ask for together.
    gpu_memory_mib: int = 0
    # Since when it is set aside as unschedulable.
    set_aside_at: float | None = None


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
    # Thousandths of its one device, if it shares that; 0 for whole devices.
    share: int = 0


class AttemptView(Struct, frozen=True, kw_only=True):
    number: int
    state: AttemptState
    placed_at: float
    running_at: float | None
    ended_at: float | None
    ranks: list[RankView]


class Failure(Struct, frozen=True, kw_only=True):
    """The rank whose end made the job fail, and the last lines that it wrote."""

    rank: int
    name: str
    node: str
    exit_code: int | None
    cause: str | None
    message: str
    lines: tuple[str, ...]


class JobDetail(Struct, frozen=True, kw_only=True):
    """A job with its spec, its latest attempt and its restart ledger."""

    job: JobView
    failure: Failure | None
    spec: JobSpec
    attempt: AttemptView | None
    restarts: tuple[Restart, ...]
    # The commits of its code that ranks were given, the first one first.
    commits: tuple[str, ...] = ()
    # Why it could not start even if nothing ran, while it is set aside.
    obstacle: Obstacle | None = None


class SharedGpu(Struct, frozen=True, kw_only=True):
    """A device that ranks share, and the thousandths of it that are taken."""

    device: int
    taken: int


class NodeView(Struct, frozen=True, kw_only=True):
    name: str
    rack: str
    gpu_type: str
    gpu_memory_mib: int
    gpus: int
    # Devices of which nothing is taken.
    gpus_free: int
    ready: bool
    cordoned: bool
    message: str
    jobs: list[str]
    # What ranks may request beside GPUs, and what of that nobody has: as Kubernetes writes amounts.
    resources: dict[str, str] = {}
    resources_free: dict[str, str] = {}
    # Devices that are taken or unusable, with fractions where some are shared.
    gpus_used: float = 0
    shared: list[SharedGpu] = []


class QueueView(Struct, frozen=True, kw_only=True):
    name: str
    gpus_max: int | None
    gpus_used: float
    # In its line; those that are set aside are counted by themselves.
    jobs_waiting: int
    jobs_unschedulable: int = 0
    parent: str = ""
    nominal: int | None = None
    borrow_max: int | None = None
    lend_max: int | None = None
    weight: float = 1.0
    rank: int = 0
    flavors: tuple[FlavorQuota, ...] = ()
    resources: tuple[ResourceQuota, ...] = ()
    # How its line moves, and whom its jobs may evict: its own rules, or else the policy's.
    discipline: Discipline = Discipline.STRICT_FIFO
    preempt: Preempt = Preempt()
    # What it uses beyond its own quota.
    gpus_borrowed: float = 0.0


class EstimateView(Struct, frozen=True, kw_only=True):
    """How long a job is planned to run, in seconds, and where that comes from.

    `source` is `estimate` or `limit` (the job's own), `learned` or `default` (the policy's). Learned is
    from `jobs` that succeeded and have in common what `alike` says: half of them ran at most `median_s`,
    nine tenths at most `p90_s`.
    """

    planned_s: float
    source: str
    jobs: int = 0
    alike: str = ""
    median_s: float | None = None
    p90_s: float | None = None


class Why(Struct, frozen=True, kw_only=True):
    """Why a job is in the phase it is in."""

    namespace: str
    name: str
    phase: Phase
    summary: str
    reasons: list[Reason]
    place_in_queue: int | None = None
    ahead: list[str] = []
    # The start that its queue's plan has reserved for it, where that plans ahead: it holds as long as jobs
    # keep to their estimates. A forecast says when it is likely to start.
    planned_at: float | None = None
    # How long it is planned to run, where its queue looks at that.
    estimate: EstimateView | None = None


class LogLines(Struct, frozen=True, kw_only=True):
    """The last lines that a rank wrote, in the latest attempt unless another was asked for."""

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
    # Thousandths of its one device, if it would share that; 0 for whole devices.
    share: int = 0


class Plan(Struct, frozen=True, kw_only=True):
    """What would happen if the job were submitted now. Nothing was stored.

    `spec` is the job as it was understood, with every default spelt out. A job that would start
    has `ranks`; one that would wait has `reasons`, its place in the queue and who is ahead.
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
