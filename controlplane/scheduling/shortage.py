"""What a gang lacks beside GPUs, in numbers: now, and for ever."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.devices import FreeDevices
from controlplane.image import Node
from controlplane.model import JobSpec, Role
from controlplane.requests import Amounts, noun, requests_of, told
from controlplane.scheduling.asking import counts
from controlplane.scheduling.fitting import fit
from controlplane.scheduling.gangs import Gang
from controlplane.world import World

# So many nodes are named, those that have most left.
NODES_TOLD_MAX = 8


class Shortage(NamedTuple):
    """What is told of it; and of how many ranks that need something of it, how many would find it."""

    message: str
    ranks: int
    room: int
    by_node: dict[str, str]
    # What it lacks; several are joined by "+", where none alone is too little.
    resource: str = ""


def shortage(
    world: World, free: FreeDevices, gang: Gang, flavor: str, nodes: Iterable[Node]
) -> Shortage | None:
    """What it lacks on these nodes now, if it would have GPUs enough where it needs them."""
    if not counts(free, gang) or not _fits_with(world, free, gang, flavor, {}):
        return None
    there = [node for node in nodes if free.open[node.ordinal]]
    for name in gang.resources:
        alone = {o: {name: offers[name]} for o, offers in free.offers.items() if name in offers}
        if not _fits_with(world, free, gang, flavor, alone):
            return _of_one(free, gang, name, there)
    names = " and ".join(noun(name).removeprefix("of ") for name in gang.resources)
    message = f"there is enough {names} on some nodes, but not of all on as many as its ranks need"
    return Shortage(message, gang.size, 0, {}, "+".join(gang.resources))


def _fits_with(
    world: World, free: FreeDevices, gang: Gang, flavor: str, offers: dict[int, dict[str, int]]
) -> bool:
    """Whether it would fit if just this were counted beside GPUs."""
    view = free.copy()
    view.offers = offers
    return fit(world, view, gang, flavor) is not None


def _of_one(free: FreeDevices, gang: Gang, name: str, nodes: Iterable[Node]) -> Shortage:
    asked = [amounts[name] for amounts in gang.amounts if name in amounts]
    least, ranks = min(asked), len(asked)
    left = [(free.left(node.ordinal, name), node) for node in nodes]
    limited = [(max(0, n), node) for n, node in left if n is not None]
    limited.sort(key=lambda pair: (-pair[0], pair[1].ordinal))
    texts = {node.name: _left(node, name, n) for n, node in limited[:NODES_TOLD_MAX]}
    each = f"{told(name, least)} {noun(name)}" + ("" if least == max(asked) else " or more")
    room = min(ranks, sum(n // least for n, _ in limited))
    message = f"{_ranks(ranks)} {each}"
    if texts:
        first = next(iter(texts))
        message += f"; {first} has {texts[first]}"
    if len(limited) > 1:
        message += ", and no other node has more"
    return Shortage(message, ranks, room, texts, name)


def _ranks(count: int) -> str:
    return "its rank needs" if count == 1 else f"each of {count} ranks needs"


def _left(node: Node, name: str, left: int) -> str:
    return f"{told(name, left)} of {told(name, node.info.resources[name])} {noun(name)} free"


# ---------------------------------------------------------------- for ever

# Nodes that have as many GPUs and as much of everything else, and how many of them there are.
Sorts = Mapping[tuple[int, tuple[tuple[str, int], ...]], int]


def why_never_enough(world: World, spec: JobSpec) -> str:
    """Nothing if the gang may find what it requests on an empty cluster, else why it never can.

    Only what is certain counts: each role for itself must find room on the nodes that there are.
    """
    requests = requests_of(spec)
    if not requests:
        return ""
    sorts = _sorts(world)
    for role, amounts in zip(spec.roles, requests, strict=True):
        if not amounts or not role.replicas:
            continue
        room = sum(n * _times(role, amounts, *sort) for sort, n in sorts.items())
        if room < role.replicas:
            return _too_much(role, amounts, sorts, room)
    return ""


def _sorts(world: World) -> Sorts:
    found: dict[tuple[int, tuple[tuple[str, int], ...]], int] | None
    found = world.about_nodes.get("sorts")
    if found is None:
        found = {}
        for node in world.nodes.values():
            if not node.removed:
                sort = node.info.gpus, tuple(sorted(node.info.resources.items()))
                found[sort] = found.get(sort, 0) + 1
        world.about_nodes["sorts"] = found
    return found


def _times(role: Role, amounts: Amounts, gpus: int, has: tuple[tuple[str, int], ...]) -> int:
    """How many ranks of a role an empty node of this sort holds."""
    rooms = [most // amounts[name] for name, most in has if name in amounts]
    if role.gpus:
        rooms.append(gpus // role.gpus)
    return min([role.replicas, *rooms])


def _too_much(role: Role, amounts: Amounts, sorts: Sorts, room: int) -> str:
    for name, amount in amounts.items():
        most = [dict(has).get(name) for _, has in sorts]
        largest = max([n for n in most if n is not None], default=0)
        if None not in most and amount > largest:
            return (
                f"a rank of {role.name} needs {told(name, amount)} {noun(name)} on one node; "
                f"the most that a node has is {told(name, largest)}"
            )
    each = [f"{told(name, amount)} {noun(name)}" for name, amount in amounts.items()]
    each += [f"{role.gpus} GPUs"] if role.gpus else []
    needed = ", ".join(each)
    ranks = f"{role.replicas} ranks of {role.name} need"
    return f"{ranks} {needed} each; the whole cluster has room for {room}"
