"""Queues with their quotas, and the policy that schedules between them.

These values are stored inside events: a field may be added with a default, but must never be
renamed, removed or given another meaning. `docs/scheduling.md` explains disciplines and quota models.
"""

from enum import StrEnum

from controlplane.model.values import Value


class WithinQueue(StrEnum):
    """Which jobs of its own queue a waiting job may preempt, by priority."""

    NEVER = "never"
    LOWER = "lower"
    LOWER_OR_NEWER_EQUAL = "lower_or_newer_equal"


class Reclaim(StrEnum):
    """Which jobs of other queues a waiting job may preempt to reclaim lent quota, by priority."""

    NEVER = "never"
    LOWER = "lower"
    ANY = "any"


class Preempt(Value, frozen=True, kw_only=True):
    """Which running jobs the waiting jobs of a queue may preempt.

    `borrow_below` allows preemption while the queue itself borrows, but only of victims with at most
    this priority; None forbids it.
    """

    within_queue: WithinQueue = WithinQueue.NEVER
    reclaim: Reclaim = Reclaim.NEVER
    borrow_below: int | None = None


class FlavorQuota(Value, frozen=True):
    """A quota of GPUs of one flavor; None: no limit on borrowing or lending."""

    name: str
    nominal: int = 0
    borrow_max: int | None = None
    lend_max: int | None = None


class ResourceQuota(Value, frozen=True):
    """A quota of a resource other than GPUs, such as cpu (cores) or memory (bytes).

    It counts the requests of pods.
    """

    name: str
    nominal: float = 0.0
    borrow_max: float | None = None
    lend_max: float | None = None


class Queue(Value, frozen=True):
    """Where jobs wait, and how much they may use together. Quotas count GPUs, except `resources`.

    A queue with children corresponds to a cohort of Kueue or a department of Run:ai. Without
    `nominal` there is no quota: the queue may use all free GPUs, up to `gpus_max`.
    """

    name: str
    gpus_max: int | None = None
    parent: str = ""
    nominal: int | None = None
    borrow_max: int | None = None
    lend_max: int | None = None
    weight: float = 1.0
    rank: int = 0
    flavors: tuple[FlavorQuota, ...] = ()
    # None: the policy's.
    discipline: str | None = None
    preempt: Preempt | None = None
    resources: tuple[ResourceQuota, ...] = ()


class Policy(Value, frozen=True, kw_only=True):
    """How the whole cluster is scheduled; a queue may override `discipline` and `preempt`."""

    # The name of a registered discipline (`controlplane/disciplines`).
    discipline: str = "fifo"
    # The name of a registered quota model (`controlplane/scheduling/quota_models`).
    model: str = "quota_classic"
    # The preemption strategies of `quota_fair` (final, initial), tried in this order.
    strategies: tuple[str, ...] = ("final", "initial")
    preempt: Preempt = Preempt()
    # The names of the topology levels, outermost first.
    levels: tuple[str, ...] = ("rack",)
    packing: str = "pack"
    # Whether preemptible gangs may be moved to make room for a waiting one.
    consolidate: bool = False
    # Points of priority that a job gains for each hour that it waits.
    ageing_per_hour: float = 0.0
    # Past usage counts towards fair shares with this half-life; None: only present usage counts.
    usage_halflife_s: float | None = None
    # The planned run time of a job without an estimate or a deadline; see `learned_estimates`.
    estimate_s_default: float = 86_400.0
    # How many waiting jobs get a planned start under conservative backfill.
    planned_max: int = 100
    # A gang cannot be preempted until it has run for this many seconds.
    protected_s: float = 0.0
    # A job that was preempted is then protected for twice the longest run it lost, up to this limit.
    second_chance_s_max: float = 600.0
    # A node that was lost this often within a day is cordoned until a person uncordons it.
    quarantine_after: int | None = None
    # Whether a change of the reason for which a job waits is recorded.
    records_reasons: bool = True
    # Whether the run time of a job without an estimate is predicted from similar jobs that succeeded
    # (`state/run_lengths.py`).
    learned_estimates: bool = True
    # How many gangs may start in one scheduling cycle (None: no limit), and how many seconds a cycle
    # lasts from its first start. See `scheduling/ordering/start_limit.py`.
    starts_per_cycle_max: int | None = None
    cycle_s: float = 1.0
    # A cluster autoscaler may add nodes: a gang that is larger than the present cluster becomes
    # unschedulable with the remedy `nodes`, instead of being refused as can_never_fit.
    autoscaled: bool = False
