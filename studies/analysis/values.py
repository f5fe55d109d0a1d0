"""What an analysis finds, as values."""

from msgspec import Struct


class Group(Struct, frozen=True):
    """Failed attempts that have something in common, and the GPU-hours they had held."""

    name: str
    attempts: int
    gpu_hours_lost: float
    jobs: int


class NodeRecord(Struct, frozen=True, kw_only=True):
    """How a node did. `failures_per_gpu_hour` counts failed attempts laid at its door."""

    node: str
    losses: int
    down_hours: float
    failed_attempts: int
    gpu_hours: float
    failures_per_gpu_hour: float | None
    mtbf_hours: float | None


class Flapping(Struct, frozen=True, kw_only=True):
    """A job that restarted again and again, where most of it happened, and why."""

    job: str
    restarts: int
    within_s: float
    node: str
    on_node: int
    cause: str


class Spread(Struct, frozen=True, kw_only=True):
    """A sample in a few numbers, and the lognormal with the same logarithms."""

    count: int
    mean: float
    median: float
    p90: float
    max: float
    lognormal_mu: float
    lognormal_sigma: float


class Fit(Struct, frozen=True, kw_only=True):
    """How work arrives and how long it takes, to feed a study with."""

    jobs_per_hour: float
    # 1 means that arrivals know nothing of each other; more means bursts.
    arrival_variation: float | None
    jobs_by_hour_of_day: list[int]
    run_s: Spread | None
    wait_s: Spread | None
    # Size of a job in GPUs, with fractions -> the part of all jobs.
    gpus: dict[float, float]
    failed_share_of_attempts: float
    node_mtbf_hours: float | None
    node_repair_hours: float | None


class EmptySpan(ValueError):
    """Nothing of the log lies in the span that was asked for."""


class Analysis(Struct, frozen=True, kw_only=True):
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
