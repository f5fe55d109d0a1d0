"""What the machine tells: of ranks, and of nodes."""

from typing import NamedTuple

from simulator.faults import FaultKind
from simulator.gangs import Key


class Started(NamedTuple):
    key: Key
    ranks: tuple[int, ...]


class End(NamedTuple):
    """Ranks that exited with a code, that a fault of their node took, or that had no place."""

    ranks: tuple[int, ...]
    code: int | None
    fault: FaultKind | None = None
    node: str = ""
    # Which part of the node failed, or why the rank exited by itself.
    reason: str = ""
    # It would exit the same way if it were tried again.
    permanent: bool = False


class Ended(NamedTuple):
    key: Key
    ends: tuple[End, ...]


class Stopped(NamedTuple):
    """Nothing is left of the ranks that were told to stop."""

    key: Key
    ranks: tuple[int, ...]


class NodeDown(NamedTuple):
    """Comes after the ends of what ran there, at the same instant."""

    node: str
    kind: FaultKind
    reason: str = ""


class NodeUp(NamedTuple):
    node: str


class Misplaced(NamedTuple):
    """Ranks were to start on a node that is down or unknown, or on devices that it lacks."""

    node: str


class NodeWarned(NamedTuple):
    """The node will be taken in so many seconds, and everybody has been told."""

    node: str
    kind: FaultKind
    left_s: float
    # The gangs with ranks there, and which of their ranks.
    ranks: tuple[tuple[Key, tuple[int, ...]], ...]


class NodesRequested(NamedTuple):
    """A pool asked its provider for nodes, which will be there at these times."""

    pool: str
    nodes: tuple[str, ...]
    ready_at_s: tuple[float, ...]


class NodesReturned(NamedTuple):
    """A pool gives nodes back to its provider."""

    pool: str
    nodes: tuple[str, ...]


Scaling = NodesRequested | NodesReturned


class Broke(NamedTuple):
    """Something raised while the machine worked for a gang; nothing is left of the gang."""

    key: Key
    # The ranks that it still had.
    ranks: tuple[int, ...]
    error: Exception


Happening = Broke | Started | Ended | Stopped | NodeDown | NodeUp | NodeWarned | Misplaced
