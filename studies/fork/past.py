"""What a fork starts from, and what really came after: requests of people, and faults of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from adapters.simulated_cluster.recovery import read_events
from controlplane import commands as c
from controlplane import events as e
from controlplane.codec import GENESIS, Row, from_row
from controlplane.model import NodeInfo
from controlplane.ports import LogReader, Snapshot
from controlplane.recalling import candidates
from controlplane.replay import PAGE_ROWS, position_at, rebuild, take_snapshot
from controlplane.state import State
from controlplane.world import World
from simulator.topology import BadCluster, ClusterModel, cluster_from
from studies.fork.birth import birth_of

# Requests of people, and what else from outside is not the doing of a cluster.
_REQUESTS = (
    c.SubmitJob,
    c.CancelJob,
    c.SuspendJob,
    c.ResumeJob,
    c.DeleteJob,
    c.ScaleJob,
    c.AmendJob,
    c.DefineQueue,
    c.RemoveQueue,
    c.SetPolicy,
    c.CordonNode,
    c.UncordonNode,
    c.DrainNode,
    c.ForgetNode,
)
Timed = tuple[float, c.AnyCommand]


@runtime_checkable
class StreamReader(Protocol):
    """A log that can be asked for one stream."""

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]: ...


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A node that no longer answered, and when it was back; never, if `back_at` is None."""

    at: float
    node: str
    message: str = ""
    back_at: float | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The world at the fork, and the real future behind it as far as it is to be compared."""

    at: float
    until: float
    snapshot: Snapshot
    hash: bytes
    # The events after the fork, the requests among them, and the faults of nodes.
    real: Sequence[e.Recorded]
    asked: Sequence[Timed]
    faults: Sequence[NodeFault]
    # Nodes that came, or came back with other hardware, after the fork.
    joined: Sequence[tuple[float, NodeInfo]]
    # How a simulated cluster came there; None of a real one, or if that is not known.
    simulated: "Simulated | None" = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated cluster from when it began until the fork; `birth` is the time of its time 0."""

    model: ClusterModel
    birth: float
    began_at: float
    # The world then, and what happened since.
    begin: Snapshot
    events: Sequence[e.Recorded]


async def look_back(
    log: LogReader, *, at: float, until: float | None, model: ClusterModel | None = None
) -> Origin:
    """Everything a fork needs to know. It begins after the last instant not later than `at`.

    `model` is that of the simulated cluster, where the log does not name it.
    """
    position = await position_at(log, at)
    rebuilt = await rebuild(log, position=position)
    image = rebuilt.world.image(rebuilt.hash)
    real = await _after(log, position, until)
    end = until if until is not None else (real[-1].at if real else at)
    asked, faults, joined = _inputs(World.around(State(image)), real)
    snapshot = take_snapshot(rebuilt.world, rebuilt.hash)
    simulated = await _simulated(log, position, model, real)
    if simulated is not None and not _is_of(simulated.model, rebuilt.world):
        simulated = None
    return Origin(at, end, snapshot, rebuilt.hash, real, asked, faults, joined, simulated)


async def _simulated(
    log: LogReader, position: int, given: ClusterModel | None, real: Sequence[e.Recorded]
) -> Simulated | None:
    """The cluster that the log names last before the fork, else the one that is given."""
    rows = await log.read(0, 1)
    if not rows or rows[0][0] != 1:
        # A part of a log does not say how its cluster came there.
        return None
    birth = rows[0][1]
    named = await _last_model(log, position)
    if named is None and given is None:
        return None
    if named is None:
        assert given is not None
        events = await read_events(log, 0, position)
        counted_from = birth_of(given, [*events, *real])
        if counted_from is None:
            return None
        return Simulated(given, counted_from, birth, take_snapshot(World(), GENESIS), events)
    event = named.event
    assert isinstance(event, e.ClusterModelled)
    try:
        model = cluster_from(event.document)
    except (BadCluster, ValueError):
        return None
    begin = await rebuild(log, position=named.position)
    events = await read_events(log, named.position, position)
    return Simulated(model, birth, named.at, take_snapshot(begin.world, begin.hash), events)


async def _last_model(log: LogReader, position: int) -> e.Recorded | None:
    """The last event up to a position that names the model of a simulated cluster."""
    if isinstance(log, StreamReader):
        rows = list(await log.read_stream("simulator", 0, position))
    else:
        rows, after = [], 0
        while after < position:
            page = await log.read(after, min(PAGE_ROWS, position - after))
            if not page:
                break
            rows += [row for row in page if row[2] == "simulator"]
            after = page[-1][0]
    return from_row(rows[-1]) if rows else None


def _is_of(model: ClusterModel, world: World) -> bool:
    """Whether the log's nodes are the model's, so that it can have been its cluster."""
    names = {node.name for node in model.nodes}
    return {node.name for node in world.nodes.values() if not node.removed} <= names


async def _after(log: LogReader, position: int, until: float | None) -> list[e.Recorded]:
    found: list[e.Recorded] = []
    while rows := await log.read(position, PAGE_ROWS):
        found += [from_row(row) for row in rows if until is None or row[1] <= until]
        position = rows[-1][0]
        if until is not None and rows[-1][1] > until:
            break
    return found


def _inputs(
    world: World, real: Sequence[e.Recorded]
) -> tuple[list[Timed], list[NodeFault], list[tuple[float, NodeInfo]]]:
    """Walks the real future, and keeps what came from outside."""
    asked: list[Timed] = []
    faults: list[NodeFault] = []
    joined: list[tuple[float, NodeInfo]] = []
    down = {node.name: -1 for node in world.nodes.values() if not node.ready and not node.removed}
    last_cause = ""
    for index, recorded in enumerate(real):
        event = recorded.event
        match event:
            case e.NodeRemoved(node=node, reason=e.FORGOTTEN):
                asked.append(
                    (recorded.at, c.ForgetNode(id=recorded.cause, actor=recorded.actor, node=node))
                )
            case e.NodeLost() | e.NodeRemoved():
                message = event.message if isinstance(event, e.NodeLost) else "it was removed"
                if event.node not in down:
                    down[event.node] = len(faults)
                    faults.append(NodeFault(recorded.at, event.node, message))
            case e.NodeReported():
                if event.node in down:
                    _came_back(world, faults, down.pop(event.node), recorded)
                elif event.node not in world.nodes or world.nodes[event.node].info != event.info:
                    joined.append((recorded.at, event.info))
            case _:
                # What follows from a request carries its cause; what nobody asked for has none.
                if recorded.cause and recorded.cause != last_cause:
                    window = real[index : index + 2]
                    asked += [(recorded.at, x) for x in _request(world, window)]
        last_cause = recorded.cause
        world.apply(recorded)
    return asked, faults, joined


def _request(world: World, window: Sequence[e.Recorded]) -> list[c.AnyCommand]:
    first, second = window[0], window[-1]
    together = window if second.at == first.at and second.cause == first.cause else window[:1]
    command = next(iter(candidates(world, together, 0)), None)
    return [command] if isinstance(command, _REQUESTS) else []


def _came_back(world: World, faults: list[NodeFault], index: int, recorded: e.Recorded) -> None:
    event = recorded.event
    assert isinstance(event, e.NodeReported)
    if index < 0:
        # It was down at the fork already.
        faults.append(NodeFault(float("-inf"), event.node, "", recorded.at))
    else:
        was = faults[index]
        faults[index] = NodeFault(was.at, was.node, was.message, recorded.at)
