"""Where a gang fits: the one entry to placement.

A gang without constraints is packed by `packing.choose`. Otherwise the nodes that it may use are selected first
(selector, affinity, taints, flavour); then ranks that name their node or need a share of a device get theirs
(`fractional_devices.py`), and the others are placed by topology (`topology_placement.py`), by several resources
(`vector_packing.py`) or by GPUs alone (`packing.py`). `fit` changes nothing: the caller allocates the result.
"""

from collections.abc import Iterator
from typing import NamedTuple

from controlplane.model.cluster import Placement, Slot
from controlplane.model.constraints import tolerates
from controlplane.model.failures import Cause
from controlplane.model.node_affinity import suits
from controlplane.model.resources import NO_AMOUNTS, Amounts
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.exact_packing import choose_any
from controlplane.scheduling.placement.fractional_devices import allocate_fraction, allocate_pinned
from controlplane.scheduling.placement.packing import (
    Chosen,
    Pool,
    choose,
    choose_apart,
    choose_emptiest,
    slots,
)
from controlplane.scheduling.placement.topology_placement import place_in_topology
from controlplane.scheduling.placement.vector_packing import is_constrained, pack, spaces_of
from controlplane.state.devices import WHOLE, FreeDevices, FreeDevicesView
from controlplane.state.image import Node

PACKINGS = {"pack": choose, "spread": choose_apart, "pack_emptiest": choose_emptiest}


class Fit(NamedTuple):
    """A place for a whole gang: each rank's slot, and the share of its device that it gets (0 for whole devices).

    `amounts` is what each rank requests in addition to devices; empty if no rank does.
    """

    placement: Placement
    shares: tuple[int, ...] = ()
    flavor: str = ""
    amounts: tuple[Amounts, ...] = ()


def fit(cluster: ClusterView, free: FreeDevicesView, gang: Gang, flavor: str = "") -> Fit | None:
    if avoided := avoided_nodes(cluster, gang):
        for allowed in allowed_nodes(cluster, gang, flavor):
            place = _fit_within(
                cluster, free, gang, (_all(cluster) if allowed is None else allowed) - avoided
            )
            if place is not None:
                return place._replace(flavor=flavor)
    if gang.plain and not flavor and cluster.node_facts.is_uniform:
        chosen = choose(free, gang.needs) if has_room(free, gang) else None
        if chosen is None and gang.mixed:
            chosen = choose_any(free, gang.needs)
        if chosen is None:
            return None
        return Fit(slots(free, chosen, gang.size, cluster.node_names.__getitem__))
    for allowed in allowed_nodes(cluster, gang, flavor):
        place = _fit_within(cluster, free, gang, allowed)
        if place is not None:
            return place._replace(flavor=flavor)
    return None


def avoided_nodes(cluster: ClusterView, gang: Gang) -> frozenset[int]:
    """The nodes that refused the gang since it last ran; other nodes are tried before them."""
    job = cluster.jobs.get(gang.id)
    if job is None or not job.restarts or job.restarts[-1].cause is not Cause.REFUSED:
        return frozenset()
    names: set[str] = set()
    for past in reversed(job.restarts):
        if past.cause is not Cause.REFUSED:
            break
        names.add(past.node)
    return frozenset(cluster.nodes[name].ordinal for name in names if name in cluster.nodes)


def _all(cluster: ClusterView) -> frozenset[int]:
    return frozenset(node.ordinal for node in cluster.nodes.values())


def gpus_of(place: Fit) -> float:
    """How many GPUs a place has, shares as fractions."""
    return sum(
        place.shares[i] / WHOLE if place.shares and place.shares[i] else len(slot.devices)
        for i, slot in enumerate(place.placement)
    )


def feasible(cluster: ClusterView, free: FreeDevicesView, gang: Gang, flavor: str = "") -> bool:
    """Whether there is a place for the gang; without a search where counting decides."""
    if gang.plain and gang.uniform and not flavor and cluster.node_facts.is_uniform:
        return has_room(free, gang)
    return fit(cluster, free, gang, flavor) is not None


