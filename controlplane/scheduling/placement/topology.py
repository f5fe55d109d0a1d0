"""The topology of the cluster as a tree of domains (blocks, racks, nodes), and how equal ranks are spread over it.

A gang is spread over as few domains of the outer levels as possible, then of the inner ones, then over as few nodes. Of
several domains that hold what is left, the one with least room is taken, so that large room stays together (best fit).
"""

from collections.abc import Iterable, Iterator, Sequence

from controlplane.model.cluster import NodeInfo
from controlplane.model.spec import TopologyAsk
from controlplane.state.devices import FreeDevicesView
from controlplane.state.image import Node

NODE = "node"
# Pairs of a node's ordinal and the number of ranks that go there.
Spread = list[tuple[int, int]]


class Domain:
    """A domain of the tree: the whole cluster, a rack, a single node."""

    __slots__ = ("children", "level", "name", "nodes", "ordinal")

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        # 0 is the whole cluster, and each level below counts one more.
        self.level = level
        self.children: list[Domain] = []
        self.nodes: list[int] = []
        # The ordinal of a node; -1 for the domains above nodes.
        self.ordinal = -1

    @property
    def holds_nodes(self) -> bool:
        """Whether its children are nodes."""
        return bool(self.children) and self.children[0].ordinal >= 0

    def at(self, level: int) -> "Iterator[Domain]":
        """The domains of a level, in order."""
        if self.level == level:
            yield self
        else:
            for child in self.children:
                yield from child.at(level)


# Prefix of the node label that names the node's domain of a level.
LEVEL_LABEL = "topology.muster.dev/"


def _path(info: NodeInfo, levels: Sequence[str]) -> tuple[str, ...]:
    """The domains of a node, outermost first: from its path, its labels, or its rack.

    A domain that is not known is one of its own around the domain below it, or around the node.
    """
    labels, rack = info.labels, info.rack
    domains = [labels.get(LEVEL_LABEL + name, rack if name == "rack" else "") for name in levels]
    if info.path or not any(domains):
        domains = list(info.domains[: len(levels)])
        return (*domains, *(f"?{info.name}" for _ in range(len(levels) - len(domains))))
    inner = info.name
    for i in reversed(range(len(domains))):
        domains[i] = inner = domains[i] or f"?{inner.lstrip('?')}"
    return tuple(domains)


class Topology:
    """The tree of nodes, and the numbers of its levels."""

    def __init__(self, nodes: Iterable[Node], levels: Sequence[str]) -> None:
        self.levels = levels
        self.root = Domain("", 0)
        depth = len(levels)
        self.node_level = depth + 1
        known: dict[tuple[str, ...], Domain] = {(): self.root}
        for node in nodes:
            path = _path(node.info, levels)
            for length in range(1, depth + 1):
                here = path[:length]
                if here not in known:
                    known[here] = Domain(here[-1], length)
                    known[here[:-1]].children.append(known[here])
            leaf = Domain(node.name, depth + 1)
            leaf.ordinal = node.ordinal
            leaf.nodes = [node.ordinal]
            known[path].children.append(leaf)
            for length in range(depth + 1):
                known[path[:length]].nodes.append(node.ordinal)

    def level(self, name: str) -> int | None:
        """The number of a level, or None if the policy has no such level."""
        if name == NODE:
            return self.node_level
        return self.levels.index(name) + 1 if name in self.levels else None


class Room:
    """How many ranks of one size each domain has room for."""

    def __init__(
        self,
        free: FreeDevicesView,
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
        """The room of each node of a lowest domain, with its index."""
        gpus, counts, is_open, allowed = (
            self._gpus,
            self._free.free_counts,
            self._free.open,
            self._allowed,
        )
        unit = self._slice_size if domain.level + 1 == self._slice_level else 1
        return [
            (counts[o] // gpus // unit * unit, index)
            for index, o in enumerate(domain.nodes)
            if is_open[o] and (allowed is None or o in allowed)
        ]

    def _count(self, domain: Domain) -> int:
        is_sliced_below = self._slice_size and domain.level < self._slice_level
        if not is_sliced_below and (domain.ordinal >= 0 or domain.holds_nodes):
            return self._count_nodes(domain.nodes)
        return sum(self.of(child) for child in domain.children)

    def _count_nodes(self, ordinals: Iterable[int]) -> int:
        counts, is_open, gpus = self._free.free_counts, self._free.open, self._gpus
        if self._allowed is not None:
            ordinals = [o for o in ordinals if o in self._allowed]
        return sum(counts[o] // gpus for o in ordinals if is_open[o])


def spread(domain: Domain, ranks: int, room: Room, into: Spread) -> None:
    """Spread `ranks` ranks over few children of a domain that has room for them."""
    parts = domain.children
    if domain.holds_nodes:
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
    """Pairs (index, ranks): the roomiest parts are filled, and the rest goes to the tightest that holds it."""
    just = min((pair for pair in rooms if pair[0] >= ranks), default=None)
    if just is not None:
        yield just[1], ranks
        return
    rooms = sorted((pair for pair in rooms if pair[0]), key=lambda pair: (-pair[0], pair[1]))
    for first, (most, index) in enumerate(rooms):
        if most >= ranks:
            _, index = min(pair for pair in rooms[first:] if pair[0] >= ranks)
            yield index, ranks
            return
        yield index, most
        ranks -= most


def domains_for(tree: Topology, ask: TopologyAsk) -> Iterator[list[Domain]]:
    """Lists of domains, the preferred list first: the whole gang must be placed within one domain of a list."""
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
