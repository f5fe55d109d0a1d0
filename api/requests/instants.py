"""Instants in requests: UTC seconds, or ISO 8601 with a time zone."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

SECONDS_MAX = 1e11
POSITION_MAX = 2**63 - 1

Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX, description="UTC seconds, or ISO 8601.")]
Instant = Seconds | Annotated[datetime, Meta(tz=True)]


def seconds(instant: float | datetime | UnsetType) -> float | None:
    """Return `instant` in UTC seconds; None if it is not given."""
    if isinstance(instant, datetime):
        return instant.timestamp()
    return None if instant is UNSET else instant


class PastQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When: now, or at an instant or a position of the past."""

    at: Instant | UnsetType = UNSET
    position: (
        Annotated[
            int, Meta(ge=0, le=POSITION_MAX, description="As it was after this event of the log.")
        ]
        | UnsetType
    ) = UNSET

    @property
    def is_past(self) -> bool:
        return self.at is not UNSET or self.position is not UNSET
