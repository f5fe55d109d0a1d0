"""The starting point of a fork, and the recorded inputs after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, get_args, runtime_checkable

from adapters.simulated_cluster.recovery import read_events
from controlplane.audit.recorded_commands import by_command, command_of
from controlplane.log.codec import from_row
from controlplane.log.replay import PAGE_ROWS, position_at, rebuild
from controlplane.log.snapshots import take_snapshot
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.reasons import Loss, LossReason, NodeRemovalReason
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import LogReader, StateSnapshot
from controlplane.state.world import World
from simulator.network.topology import BadCluster, ClusterModel, cluster_from
from studies.fork.birth import birth_of

# The commands that users send.
_REQUESTS = frozenset(kind.__name__ for kind in get_args(c.Request))
Timed = tuple[float, c.AnyCommand]


@runtime_checkable
class StreamReader(Protocol):
    """A log that can read one stream."""

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]: ...


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A node that stopped answering, and when it came back; `back_at` is None if it never did."""

    at: float
    node: str
    loss: Loss | None = None
    back_at: float | None = None


def asked_for(node: str) -> Loss:
    """Return the loss of a node that a user adds to a fork."""
    return Loss(LossReason.CRASHED, node, "asked for")


@dataclass(frozen=True, slots=True)
class Origin:
    """The state at the fork, and the recorded future after it, up to `until`."""

    at: float
    until: float
    snapshot: StateSnapshot
    hash: bytes
    # The events after the fork, the requests among them, and the faults of nodes.
    real: Sequence[e.Recorded]
    asked: Sequence[Timed]
    faults: Sequence[NodeFault]
    # Nodes that joined, or came back with other hardware, after the fork.
    joined: Sequence[tuple[float, NodeInfo]]
    # The past of a simulated cluster; None for a real cluster, or if the past is not known.
    simulated: "Simulated | None" = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated cluster from its start to the fork; `birth` is the log's time at its time 0."""

    model: ClusterModel
    birth: float
    began_at: float
    # The world at `began_at`, and the events since.
    begin: StateSnapshot
    events: Sequence[e.Recorded]


async def look_back(
    log: LogReader, *, at: float, until: float | None, model: ClusterModel | None = None
) -> Origin:
    """Read everything that a fork needs. The fork is after the last event not later than `at`.

    `model` is that of the simulated cluster, for a log that does not record it.
    """
    position = await position_at(log, at)
    rebuilt = await rebuild(log, position=position)
    image = rebuilt.world.image(rebuilt.hash)
    real = await _after(log, position, until)
    end = until if until is not None else (real[-1].at if real else at)
    asked, faults, joined = _inputs(World(image), real)
    snapshot = take_snapshot(rebuilt.world, rebuilt.hash)
    simulated = await _simulated(log, position, model, real)
    if simulated is not None and not _is_of(simulated.model, rebuilt.world):
        simulated = None
    return Origin(at, end, snapshot, rebuilt.hash, real, asked, faults, joined, simulated)


async def _simulated(
    log: LogReader, position: int, given: ClusterModel | None, real: Sequence[e.Recorded]
) -> Simulated | None:
    """Return the past of the simulated cluster; None for a real or unknown one.

    The model is the last that the log records before the fork, else `given`.
    """
    rows = await log.read(0, 1)
    if not rows or rows[0].position != 1:
        # A log that does not begin at position 1 does not contain the cluster's past.
        return None
    birth = rows[0].at
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
    """Return the last event up to `position` that records a cluster model, or None."""
    if isinstance(log, StreamReader):
        rows = list(await log.read_stream("simulator", 0, position))
    else:
        rows, after = [], 0
        while after < position:
            page = await log.read(after, min(PAGE_ROWS, position - after))
            if not page:
                break
            rows += [row for row in page if row.stream == "simulator"]
            after = page[-1].position
    return from_row(rows[-1]) if rows else None


def _is_of(model: ClusterModel, world: World) -> bool:
    """Whether every node of the log is in the model, so that the log can be from this cluster."""
    names = {node.name for node in model.nodes}
    return {node.name for node in world.nodes.values() if not node.removed} <= names


async def _after(log: LogReader, position: int, until: float | None) -> list[e.Recorded]:
    events: list[e.Recorded] = []
    while rows := await log.read(position, PAGE_ROWS):
        events += [from_row(row) for row in rows if until is None or row.at <= until]
        position = rows[-1].position
        if until is not None and rows[-1].at > until:
            break
    return events


def _inputs(
    world: World, real: Sequence[e.Recorded]
) -> tuple[list[Timed], list[NodeFault], list[tuple[float, NodeInfo]]]:
    """Apply the recorded future to `world`, and return the inputs in it.

    These are the requests of users, the faults of nodes, and the nodes that joined.
    """
    asked: list[Timed] = []
    faults: list[NodeFault] = []
    joined: list[tuple[float, NodeInfo]] = []
    down = {node.name: -1 for node in world.nodes.values() if not node.ready and not node.removed}
    commands = {(group[0].step, group[0].ordinal): group for group in by_command(real)}
    for recorded in real:
        if recorded.command in _REQUESTS:
            group = commands.pop((recorded.step, recorded.ordinal), None)
            if group is not None:
                asked.append((recorded.at, command_of(world, group)))
        event = recorded.event
        match event:
            case e.NodeRemoved(reason=NodeRemovalReason.FORGOTTEN):
                pass
            case e.NodeLost() | e.NodeRemoved():
                removed = Loss(LossReason.REMOVED, event.node)
                loss = event.loss if isinstance(event, e.NodeLost) else removed
                if event.node not in down:
                    down[event.node] = len(faults)
                    faults.append(NodeFault(recorded.at, event.node, loss))
            case e.NodeReported():
                if event.node in down:
                    _came_back(world, faults, down.pop(event.node), recorded)
                elif event.node not in world.nodes or world.nodes[event.node].info != event.info:
                    joined.append((recorded.at, event.info))
            case _:
                pass
        world.apply(recorded)
    return asked, faults, joined


def _came_back(world: World, faults: list[NodeFault], index: int, recorded: e.Recorded) -> None:
    event = recorded.event
    assert isinstance(event, e.NodeReported)
    if index < 0:
        # The node was down at the fork already.
        faults.append(NodeFault(float("-inf"), event.node, None, recorded.at))
    else:
        was = faults[index]
        faults[index] = NodeFault(was.at, was.node, was.loss, recorded.at)
