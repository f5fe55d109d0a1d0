"""What a fork may change: settings, nodes and faults. Each change says itself in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace as changed

from controlplane import commands as c
from controlplane.model import NodeInfo, Queue
from controlplane.world import World
from studies.fork.past import NodeFault


class ForkError(ValueError):
    """The fork cannot be made; says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """Everything that is to be otherwise in the second branch."""

    settings: tuple[tuple[str, str], ...] = ()
    nodes_added: int = 0
    cordoned: tuple[str, ...] = ()
    # Nodes whose later faults do not happen; "all" stands for every node.
    without_faults: tuple[str, ...] = ()
    faults: tuple[NodeFault, ...] = field(default=())

    @property
    def is_none(self) -> bool:
        return self == Change()

    def told(self) -> list[str]:
        told = [f"{name} = {value}" for name, value in self.settings]
        if self.nodes_added:
            told.append(f"{self.nodes_added} more nodes")
        told += [f"node {name} takes no new work" for name in self.cordoned]
        told += [f"no fault of {name}" for name in self.without_faults]
        told += [f"node {x.node} fails at {x.at:.0f}" for x in self.faults]
        return told


def parse_change(
    *,
    settings: Sequence[str] = (),
    add_nodes: int = 0,
    cordon: Sequence[str] = (),
    without_fault: Sequence[str] = (),
    with_fault: Sequence[NodeFault] = (),
) -> Change:
    """A change from what a person wrote; raises ForkError with what is wrong with it."""
    pairs = []
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ForkError(f"{text!r} is no setting; write NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    if add_nodes < 0:
        raise ForkError("nodes can only be added")
    return Change(tuple(pairs), add_nodes, tuple(cordon), tuple(without_fault), tuple(with_fault))


def commands_of(change: Change, world: World) -> list[c.AnyCommand]:
    """What is asked at the fork so that the settings take effect; raises ForkError."""
    asked: list[c.AnyCommand] = []
    for number, (name, value) in enumerate(change.settings):
        asked.append(_setting(world, name, value, f"fork-set-{number}"))
    for node in change.cordoned:
        _require_node(world, node)
        asked.append(c.CordonNode(id=f"fork-cordon-{node}", actor="fork", node=node))
    return asked


def _setting(world: World, name: str, value: str, id: str) -> c.AnyCommand:
    match name.split("."):
        case ["queue", queue, "gpus_max"]:
            known = world.queues.get(queue, Queue(queue))
            return c.DefineQueue(id=id, actor="fork", queue=_with_ceiling(known, value))
        case _:
            raise ForkError(f"{name!r} cannot be set; what can: queue.NAME.gpus_max=N (or none)")


def _with_ceiling(queue: Queue, value: str) -> Queue:
    if value == "none":
        return changed(queue, gpus_max=None)
    if not value.isdigit():
        raise ForkError(f"{value!r} is no number of GPUs, nor none")
    return changed(queue, gpus_max=int(value))


def _require_node(world: World, name: str) -> None:
    if name not in world.nodes or world.nodes[name].removed:
        raise ForkError(f"there was no node {name!r} then")


def nodes_with(change: Change, world: World) -> list[NodeInfo]:
    """The cluster's nodes, and as many more as are to be added: like the first one."""
    nodes = [node.info for node in world.nodes.values() if not node.removed]
    if not change.nodes_added:
        return nodes
    if not nodes:
        raise ForkError("there was no node then to add more of")
    pattern, taken = nodes[0], {node.name for node in nodes}
    names = (f"added-{number}" for number in range(len(nodes) + change.nodes_added))
    free = [name for name in names if name not in taken][: change.nodes_added]
    return [*nodes, *(_named(pattern, name) for name in free)]


def _named(info: NodeInfo, name: str) -> NodeInfo:
    return changed(info, name=name)


def faults_with(change: Change, faults: Sequence[NodeFault], world: World) -> list[NodeFault]:
    """The faults that happen in a changed future. What was down at the fork comes back then."""
    for node in change.without_faults:
        if node != "all":
            _require_node(world, node)
    for fault in change.faults:
        _require_node(world, fault.node)
    spared = set(change.without_faults)
    kept = [
        fault for fault in faults if fault.at == float("-inf") or not ({fault.node, "all"} & spared)
    ]
    return [*kept, *change.faults]
