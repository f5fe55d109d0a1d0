"""The answers of forecasts, in a module of their own so that a client need not load the simulator."""

import msgspec

from controlplane.queries.views import Plan, Why

HORIZON_S = 90 * 86_400.0


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Times are UTC seconds: half of the runs were earlier than p50, nine tenths than p90.

    A time is null if it lies beyond the horizon. `basis` names what the lengths of jobs were drawn
    from. The runs assume that no job arrives and that no node fails or comes back.
    """

    start_p50: float | None
    start_p90: float | None
    finish_p50: float | None
    finish_p90: float | None
    made_at: float
    runs: int
    basis: str
    horizon_s: float = HORIZON_S


class PreviewedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the change affects. `nodes` is where it would run; empty if it would not."""

    # NAMESPACE/NAME.
    job: str
    message: str
    gpus: float
    nodes: list[str] = []


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would do right away; nothing was changed.

    `starts` are jobs that would start, `stops` those that would lose their devices and wait,
    `moves` those that would start again elsewhere or with another size, and `ends` those that would
    be finished. Each list has at most 100 jobs. `summary` says it in sentences.
    """

    position: int
    summary: list[str]
    starts: list[PreviewedJob] = []
    stops: list[PreviewedJob] = []
    moves: list[PreviewedJob] = []
    ends: list[PreviewedJob] = []


class PlanAnswer(Plan, frozen=True, kw_only=True):
    """A plan, when the job would start and end, and which other jobs it would affect."""

    forecast: Forecast | None = None
    preview: Preview | None = None


class WhyAnswer(Why, frozen=True, kw_only=True):
    """Why a job waits or runs, and when it will start and end, if it has not."""

    forecast: Forecast | None = None


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of forecasts against what happened."""

    count: int
    # The mean absolute error of p50, and the mean lateness against it (negative: early).
    mean_error_s: float | None
    mean_lateness_s: float | None
    # The shares that had happened by p50 and by p90; perfect forecasts have 0.5 and 0.9.
    by_p50: float | None
    by_p90: float | None


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """The accuracy of the forecasts that were made for this log and kept with it."""

    made: int
    starts: Errors
    finishes: Errors
