"""Timestamps of traces, as seconds since 1970 in UTC."""

import re
from datetime import UTC, datetime

_SLASHES = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2}) (\d{1,2}):(\d{2})(?::(\d{2}))?")


def seconds(text: str) -> float | None:
    """Parse a timestamp; None for an empty one (empty, None, nan), ValueError for any other text.

    A time without a zone counts as UTC: only differences matter to a study.
    """
    text = text.strip()
    if text.lower() in ("", "none", "nan", "nat", "null"):
        return None
    slashes = _SLASHES.fullmatch(text)
    if slashes is not None:
        numbers = [int(part or 0) for part in slashes.groups()]
        year, month, day, hour, minute, second = numbers
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
