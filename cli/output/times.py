"""Times and durations as people write and read them. All times are UTC seconds."""

import re
from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60, 3600, 86_400
UNITS = {"": 1, "s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}

_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
# The last second of the year 9999: later times have no date.
_AT_MAX = 253_402_300_799.0


def span(seconds: float | None) -> str:
    """Return a duration in at most two units: 42s, 3m12s, 5h07m, 3d4h."""
    if seconds is None:
        return "-"
    whole = int(max(0.0, seconds))
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    days, rest = divmod(whole, DAY)
    return f"{days}d{rest // HOUR}h" if days < 10 else f"{days}d"


def stamp(at: float | None) -> str:
    """Return the date and time, to the millisecond."""
    if at is None:
        return "-"
    if not 0 <= at <= _AT_MAX:
        return f"{at:.3f}"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def clock_time(at: float | None) -> str:
    """Return the time of day, for consecutive lines of output."""
    return "-" if at is None else stamp(at)[11:19] or f"{at:.0f}"


def parse_span(text: str) -> float:
    """Parse 90, 90s, 10m, 1h30m, 7d or 2w to seconds; raise ValueError with the accepted forms."""
    parts = _PART.findall(text.strip())
    if not parts or "".join(n + unit for n, unit in parts) != text.strip():
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 10m, 1h30m or 7d")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def parse_time(text: str, *, end: float) -> float:
    """Parse a number, an ISO date and time, or a span before `end` such as -10m, to UTC seconds."""
    text = text.strip()
    if text.startswith("-"):
        return end - parse_span(text[1:])
    try:
        return float(text)
    except ValueError:
        return _parse_iso(text)


def _parse_iso(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write 2026-11-16T03:12:00Z, UTC seconds, "
            "or -10m for ten minutes before the end"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
