"""A forecast in one line."""

from cli.output.times import span
from studies.forecast.views import Forecast


def forecast_line(forecast: Forecast | None) -> str:
    """Return when the job will start and end; empty without a forecast."""
    if forecast is None:
        return ""
    now, far = forecast.made_at, span(forecast.horizon_s)
    parts = []
    if forecast.start_p50 is None or forecast.start_p50 > now:
        parts.append(f"starts in {_range(forecast.start_p50, forecast.start_p90, now, far)}")
    parts.append(f"ends in {_range(forecast.finish_p50, forecast.finish_p90, now, far)}")
    return f"expected: {', '.join(parts)}; run time from {forecast.basis}"


def _range(p50: float | None, p90: float | None, now: float, far: str) -> str:
    if p50 is None:
        return f"more than {far}"
    if p90 is None:
        return f"{span(p50 - now)} (median; in 10 % of the runs more than {far})"
    return f"{span(p50 - now)} (median; 90 % within {span(p90 - now)})"
