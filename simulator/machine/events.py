"""The events of the machine, about ranks and about nodes."""

from typing import NamedTuple

from simulator.faults import FaultKind
from simulator.machine.gang import Key


class Started(NamedTuple):
    key: Key
    ranks: tuple[int, ...]


class End(NamedTuple):
    """Ranks that exited with a code, were lost with their node, or could not be placed."""

    ranks: tuple[int, ...]
    code: int | None
    fault: FaultKind | None = None
    node: str = ""
    # Which part of the node failed, or why the rank exited on its own.
    reason: str = ""
    # A retry would end the same way.
    permanent: bool = False
    out_of_memory: bool = False


class Ended(NamedTuple):
    key: Key
    ends: tuple[End, ...]


class Stopped(NamedTuple):
    """The ranks that were stopped are gone."""

    key: Key
    ranks: tuple[int, ...]


class NodeDown(NamedTuple):
    """A node went down. The ends of its ranks come before this event, at the same instant."""

    node: str
    kind: FaultKind
    reason: str = ""


class NodeUp(NamedTuple):
    node: str


class PlacementFailed(NamedTuple):
    """Ranks were placed on a node that is down or unknown, or on devices that it lacks."""

    node: str


class NodeWarned(NamedTuple):
    """Notice that the node will be taken in `left_s`."""

    node: str
    kind: FaultKind
    left_s: float
    # The gangs with ranks on the node, and those ranks.
    ranks: tuple[tuple[Key, tuple[int, ...]], ...]


class NodesRequested(NamedTuple):
    """A pool requested nodes from its provider, which will be available at these times."""

    pool: str
    nodes: tuple[str, ...]
    ready_at_s: tuple[float, ...]


class NodesReturned(NamedTuple):
    """A pool returned nodes to its provider."""

    pool: str
    nodes: tuple[str, ...]


Scaling = NodesRequested | NodesReturned


class Broke(NamedTuple):
    """The simulation of a gang raised an error, and the gang was discarded."""

    key: Key
    # The ranks that were still alive.
    ranks: tuple[int, ...]
    error: Exception


MachineEvent = Broke | Started | Ended | Stopped | NodeDown | NodeUp | NodeWarned | PlacementFailed
