"""Victims that leave room in one place, where quota rules limit how many may be evicted.

A quota rule lets a preemptor take from a queue only while that queue uses more than its own quota.
So the candidates in order of preference (lowest priority, last admitted) may be used up before any
node has room: two of four 1-GPU jobs may go, and the two that were admitted last are on different
nodes. The search therefore continues by place, as Kueue's does by flavour and domain and KAI's by
node:

1. the list in order of preference (`Search.fewest`), which nearly always suffices;
2. bundles: the victims that make room for one more rank on one node. Bundles are taken in order of
   their least preferred victim, each only if the quota rule admits all of it in addition to those
   taken before; once over all nodes, then domain by domain (those of the required topology level;
   single nodes for a gang that one node can hold);
3. for a domain with few candidates every subset of them, smallest first.

Step 2 tries at most TRIES_MAX bundles over all domains, and step 3 starts to count anew and tries at
most TRIES_MAX subsets, so that a pass ends: a set that exists may be missed. The order is a function
of the state alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import fit
from controlplane.scheduling.preemption.victim_search import (
    Eviction,
    Search,
    Victim,
    devices_by_node,
    no_doubles,
)
from controlplane.scheduling.snapshot import Snapshot

# The limit of step 2 and, counted anew, of step 3, for one gang in one search.
TRIES_MAX = 256
# With at most this many candidates in a domain every subset is tried.
SUBSETS_OF_MAX = 8

# Returns those of a sequence of victims that the quota rule admits one after the other, in some
# order.
Admissible = Callable[[Sequence[Victim]], list[Victim]]
Nodes = frozenset[int]


class Bundle(NamedTuple):
    """Victims on one node that make room for one more rank there."""

    # The index in the pool of its least preferred victim.
    last: int
    node: int
    # Indices in the pool, in the order of eviction.
    victims: tuple[int, ...]


def fewest_victims(
    search: Search, pool: Sequence[Victim], admissible: Admissible, *, by_domain: bool
) -> Eviction | None:
    """A set of victims that lets the preemptor start and that the rule admits, or None.

    `pool` has every candidate, the most preferred victim first. Without `by_domain` only step 1 is
    made.
    """
    eviction = search.fewest(admissible(pool))
    if eviction is not None or not by_domain or len(pool) < 2 or not _is_room_without(search, pool):
        return eviction
    return _ByDomain(search, pool, admissible).find()


def _is_room_without(search: Search, pool: Sequence[Victim]) -> bool:
    """Whether the gang would fit without the whole pool: otherwise no part of it suffices."""
    free = search.without(no_doubles(pool))
    return fit(search.snapshot.cluster, free, search.gang, search.flavor) is not None


class _ByDomain:
    """Steps 2 and 3. Victims are represented by their index in the pool."""

    def __init__(self, search: Search, pool: Sequence[Victim], admissible: Admissible) -> None:
        self._search = search
        self._admissible = admissible
        # A queue gives nothing if the rule does not admit even its most preferred victim alone.
        gives: dict[str, bool] = {}
        for victim in pool:
            if victim.queue not in gives:
                gives[victim.queue] = bool(admissible([victim]))
        self._pool = [victim for victim in pool if gives[victim.queue]]
        self._devices = [devices_by_node(search.snapshot, victim) for victim in self._pool]
        # Job -> the ranks that it may give, and their indices in the pool.
        self._ranks: dict[str, list[tuple[int, int]]] = {}
        for index, victim in enumerate(self._pool):
            if victim.ranks:
                self._ranks.setdefault(victim.job.id, []).append((victim.ranks[0], index))
        self._tries = 0

    def find(self) -> Eviction | None:
        domains: list[Nodes | None] = [None, *_domains(self._search.snapshot, self._search.gang)]
        return self._by_bundles(domains) or self._by_subsets(domains)

    def _may_try(self) -> bool:
        self._tries += 1
        return self._tries <= TRIES_MAX

    def _victims(self, indexes: Iterable[int]) -> list[Victim]:
        return [self._pool[index] for index in indexes]

    # -- bundles -------------------------------------------------------------------------------

    def _by_bundles(self, domains: Sequence[Nodes | None]) -> Eviction | None:
        bundles, inside = self._bundles(), list[list[Bundle]]()
        for domain in domains:
            within = [b for b in bundles if domain is None or b.node in domain]
            if within:
                inside.append(within)
        # Domains where the most preferred victims make room come first.
        for within in sorted(inside, key=lambda within: within[0].last):
            eviction = self._with_bundles(within)
            if eviction is not None or self._tries >= TRIES_MAX:
                return eviction
        return None

    def _bundles(self) -> list[Bundle]:
        """The bundles of all nodes, in order of preference; each makes room for one more rank."""
        need = max(1, self._search.gang.largest)
        free = self._search.snapshot.future_free
        on_node: dict[int, list[int]] = {}
        for index, devices in enumerate(self._devices):
            for node in devices:
                on_node.setdefault(node, []).append(index)
        bundles: list[Bundle] = []
        for node, indexes in on_node.items():
            if free.open[node]:
                bundles += self._on_node(node, indexes, free.masks[node].bit_count(), need)
        return sorted(bundles)

    def _on_node(self, node: int, indexes: Iterable[int], have: int, need: int) -> Iterator[Bundle]:
        pending: list[int] = []
        given: dict[str, int] = {}
        for index in indexes:
            victim, devices = self._pool[index], self._devices[index][node]
            # Some ranks of a whole gang may have been counted already.
            have, before = have + devices - given.get(victim.job.id, 0), have
            given[victim.job.id] = given.get(victim.job.id, 0) + devices
            pending.append(index)
            if have // need > before // need:
                yield Bundle(index, node, tuple(self._with_later_ranks(pending)))
                pending = []

    def _with_later_ranks(self, indexes: Iterable[int]) -> Iterable[int]:
        """The victims with the higher ranks of their elastic gangs, which must be given first."""
        indexes_with_ranks: dict[int, None] = {}
        for index in indexes:
            victim = self._pool[index]
            if victim.ranks:
                for rank, other in sorted(self._ranks[victim.job.id], reverse=True):
                    if rank > victim.ranks[0]:
                        indexes_with_ranks[other] = None
            indexes_with_ranks[index] = None
        return indexes_with_ranks

    def _with_bundles(self, bundles: Sequence[Bundle]) -> Eviction | None:
        """Try bundles that the rule admits together; then those with the rest of the pool.

        Other victims may have to go as well, for their quota.
        """
        wanted = max(1, len(self._search.gang.needs))
        taken: dict[int, None] = {}
        rooms = 0
        for bundle in bundles:
            if rooms >= wanted or not self._may_try():
                break
            more = taken | dict.fromkeys(bundle.victims)
            if self._admits_all(self._victims(more)):
                taken, rooms = more, rooms + 1
        if not taken:
            return None
        rest = [index for index in range(len(self._pool)) if index not in taken]
        for order in (list(taken), [*taken, *rest]):
            eviction = self._search.fewest(self._admissible(self._victims(order)))
            if eviction is not None:
                return eviction
        return None

    def _admits_all(self, victims: Sequence[Victim]) -> bool:
        return len(self._admissible(victims)) == len(victims)

    # -- every subset --------------------------------------------------------------------------

    def _by_subsets(self, domains: Sequence[Nodes | None]) -> Eviction | None:
        self._tries = 0
        for domain in domains:
            inside = [
                victim
                for victim, devices in zip(self._pool, self._devices, strict=True)
                if domain is None or not domain.isdisjoint(devices)
            ]
            if len(inside) > SUBSETS_OF_MAX:
                continue
            eviction = self._of_subsets(inside)
            if eviction is not None or self._tries >= TRIES_MAX:
                return eviction
        return None

    def _of_subsets(self, victims: Sequence[Victim]) -> Eviction | None:
        for size in range(1, len(victims) + 1):
            for chosen in combinations(victims, size):
                if not self._may_try():
                    return None
                # A large victim may bring its queue below its own quota, so it is admitted last.
                for order in (chosen, sorted(chosen, key=lambda victim: victim.milli)):
                    if self._admits_all(order):
                        eviction = self._search.fewest(self._admissible(order))
                        if eviction is not None:
                            return eviction
                        break
        return None


def _domains(snapshot: Snapshot, gang: Gang) -> list[Nodes]:
    """Sets of nodes of which the gang needs one.

    These are the domains of its required level, or else each node that could hold the whole gang.
    """
    tree = snapshot.cluster.node_facts.topology
    asked = gang.topology.required if gang.topology is not None else ""
    level = tree.level(asked) if asked else None
    if level is not None:
        return [frozenset(domain.nodes) for domain in tree.root.at(level)]
    nodes = [node for node in snapshot.cluster.nodes.values() if not node.removed]
    return [frozenset((node.ordinal,)) for node in nodes if node.info.gpus >= gang.gpus]
