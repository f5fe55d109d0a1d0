"""The result types of an analysis."""

from msgspec import Struct


class Group(Struct, frozen=True):
    """Failed attempts with a common property, and the GPU-hours that they held."""

    name: str
    attempts: int
    gpu_hours_lost: float
    jobs: int


class NodeRecord(Struct, frozen=True, kw_only=True):
    """The record of a node. `failures_per_gpu_hour` counts failed attempts attributed to it."""

    node: str
    losses: int
    down_hours: float
    failed_attempts: int
    gpu_hours: float
    failures_per_gpu_hour: float | None
    mtbf_hours: float | None


class Flapping(Struct, frozen=True, kw_only=True):
    """A job that restarted repeatedly, the node with the most of its restarts, and the main cause."""

    job: str
    restarts: int
    within_s: float
    node: str
    on_node: int
    cause: str


class Spread(Struct, frozen=True, kw_only=True):
    """Statistics of a sample, and the parameters of the lognormal distribution fitted to it."""

    count: int
    mean: float
    median: float
    p90: float
    max: float
    lognormal_mu: float
    lognormal_sigma: float


class Fit(Struct, frozen=True, kw_only=True):
    """How work arrives and how long it takes, as inputs of a study."""

    jobs_per_hour: float
    # The coefficient of variation: 1 for independent arrivals (Poisson), more for bursts.
    arrival_variation: float | None
    jobs_by_hour_of_day: list[int]
    run_s: Spread | None
    wait_s: Spread | None
    # By size of a job in GPUs, with fractions: the share of all jobs.
    gpus: dict[float, float]
    failed_share_of_attempts: float
    node_mtbf_hours: float | None
    node_repair_hours: float | None


class EmptySpan(ValueError):
    """No event of the log lies in the requested span."""


class Analysis(Struct, frozen=True, kw_only=True):
    """The result of an analysis of the span from `since` to `until` (UTC seconds)."""

    since: float
    until: float
    jobs: int
    succeeded: int
    failed: int
    attempts_lost: int
    gpu_hours: float
    gpu_hours_lost: float
    by_cause: list[Group]
    by_node: list[Group]
    by_user: list[Group]
    by_image: list[Group]
    by_exit_code: list[Group]
    nodes: list[NodeRecord]
    flapping: list[Flapping]
    fit: Fit
