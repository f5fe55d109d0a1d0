"""The changes that a fork may make: settings, nodes and faults, and a text for each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace as changed

from controlplane.decisions.queue_admin import name_problems
from controlplane.model import commands as c
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Policy, Queue
from controlplane.state.world import World
from studies.fork.past import NodeFault

T = TypeVar("T", bound=Struct)

ACTOR = "fork"
SETTABLE = (
    "policy=DISCIPLINE, policy.FIELD=VALUE, queue.NAME.FIELD=VALUE, "
    "job.NAMESPACE/NAME.priority=N, job.NAMESPACE/NAME.queue=NAME"
)


class ForkError(ValueError):
    """The fork cannot be made; the message explains why."""


@dataclass(frozen=True, slots=True)
class Change:
    """Everything that differs in the second branch."""

    settings: tuple[tuple[str, str], ...] = ()
    nodes_added: int = 0
    cordoned: tuple[str, ...] = ()
    # Nodes whose later faults are left out; "all" means every node.
    without_faults: tuple[str, ...] = ()
    faults: tuple[NodeFault, ...] = field(default=())

    @property
    def is_none(self) -> bool:
        return self == Change()

    def describe(self) -> list[str]:
        """Return one text for each part of the change."""
        lines = [f"{name} = {value}" for name, value in self.settings]
        if self.nodes_added:
            lines.append(f"{self.nodes_added} more nodes")
        lines += [f"node {name} takes no new work" for name in self.cordoned]
        lines += [f"no fault of {_any(name)}" for name in self.without_faults]
        lines += [f"node {x.node} fails at {x.at:.0f}" for x in self.faults]
        return lines


def _any(name: str) -> str:
    return "any node" if name == "all" else name


def parse_change(
    *,
    settings: Sequence[str] = (),
    add_nodes: int = 0,
    cordon: Sequence[str] = (),
    without_fault: Sequence[str] = (),
    with_fault: Sequence[NodeFault] = (),
) -> Change:
    """Return the change that a user wrote; raise ForkError if a part of it is invalid."""
    pairs = []
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ForkError(f"{text!r} is not a setting; write NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    if add_nodes < 0:
        raise ForkError("nodes can only be added")
    return Change(tuple(pairs), add_nodes, tuple(cordon), tuple(without_fault), tuple(with_fault))


def commands_of(change: Change, world: World) -> list[c.AnyCommand]:
    """Return the commands that make the settings take effect at the fork; raise ForkError."""
    asked: list[c.AnyCommand] = []
    policy, queues = world.policy, dict(world.queues)
    for name, value in change.settings:
        if name.startswith("job."):
            asked.append(_amendment(name, value, world))
            continue
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
    named: tuple[Policy | Queue, ...] = (policy, *queues.values())
    for problem in (problem for settings in named for problem in name_problems(settings)):
        raise ForkError(problem)
    if policy != world.policy:
        asked.append(c.SetPolicy(id="fork-policy", actor=ACTOR, policy=policy))
    for name, wanted in queues.items():
        if world.queues.get(name) != wanted:
            asked.append(c.DefineQueue(id=f"fork-queue-{name}", actor=ACTOR, queue=wanted))
    for node in change.cordoned:
        _require_node(world, node)
        asked.append(c.CordonNode(id=f"fork-cordon-{node}", actor=ACTOR, node=node))
    return asked


def _amendment(name: str, value: str, world: World) -> c.AmendJob:
    """Return the command that gives a job another priority or queue; raise ForkError."""
    job, _, field = name.removeprefix("job.").rpartition(".")
    namespace, _, plain = job.rpartition("/")
    known = world.job(namespace or "default", plain)
    if field not in ("priority", "queue"):
        raise ForkError(f"{name!r} cannot be set; of a job, its priority and its queue can")
    if known is None:
        raise ForkError(f"there was no job {job!r} then")
    changes: dict[str, Any] = {field: value}
    if field == "priority":
        try:
            changes = {field: int(value)}
        except ValueError:
            raise ForkError(f"{name}: {value!r} is not a whole number") from None
    elif value not in world.queues:
        raise ForkError(f"{name}: there was no queue {value!r} then")
    return c.AmendJob(
        id=f"fork-job-{known.id}-{field}",
        actor=ACTOR,
        namespace=known.namespace,
        name=known.name,
        **changes,
    )


def _with_field(value: T, path: str, text: str, name: str) -> T:
    """Return the policy or queue with one field, or one field of a field, changed.

    `path` is the field, `text` its new value, `name` the full setting for messages. Raise ForkError
    if there is no such field or the value does not fit.
    """
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
    """Return the permitted values of an enum field as text, or "" for any other type."""
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return f"it is one of {', '.join(kind)}"
    return ""


def _plain(text: str) -> object:
    """Return a list if `text` has commas, else `text`; msgspec converts it to numbers as needed."""
    return [part.strip() for part in text.split(",")] if "," in text else text


def _require_node(world: World, name: str) -> None:
    if name not in world.nodes or world.nodes[name].removed:
        raise ForkError(f"there was no node {name!r} then")


def nodes_with(change: Change, world: World) -> list[NodeInfo]:
    """Return the cluster's nodes and the added ones, which copy the first.

    Raise ForkError if there is no node to copy.
    """
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
    """Return the faults of the changed branch; a node that was down at the fork still comes back.

    Raise ForkError if the change names a node that did not exist.
    """
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
