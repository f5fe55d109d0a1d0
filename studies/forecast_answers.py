"""What people get to see of forecasts. Apart, so that a client need not load a simulator."""

import msgspec

from controlplane.views import Plan, Why

HORIZON_S = 90 * 86_400.0


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Times are UTC seconds: half of the runs were earlier than p50, nine tenths than p90.

    A time is null if it lies beyond the horizon. `basis` says what the lengths of jobs were drawn
    from. Nobody else comes in these futures, no node fails or comes back.
    """

    start_p50: float | None
    start_p90: float | None
    finish_p50: float | None
    finish_p90: float | None
    made_at: float
    runs: int
    basis: str
    horizon_s: float = HORIZON_S


class PlanAnswer(Plan, frozen=True, kw_only=True):
    """A plan, and when the job would start and end."""

    forecast: Forecast | None = None


class WhyAnswer(Why, frozen=True, kw_only=True):
    """Why a job is where it is, and when it will start and end, if it has not."""

    forecast: Forecast | None = None


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """How forecasts compare with what then happened."""

    count: int
    # The mean of how far p50 was off, either way; and of how late things were (negative: early).
    mean_error_s: float | None
    mean_lateness_s: float | None
    # The shares that had happened by p50 and by p90: a half and nine tenths, were they perfect.
    by_p50: float | None
    by_p90: float | None


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong the forecasts of this log's servers were, as far as they are kept beside it."""

    made: int
    starts: Errors
    finishes: Errors
