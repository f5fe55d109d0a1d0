"""The stored form of an event: one row of the log."""

from typing import NamedTuple


class Row(NamedTuple):
    """One event as the log stores it; `events.Recorded` explains the fields of the envelope."""

    position: int
    step: int
    ordinal: int
    at: float
    stream: str
    type: str
    version: int
    payload: bytes
    command: str
    cause: str
    actor: str
    hash: bytes


# The hash before the first row.
GENESIS = bytes(32)
