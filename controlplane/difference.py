"""Where today's code parts from a log, as a value that is shown to people."""

from typing import Any

from controlplane.model import Value


class Said(Value, frozen=True):
    """An event with the name of its type."""

    type: str
    # An event; written out with the fields that its type has.
    event: Any


class Difference(Value, frozen=True):
    """The first place at which today's code parts from the log, and both versions of it."""

    position: int
    at: float
    why: str
    # What the log says from here on at this instant, and what today's code says; a few events each.
    recorded: tuple[Said, ...]
    decided: tuple[Said, ...]
