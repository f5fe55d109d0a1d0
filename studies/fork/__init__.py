"""Forks: the recorded past continued in the simulator, unchanged and with a change, and compared."""

from studies.fork.changes import Change, ForkError, parse_change
from studies.fork.fork import Forked, fork

__all__ = ["Change", "ForkError", "Forked", "fork", "parse_change"]
