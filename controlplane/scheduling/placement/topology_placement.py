"""Topology-aware placement: the whole gang in the domain that it fills best, and there over few subdomains.

Equal ranks are spread by counting (`topology.spread`). Ranks of different sizes are packed into the tightest domain that
holds them, and within it again. Of a gang that requests several resources, the rank classes with GPUs are spread and the
others are added on the same nodes or near them.
"""

from collections.abc import Iterable, Sequence

from controlplane.model.spec import TopologyAsk
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.gang import Gang, Needs, RankClass
from controlplane.scheduling.placement.exact_packing import choose_any
from controlplane.scheduling.placement.packing import Chosen, Pool, choose, spread_needs
from controlplane.scheduling.placement.topology import (
    Domain,
    Room,
    Spread,
    Topology,
    domains_for,
    spread,
)
from controlplane.scheduling.placement.vector_packing import (
    add_companions,
    gpu_equivalent_view,
    is_constrained,
    pack,
    spaces_of,
)
from controlplane.state.devices import FreeDevicesView


def place_in_topology(
    cluster: ClusterView,
    free: FreeDevicesView,
    gang: Gang,
    ask: TopologyAsk,
    allowed: frozenset[int] | None,
) -> Chosen | None:
    tree = cluster.node_facts.topology
    slice_level = tree.level(ask.slice_level) if ask.slice_size else 0
    if slice_level is None:
        return None
    return _TopologyPlacement(cluster, free, gang, ask, allowed, tree, slice_level).choose()


class _TopologyPlacement:
    def __init__(
        self,
        cluster: ClusterView,
        free: FreeDevicesView,
        gang: Gang,
        ask: TopologyAsk,
        allowed: frozenset[int] | None,
        tree: Topology,
        slice_level: int,
    ) -> None:
        self._cluster = cluster
        self._free = free
        self._gang = gang
        self._ask = ask
        self._allowed = allowed
        self._tree = tree
        self._asks = is_constrained(free, gang)
        # The leading rank classes are spread, and the others are added to them.
        self._needs: Needs = gang.needs
        self._lead, self._others = self._leaders() if self._asks else ([], [])
        if self._asks:
            self._needs = [(each.need[0], rank) for each in self._lead for rank in each.ranks]
        view = gpu_equivalent_view(free, gang, self._lead[0]) if len(self._lead) == 1 else free
        self._room = Room(
            view,
            max(1, self._needs[0][0] if self._needs else 0),
            allowed=allowed,
            slice_level=slice_level,
            slice_size=ask.slice_size,
        )

    def _leaders(self) -> tuple[list[RankClass], list[RankClass]]:
        """The rank classes with GPUs, or all if none has; and the others."""
        kin = self._gang.rank_classes
        lead = [each for each in kin if each.need[0]] or kin
        return lead, [each for each in kin if each not in lead]

    def choose(self) -> Chosen | None:
        ranks, size = len(self._needs), self._ask.slice_size
        if size and ranks % size:
            return None
        is_uniform = len(self._lead) == 1 if self._asks else self._gang.uniform
        for domains in domains_for(self._tree, self._ask):
            if self._ask.exclusive:
                domains = [d for d in domains if _is_empty(self._cluster, self._free, d)]
            chosen = self._spread(domains, ranks) if is_uniform else self._choose_mixed(domains)
            if chosen is not None:
                return chosen
        return None

    def _spread(self, domains: Sequence[Domain], ranks: int) -> Chosen | None:
        """Equal ranks over few parts of the domain that they fill best."""
        rooms = [(self._room.of(domain), i) for i, domain in enumerate(domains)]
        fitting = [pair for pair in rooms if pair[0] >= ranks]
        if not self._others:
            fitting = [min(fitting)] if fitting else []
        for _, index in sorted(fitting):
            parts: Spread = []
            spread(domains[index], ranks, self._room, parts)
            chosen: Chosen | None = spread_needs(self._needs, parts)
            if self._others:
                assert chosen is not None
                chosen = self._with_company(chosen, domains[index])
            if chosen is not None:
                return chosen
        return None

    def _with_company(self, chosen: Chosen, domain: Domain) -> Chosen | None:
        spaces = spaces_of(self._free, self._gang, self._within(domain.nodes))
        return add_companions(spaces, chosen, self._lead, self._others)

    def _within(self, ordinals: Iterable[int]) -> list[int]:
        return [o for o in ordinals if self._allowed is None or o in self._allowed]

    def _choose_mixed(self, domains: Iterable[Domain]) -> Chosen | None:
        """Ranks of different sizes in the tightest domain that holds them, and again within that."""
        free, best = self._free, None
        for index, domain in enumerate(domains):
            ordinals = self._within(domain.nodes)
            total = sum(free.masks[o].bit_count() for o in ordinals if free.open[o])
            if total >= self._gang.gpus and (best is None or (total, index) < best[:2]):
                chosen = self._pick(ordinals)
                if chosen is not None:
                    best = (total, index, domain, chosen)
        if best is None:
            return None
        inner = self._choose_mixed(best[2].children)
        return inner or best[3]

    def _pick(self, ordinals: Sequence[int]) -> Chosen | None:
        """A node among these for every rank, or None."""
        if self._asks:
            return pack(spaces_of(self._free, self._gang, ordinals), self._gang.rank_classes)
        pool = Pool(self._free, ordinals)
        return choose(pool, self._needs) or choose_any(pool, self._needs)


def _is_empty(cluster: ClusterView, free: FreeDevicesView, domain: Domain) -> bool:
    """Whether no rank holds anything in the domain, those of this pass included."""
    for ordinal in domain.nodes:
        node = cluster.nodes[cluster.node_names[ordinal]]
        if free.masks[ordinal] != node.devices or free.shared.get(ordinal):
            return False
        if cluster.jobs_by_node[node.name] and not free.open[ordinal]:
            return False
    return True
