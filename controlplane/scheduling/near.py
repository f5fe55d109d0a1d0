"""Ranks that are to be near each other: the domain that they fill best, and there as few as possible."""

from collections.abc import Iterable, Sequence

from controlplane.devices import FreeDevices
from controlplane.model import TopologyAsk
from controlplane.scheduling.asking import beside, counts, pack, spaces_of, stand_in
from controlplane.scheduling.gangs import Gang, Kin, Needs
from controlplane.scheduling.packing_search import choose_any
from controlplane.scheduling.placement import Chosen, Pool, choose, spread_needs
from controlplane.scheduling.topology import (
    Domain,
    Room,
    Spread,
    Topology,
    domains_for,
    spread,
    topology_of,
)
from controlplane.world import World


def choose_near(
    world: World, free: FreeDevices, gang: Gang, ask: TopologyAsk, allowed: frozenset[int] | None
) -> Chosen | None:
    tree = topology_of(world)
    if free.leaf_of is None:
        # The copy was made before the tree; it counts for itself from here on.
        free.watch(world.free.leaf_of, len(world.free.leaves))
    slice_level = tree.level(ask.slice_level) if ask.slice_size else 0
    if slice_level is None:
        return None
    return _Near(world, free, gang, ask, allowed, tree, slice_level).choose()


class _Near:
    def __init__(
        self,
        world: World,
        free: FreeDevices,
        gang: Gang,
        ask: TopologyAsk,
        allowed: frozenset[int] | None,
        tree: Topology,
        slice_level: int,
    ) -> None:
        self._world = world
        self._free = free
        self._gang = gang
        self._ask = ask
        self._allowed = allowed
        self._tree = tree
        self._asks = counts(free, gang)
        # Those that lead are spread, and the others keep them company.
        self._needs: Needs = gang.needs
        self._lead, self._others = self._leaders() if self._asks else ([], [])
        if self._asks:
            self._needs = [(each.need[0], rank) for each in self._lead for rank in each.ranks]
        view = stand_in(free, gang, self._lead[0]) if len(self._lead) == 1 else free
        self._room = Room(
            view,
            max(1, self._needs[0][0] if self._needs else 0),
            allowed=allowed,
            slice_level=slice_level,
            slice_size=ask.slice_size,
        )

    def _leaders(self) -> tuple[list[Kin], list[Kin]]:
        """Those with GPUs, if there are any."""
        kin = self._gang.kin
        lead = [each for each in kin if each.need[0]] or kin
        return lead, [each for each in kin if each not in lead]

    def choose(self) -> Chosen | None:
        ranks, size = len(self._needs), self._ask.slice_size
        if size and ranks % size:
            return None
        is_uniform = len(self._lead) == 1 if self._asks else self._gang.uniform
        for domains in domains_for(self._tree, self._ask):
            if self._ask.exclusive:
                domains = [d for d in domains if _is_empty(self._world, self._free, d)]
            found = self._spread(domains, ranks) if is_uniform else self._choose_mixed(domains)
            if found is not None:
                return found
        return None

    def _spread(self, domains: Sequence[Domain], ranks: int) -> Chosen | None:
        """Equal ranks, over few parts of the domain that they fill best."""
        rooms = [(self._room.of(domain), i) for i, domain in enumerate(domains)]
        fitting = [pair for pair in rooms if pair[0] >= ranks]
        if not self._others:
            fitting = [min(fitting)] if fitting else []
        for _, index in sorted(fitting):
            found: Spread = []
            spread(domains[index], ranks, self._room, found)
            chosen: Chosen | None = spread_needs(self._needs, found)
            if self._others:
                assert chosen is not None
                chosen = self._with_company(chosen, domains[index])
            if chosen is not None:
                return chosen
        return None

    def _with_company(self, chosen: Chosen, domain: Domain) -> Chosen | None:
        spaces = spaces_of(self._free, self._gang, self._within(domain.nodes))
        return beside(spaces, chosen, self._lead, self._others)

    def _within(self, ordinals: Iterable[int]) -> list[int]:
        return [o for o in ordinals if self._allowed is None or o in self._allowed]

    def _choose_mixed(self, domains: Iterable[Domain]) -> Chosen | None:
        """Ranks of different sizes: the tightest domain in which they find room, and further down."""
        free, found = self._free, None
        for index, domain in enumerate(domains):
            ordinals = self._within(domain.nodes)
            total = sum(free.masks[o].bit_count() for o in ordinals if free.open[o])
            if total >= self._gang.gpus and (found is None or (total, index) < found[:2]):
                chosen = self._pick(ordinals)
                if chosen is not None:
                    found = (total, index, domain, chosen)
        if found is None:
            return None
        inner = self._choose_mixed(found[2].children)
        return inner or found[3]

    def _pick(self, ordinals: Sequence[int]) -> Chosen | None:
        """Some way to give every rank one of these nodes."""
        if self._asks:
            return pack(spaces_of(self._free, self._gang, ordinals), self._gang.kin)
        pool = Pool(self._free, ordinals)
        return choose(pool, self._needs) or choose_any(pool, self._needs)


def _is_empty(world: World, free: FreeDevices, domain: Domain) -> bool:
    """Whether nobody has anything there, and nothing was given away there in this pass."""
    for ordinal in domain.nodes:
        node = world.nodes[world.node_names[ordinal]]
        if free.masks[ordinal] != node.devices or free.shared.get(ordinal):
            return False
        if world.tenants[node.name] and not free.open[ordinal]:
            return False
    return True
