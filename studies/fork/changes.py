"""What a fork may change: settings, nodes and faults. Each change says itself in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, get_args, get_type_hints

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace as changed

from controlplane import commands as c
from controlplane.model import NodeInfo
from controlplane.sharing import Queue
from controlplane.world import World
from studies.fork.past import NodeFault

T = TypeVar("T", bound=Struct)

ACTOR = "fork"
SETTABLE = "policy=DISCIPLINE, policy.FIELD=VALUE, queue.NAME.FIELD=VALUE"


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
    policy, queues = world.policy, dict(world.queues)
    for name, value in change.settings:
        match name.split("."):
            case ["policy"]:
                policy = _with_field(policy, "discipline", value, name)
            case ["policy", *path]:
                policy = _with_field(policy, ".".join(path), value, name)
            case ["queue", queue, *path] if path:
                known = queues.get(queue, Queue(queue))
                queues[queue] = _with_field(known, ".".join(path), value, name)
            case _:
                raise ForkError(f"{name!r} cannot be set; what can: {SETTABLE}")
    if policy != world.policy:
        asked.append(c.SetPolicy(id="fork-policy", actor=ACTOR, policy=policy))
    for name, wanted in queues.items():
        if world.queues.get(name) != wanted:
            asked.append(c.DefineQueue(id=f"fork-queue-{name}", actor=ACTOR, queue=wanted))
    for node in change.cordoned:
        _require_node(world, node)
        asked.append(c.CordonNode(id=f"fork-cordon-{node}", actor=ACTOR, node=node))
    return asked


def _with_field(value: T, path: str, text: str, name: str) -> T:
    """The same policy or queue with one field, or one field of a field, changed."""
    field, _, rest = path.partition(".")
    if field not in value.__struct_fields__ or field == "name":
        known = ", ".join(x for x in value.__struct_fields__ if x != "name")
        raise ForkError(f"{name!r} cannot be set; the fields are: {known}")
    inner = getattr(value, field)
    if rest:
        if not isinstance(inner, Struct):
            raise ForkError(f"{name!r} cannot be set; {field} has no fields of its own")
        return changed(value, **{field: _with_field(inner, rest, text, name)})
    hint = get_type_hints(type(value))[field]
    try:
        plain = None if text == "none" else _plain(text)
        return changed(value, **{field: convert(plain, hint, strict=False)})
    except ValidationError as error:
        raise ForkError(f"{name}: {text!r} will not do: {_choices(hint) or error}") from None


def _choices(hint: object) -> str:
    """What may be said where one of a few words is wanted."""
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return f"it is one of {', '.join(kind)}"
    return ""


def _plain(text: str) -> object:
    """A list where there are commas, else the text itself; numbers are made of it as needed."""
    return [part.strip() for part in text.split(",")] if "," in text else text


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
