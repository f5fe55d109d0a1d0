"""Racks, blocks and their like as a tree, and how a gang is spread over few of its domains.

Fewest domains of the outer levels come first, then fewest of the inner ones, then fewest nodes. A
domain that just holds what is left is preferred to a roomier one, so that room stays together.
"""

from collections.abc import Iterator, Sequence

from controlplane.devices import FreeDevices
from controlplane.model import NodeInfo, TopologyAsk
from controlplane.world import World

NODE = "node"
# How many ranks go to which node, by ordinal.
Spread = list[tuple[int, int]]


class Domain:
    """A place in the tree: the whole cluster, a rack, a single node."""

    __slots__ = ("children", "level", "name", "nodes", "ordinal", "watched")

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        # 0 is the whole cluster, and each level below counts one more.
        self.level = level
        self.children: list[Domain] = []
        self.nodes: list[int] = []
        # A node knows its ordinal; a domain right above nodes its place in FreeDevices.leaves.
        self.ordinal = -1
        self.watched = -1

    def at(self, level: int) -> "Iterator[Domain]":
        """The domains of a level, in order."""
        if self.level == level:
            yield self
        else:
            for child in self.children:
                yield from child.at(level)


# A node may name its domain of a level by a label: this and the level's name.
LEVEL_LABEL = "topology.muster.dev/"


def _path(info: NodeInfo, levels: Sequence[str]) -> tuple[str, ...]:
    """The domains of a node, outermost first: by its path, by labels, or by its rack alone.

    A domain that is not known is one of its own: around the domain below it, or around the node.
    """
    labels, rack = info.labels, info.rack
    found = [labels.get(LEVEL_LABEL + name, rack if name == "rack" else "") for name in levels]
    if info.path or not any(found):
        found = list(info.domains[: len(levels)])
        return (*found, *(f"?{info.name}" for _ in range(len(levels) - len(found))))
    inner = info.name
    for i in reversed(range(len(found))):
        found[i] = inner = found[i] or f"?{inner.lstrip('?')}"
    return tuple(found)


class Topology:
    """The tree of the nodes that there are, and the numbers of its levels."""

    def __init__(self, world: World) -> None:
        self.levels = world.policy.levels
        self.root = Domain("", 0)
        depth = len(self.levels)
        self.node_level = depth + 1
        known: dict[tuple[str, ...], Domain] = {(): self.root}
        leaf_of = [-1] * len(world.nodes)
        leaves = 0
        for node in world.nodes.values():
            if node.removed:
                continue
            path = _path(node.info, self.levels)
            for length in range(1, depth + 1):
                here = path[:length]
                if here not in known:
                    known[here] = Domain(here[-1], length)
                    known[here[:-1]].children.append(known[here])
                    if length == depth:
                        known[here].watched = leaves
                        leaves += 1
            leaf = Domain(node.name, depth + 1)
            leaf.ordinal = node.ordinal
            leaf.nodes = [node.ordinal]
            known[path].children.append(leaf)
            leaf_of[node.ordinal] = known[path].watched
            for length in range(depth + 1):
                known[path[:length]].nodes.append(node.ordinal)
        world.free.watch(leaf_of, leaves)

    def level(self, name: str) -> int | None:
        """The number of a level, or None when the policy knows no such level."""
        if name == NODE:
            return self.node_level
        return self.levels.index(name) + 1 if name in self.levels else None


def topology_of(world: World) -> Topology:
    """The tree, made anew only when nodes or levels have changed."""
    tree = world.about_nodes.get("topology")
    if tree is None:
        tree = world.about_nodes["topology"] = Topology(world)
    assert isinstance(tree, Topology)
    return tree


class Room:
    """How many ranks of one size each domain has room for, now."""

    def __init__(
        self,
        free: FreeDevices,
        gpus: int,
        *,
        allowed: frozenset[int] | None,
        slice_level: int = 0,
        slice_size: int = 0,
    ) -> None:
        self._free = free
        self._gpus = gpus
        self._allowed = allowed
        self._slice_level = slice_level
        self._slice_size = slice_size
        self._known: dict[int, int] = {}

    def of(self, domain: Domain) -> int:
        known = self._known.get(id(domain))
        if known is None:
            known = self._count(domain)
            if self._slice_size and domain.level == self._slice_level:
                known -= known % self._slice_size
            self._known[id(domain)] = known
        return known

    def of_nodes(self, domain: Domain) -> list[tuple[int, int]]:
        """The room of each node right below a domain, with its index."""
        gpus, masks, is_open, allowed = self._gpus, self._free.masks, self._free.open, self._allowed
        unit = self._slice_size if domain.level + 1 == self._slice_level else 1
        return [
            (masks[o].bit_count() // gpus // unit * unit, index)
            for index, o in enumerate(domain.nodes)
            if is_open[o] and (allowed is None or o in allowed)
        ]

    def _count(self, domain: Domain) -> int:
        free, gpus = self._free, self._gpus
        if domain.ordinal >= 0:
            ordinal = domain.ordinal
            if not free.open[ordinal] or (
                self._allowed is not None and ordinal not in self._allowed
            ):
                return 0
            return free.masks[ordinal].bit_count() // gpus
        inner = self._slice_size and domain.level < self._slice_level
        if domain.watched >= 0 and self._allowed is None and not inner and free.leaf_of is not None:
            counts = free.leaves[domain.watched]
            return sum([n * (count // gpus) for count, n in counts.items()])
        return sum([self.of(child) for child in domain.children])


def spread(domain: Domain, ranks: int, room: Room, into: Spread) -> None:
    """Spreads so many ranks over the domain, which has the room, using few of its parts."""
    parts = domain.children
    if domain.watched >= 0:
        for index, share in shares(room.of_nodes(domain), ranks):
            into.append((parts[index].ordinal, share))
        return
    if domain.ordinal >= 0:
        into.append((domain.ordinal, ranks))
        return
    rooms = [(room.of(part), index) for index, part in enumerate(parts)]
    for index, share in shares(rooms, ranks):
        spread(parts[index], share, room, into)


def shares(rooms: list[tuple[int, int]], ranks: int) -> Iterator[tuple[int, int]]:
    """The roomiest parts whole, and then the one that just holds the rest: (index, ranks)."""
    just = min([pair for pair in rooms if pair[0] >= ranks], default=None)
    if just is not None:
        yield just[1], ranks
        return
    rooms = sorted([pair for pair in rooms if pair[0]], key=lambda pair: (-pair[0], pair[1]))
    for first, (most, index) in enumerate(rooms):
        if most >= ranks:
            _, index = min(pair for pair in rooms[first:] if pair[0] >= ranks)
            yield index, ranks
            return
        yield index, most
        ranks -= most


def domains_for(tree: Topology, ask: TopologyAsk) -> Iterator[list[Domain]]:
    """Lists of domains within one of which the whole gang is to go, the best list first."""
    if ask.required:
        required = tree.level(ask.required)
        if required is None:
            return
    else:
        required = 0
    preferred = tree.level(ask.preferred) if ask.preferred else None
    for level in range(
        required if preferred is None else max(required, preferred), required - 1, -1
    ):
        yield list(tree.root.at(level))
