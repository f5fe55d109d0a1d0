"""Numbers as text for readers."""

import math

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


def some(number: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float | None) -> str:
    """Format seconds as `45 s`, `12 min`, `3.4 h` or `5.2 d`; `-` for None and NaN."""
    if seconds is None or seconds != seconds:
        return "-"
    size = abs(seconds)
    for unit_s, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if size >= unit_s * (2 if unit == "d" else 1):
            return f"{short(seconds / unit_s)} {unit}"
    return f"{short(seconds)} s"


def short(value: float | None) -> str:
    """Format a number with three significant digits and thousands separators; `-` for None and NaN."""
    if value is None or value != value:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw)
    first = math.ceil(low / step) * step
    ticks: list[float] = []
    while first + len(ticks) * step <= high + step * 1e-9:
        ticks.append(round(first + len(ticks) * step, 10))
    return ticks


def time_ticks(span_s: float, count: int = 6) -> list[float]:
    """Return at most `count` + 1 round times from 0 to `span_s` seconds."""
    steps = (60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY, 2 * DAY, 5 * DAY)
    more = (7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY)
    step = next((s for s in (*steps, *more) if span_s / s <= count), span_s)
    return [i * step for i in range(int(span_s // step) + 1)]


def duration_ticks(top_s: float, count: int = 5) -> list[float]:
    """Return round durations from 0 to at least `top_s` seconds, in a fitting unit."""
    unit = next((u for u in (DAY, HOUR, MINUTE) if top_s >= 2 * u), 1.0)
    step = (nice_ticks(0.0, top_s / unit, count)[1:] or [1.0])[0] * unit
    return [i * step for i in range(int(top_s / step) + 2)]