def has_room(free: FreeDevicesView, gang: Gang) -> bool:
    """A necessary condition by counting: enough free GPUs on nodes that are large enough."""
    if not gang.needs:
        return True
    largest, by_count = gang.largest, free.by_count
    if gang.uniform:
        if free.counts and free.counts[-1] >= gang.gpus:
            return True
        room = sum(len(ordinals) * (n // largest) for n, ordinals in by_count.items())
        return room >= len(gang.needs)
    return bool(free.counts) and free.counts[-1] >= largest and free.total >= gang.gpus


# ---------------------------------------------------------------- nodes that a gang may use


def allowed_nodes(cluster: ClusterView, gang: Gang, flavor: str) -> Iterator[frozenset[int] | None]:
    """The nodes that the gang may use, or None for all; a second set if it may also run away from home."""
    asks = gang.asks
    yield _allowed(cluster, gang, flavor, as_guest=False)
    if asks.away_priority is not None:
        yield _allowed(cluster, gang, flavor, as_guest=True)


def _allowed(
    cluster: ClusterView, gang: Gang, flavor: str, *, as_guest: bool
) -> frozenset[int] | None:
    asks = gang.asks
    says_where = bool(asks.selector or gang.pods_selector or gang.pods_affinity or flavor)
    if not says_where and not cluster.node_facts.has_taints:
        return None
    key = (
        tuple(sorted(asks.selector.items())),
        tuple(sorted(gang.pods_selector.items())),
        gang.pods_affinity,
        tuple(sorted(asks.tolerates)),
        flavor,
        as_guest,
    )
    known = cluster.node_facts.allowed
    if key not in known:
        known[key] = frozenset(
            node.ordinal
            for node in cluster.nodes.values()
            if accepts(node, gang, flavor, as_guest=as_guest)
        )
    return known[key]


def accepts(node: Node, gang: Gang, flavor: str, *, as_guest: bool) -> bool:
    info, asks = node.info, gang.asks
    if flavor and info.flavor != flavor:
        return False
    if any(info.labels.get(key) != value for key, value in asks.selector.items()):
        return False
    if not gang.pods_selector.items() <= info.labels.items():
        return False
    if gang.pods_affinity and not suits(gang.pods_affinity, info):
        return False
    return as_guest or all(tolerates(asks.tolerates, taint) for taint in info.taints)


# ---------------------------------------------------------------- within those nodes


def _fit_within(
    cluster: ClusterView, free: FreeDevicesView, gang: Gang, allowed: frozenset[int] | None
) -> Fit | None:
    if not gang.pins and not gang.parts:
        chosen = _choose(cluster, free, gang, allowed)
        if chosen is None:
            return None
        where = slots(free, chosen, gang.size, cluster.node_names.__getitem__)
        return Fit(where, amounts=gang.amounts)
    return _fit_parts(cluster, free.copy(), gang, allowed)


def _choose(
    cluster: ClusterView, free: FreeDevicesView, gang: Gang, allowed: frozenset[int] | None
) -> Chosen | None:
    if not has_room(free, gang):
        return None
    if gang.topology is not None:
        return place_in_topology(cluster, free, gang, gang.topology, allowed)
    packing = gang.asks.packing or cluster.policy.packing
    if is_constrained(free, gang):
        nodes = range(len(free.masks)) if allowed is None else sorted(allowed)
        return pack(spaces_of(free, gang, nodes), gang.rank_classes, packing)
    listed = free if allowed is None else Pool(free, sorted(allowed))
    chosen = PACKINGS.get(packing, choose)(listed, gang.needs)
    return choose_any(listed, gang.needs) if chosen is None and gang.mixed else chosen


# ---------------------------------------------------------------- named devices and shares


def _fit_parts(
    cluster: ClusterView, free: FreeDevices, gang: Gang, allowed: frozenset[int] | None
) -> Fit | None:
    """`free` is a copy, in which the named devices and shares are allocated."""
    parts: dict[int, tuple[Slot, int]] = {}
    for rank, role in gang.pins:
        pinned = allocate_pinned(cluster, free, role, _asked(gang, rank), allowed)
        if pinned is None:
            return None
        parts[rank] = pinned
    for rank, role in gang.parts:
        part = allocate_fraction(cluster, free, role, _asked(gang, rank), allowed)
        if part is None:
            return None
        parts[rank] = part
    chosen: Chosen | None = []
    if gang.needs or (gang.rank_classes and is_constrained(free, gang)):
        chosen = _choose(cluster, free, gang, allowed)
    if chosen is None:
        return None
    names = cluster.node_names.__getitem__
    where: list[Slot | None] = [None] * gang.size
    if chosen:
        where = list(slots(free, chosen, gang.size, names))
    shares = [0] * gang.size
    company = None
    for rank, (slot, share) in parts.items():
        where[rank], shares[rank] = slot, share
        company = company or Slot(slot.node)
    placement = tuple(company if slot is None else slot for slot in where)
    if any(slot is None for slot in placement):
        return None
    return Fit(
        tuple(s for s in placement if s is not None),
        tuple(shares) if any(shares) else (),
        amounts=gang.amounts,
    )


def _asked(gang: Gang, rank: int) -> Amounts:
    return gang.amounts[rank] if gang.amounts else NO_AMOUNTS
