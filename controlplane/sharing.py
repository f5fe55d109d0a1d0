"""How a cluster is shared: queues with their quotas, and the policy that decides between them.

As in `model`, these values travel inside events: fields are added with a default and never change.
"""

from enum import StrEnum

from controlplane.model import Value


class Discipline(StrEnum):
    """Who is next in a line, and what becomes of the others when the next one does not fit.

    Strict lines wait behind a blocked head; a fit line lets whoever fits go past it; back-fill lets
    past it whoever does not delay the planned start of the head (easy) or of anyone (conservative).
    """

    STRICT_FIFO = "strict_fifo"
    FIFO_FIT = "best_effort"
    STRICT_SHORTEST = "strict_shortest"
    SHORTEST_FIT = "shortest_fit"
    LEAST_ATTAINED_FIT = "least_attained_fit"
    LEAST_ATTAINED = "least_attained"
    EASY_BACKFILL = "easy_backfill"
    CONSERVATIVE_BACKFILL = "conservative_backfill"


class QuotaModel(StrEnum):
    """How queues share, and who may take from whom."""

    CLASSIC = "quota_classic"
    FAIR = "quota_fair"
    DESERVED = "deserved_plus_weight"
    PROGRESSIVE = "progressive_filling"
    FAIR_PREEMPT = "fair_preempt"
    HOME_AWAY = "home_away"


class WithinQueue(StrEnum):
    NEVER = "never"
    LOWER = "lower"
    LOWER_OR_NEWER_EQUAL = "lower_or_newer_equal"


class Reclaim(StrEnum):
    NEVER = "never"
    LOWER = "lower"
    ANY = "any"


class Preempt(Value, frozen=True, kw_only=True):
    """Whom a queue's waiting jobs may evict.

    `borrow_below` lets them evict while the queue itself borrows, but only victims with at most
    this priority; None forbids it.
    """

    within_queue: WithinQueue = WithinQueue.NEVER
    reclaim: Reclaim = Reclaim.NEVER
    borrow_below: int | None = None


class FlavorQuota(Value, frozen=True):
    name: str
    nominal: int = 0
    borrow_max: int | None = None
    lend_max: int | None = None


class ResourceQuota(Value, frozen=True):
    """A quota of something else than GPUs, such as cpu (cores) or memory (bytes).

    It counts what the pods of a role request.
    """

    name: str
    nominal: float = 0.0
    borrow_max: float | None = None
    lend_max: float | None = None


class Queue(Value, frozen=True):
    """Where jobs wait, and what they may hold together. Quotas count GPUs, unless said otherwise.

    A queue with children is what others call a cohort or a department. Without `nominal` there is
    no quota: the queue may use whatever is free, up to `gpus_max`.
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
    # None means what the policy says.
    discipline: Discipline | None = None
    preempt: Preempt | None = None
    resources: tuple[ResourceQuota, ...] = ()


class Policy(Value, frozen=True, kw_only=True):
    """How the whole cluster is scheduled; queues may say otherwise for themselves."""

    discipline: Discipline = Discipline.STRICT_FIFO
    model: QuotaModel = QuotaModel.CLASSIC
    # The rules of `quota_fair`, tried in this order: final, initial.
    strategies: tuple[str, ...] = ("final", "initial")
    preempt: Preempt = Preempt()
    # The names of the topology's levels, outermost first.
    levels: tuple[str, ...] = ("rack",)
    packing: str = "pack"
    # May preemptible gangs be moved to make room for one that waits?
    consolidate: bool = False
    # So many points of priority for each hour that a job waits.
    ageing_per_hour: float = 0.0
    # Usage counts towards fair shares for a while after it has ended; None counts only what is.
    usage_halflife_s: float | None = None
    # Jobs without an estimate or a deadline are planned to run so long; see `learned_estimates`.
    estimate_s_default: float = 86_400.0
    # How many waiting jobs get a planned start with conservative back-fill.
    planned_max: int = 100
    # A gang is safe from preemption until it has run so long.
    protected_s: float = 0.0
    # Whoever was evicted is then safe for twice as long as the longest run it lost, up to this.
    second_chance_s_max: float = 600.0
    # A node that was lost so often within a day takes no more work until somebody uncordons it.
    quarantine_after: int | None = None
    # Whether it is recorded when the reason changes for which a job waits.
    records_reasons: bool = True
    # Whether jobs like it that have succeeded tell how long a job without an estimate is planned to run
    # (`run_lengths`).
    learned_estimates: bool = True
    # How many gangs may start in one scheduling cycle, and how long a cycle lasts from its first start on;
    # None: no limit. See `scheduling/start_limit.py`.
    starts_per_cycle_max: int | None = None
    cycle_s: float = 1.0
    # A cluster autoscaler may add nodes: a gang larger than the present cluster waits, set aside with the
    # remedy `nodes`, instead of being refused as can_never_fit.
    autoscaled: bool = False
