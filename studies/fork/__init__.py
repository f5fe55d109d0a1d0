"""The past, carried on by the simulator: as it was, and with a change, side by side."""

from studies.fork.changes import Change, ForkError, parse_change
from studies.fork.fork import Forked, fork

__all__ = ["Change", "ForkError", "Forked", "fork", "parse_change"]
