"""What a fork starts from, and what really came after: requests of people, and faults of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane import commands as c
from controlplane import events as e
from controlplane.codec import from_row
from controlplane.model import NodeInfo
from controlplane.ports import LogReader, Snapshot
from controlplane.recalling import candidates
from controlplane.replay import PAGE_ROWS, position_at, rebuild, take_snapshot
from controlplane.state import State
from controlplane.world import World

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
)
Timed = tuple[float, c.AnyCommand]


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


async def look_back(log: LogReader, *, at: float, until: float | None) -> Origin:
    """Everything a fork needs to know. It begins after the last instant not later than `at`."""
    position = await position_at(log, at)
    rebuilt = await rebuild(log, position=position)
    image = rebuilt.world.image(rebuilt.hash)
    real = await _after(log, position, until)
    end = until if until is not None else (real[-1].at if real else at)
    asked, faults, joined = _inputs(World.around(State(image)), real)
    snapshot = take_snapshot(rebuilt.world, rebuilt.hash)
    return Origin(at, end, snapshot, rebuilt.hash, real, asked, faults, joined)


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
