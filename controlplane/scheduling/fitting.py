"""Where a gang with wishes fits: selectors, taints, flavours, topology, named devices, parts of devices.

`fit` looks at free devices and changes nothing. What has no wishes takes the short way through
`placement.choose`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from controlplane.asks import tolerates
from controlplane.devices import WHOLE, FreeDevices, lowest, mask_of
from controlplane.model import Cause, Placement, Role, Slot, TopologyAsk
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.packing_search import choose_any
from controlplane.scheduling.placement import (
    Chosen,
    Pool,
    choose,
    choose_apart,
    choose_emptiest,
    slots,
    spread_needs,
)
from controlplane.scheduling.topology import (
    Domain,
    Room,
    Spread,
    domains_for,
    spread,
    topology_of,
)
from controlplane.state import Node
from controlplane.world import World

PACKINGS = {"pack": choose, "spread": choose_apart, "pack_emptiest": choose_emptiest}


class Fit(NamedTuple):
    """Where every rank goes, and the part of its device that it gets (0 for whole devices)."""

    placement: Placement
    shares: tuple[int, ...] = ()
    flavor: str = ""


def fit(world: World, free: FreeDevices, gang: Gang, flavor: str = "") -> Fit | None:
    if shy := shunned(world, gang):
        for allowed in allowed_nodes(world, gang, flavor):
            found = _fit_within(
                world, free, gang, (_all(world) if allowed is None else allowed) - shy
            )
            if found is not None:
                return found._replace(flavor=flavor)
    if gang.plain and not flavor and not is_choosy(world):
        chosen = choose(free, gang.needs) if has_room(free, gang) else None
        if chosen is None and gang.mixed:
            chosen = choose_any(free, gang.needs)
        if chosen is None:
            return None
        return Fit(slots(free, chosen, gang.size, world.node_names.__getitem__))
    for allowed in allowed_nodes(world, gang, flavor):
        found = _fit_within(world, free, gang, allowed)
        if found is not None:
            return found._replace(flavor=flavor)
    return None


def shunned(world: World, gang: Gang) -> frozenset[int]:
    """The nodes that turned the gang down since it last ran; others are tried before them."""
    job = world.jobs.get(gang.id)
    if job is None or not job.restarts or job.restarts[-1].cause is not Cause.REFUSED:
        return frozenset()
    names: set[str] = set()
    for past in reversed(job.restarts):
        if past.cause is not Cause.REFUSED:
            break
        names.add(past.node)
    return frozenset(world.nodes[name].ordinal for name in names if name in world.nodes)


def _all(world: World) -> frozenset[int]:
    return frozenset(node.ordinal for node in world.nodes.values())


def gpus_of(found: Fit) -> float:
    """How many GPUs a place has, parts counted as such."""
    return sum(
        found.shares[i] / WHOLE if found.shares and found.shares[i] else len(slot.devices)
        for i, slot in enumerate(found.placement)
    )


def could_fit(world: World, free: FreeDevices, gang: Gang, flavor: str = "") -> bool:
    """Whether there is a place for the gang; where counting tells, without looking for it."""
    if gang.plain and gang.uniform and not flavor and not is_choosy(world):
        return has_room(free, gang)
    return fit(world, free, gang, flavor) is not None


def has_room(free: FreeDevices, gang: Gang) -> bool:
    """Whether counting alone leaves a chance."""
    if not gang.needs:
        return True
    largest, by_count = gang.largest, free.by_count
    if gang.uniform:
        if free.counts and free.counts[-1] >= gang.gpus:
            return True
        room = sum([len(ordinals) * (n // largest) for n, ordinals in by_count.items()])
        return room >= len(gang.needs)
    return bool(free.counts) and free.counts[-1] >= largest and free.total >= gang.gpus


# ---------------------------------------------------------------- which nodes at all


def is_choosy(world: World) -> bool:
    """Whether some node does not take everybody, or nodes are filled evenly instead of one by one."""
    found = world.about_nodes.get("choosy")
    if found is None:
        tainted = any(node.info.taints for node in world.nodes.values() if not node.removed)
        found = tainted or world.policy.packing != "pack"
        world.about_nodes["choosy"] = found
        world.about_nodes["tainted"] = tainted
    return bool(found)


def allowed_nodes(world: World, gang: Gang, flavor: str) -> Iterator[frozenset[int] | None]:
    """The nodes that the gang may use; for one that may be a guest, first those where it is not."""
    asks = gang.asks
    yield _allowed(world, gang, flavor, as_guest=False)
    if asks.away_priority is not None:
        yield _allowed(world, gang, flavor, as_guest=True)


def _allowed(world: World, gang: Gang, flavor: str, *, as_guest: bool) -> frozenset[int] | None:
    asks = gang.asks
    says_where = bool(asks.selector or gang.pods_selector or flavor)
    if not says_where and not _has_taints(world):
        return None
    asked = (sorted(asks.selector.items()), sorted(gang.pods_selector.items()))
    key = f"allowed {asked} {sorted(asks.tolerates)} {flavor} {as_guest}"
    found = world.about_nodes.get(key)
    if found is None:
        found = world.about_nodes[key] = frozenset(
            node.ordinal
            for node in world.nodes.values()
            if accepts(node, gang, flavor, as_guest=as_guest)
        )
    assert isinstance(found, frozenset)
    return found


def _has_taints(world: World) -> bool:
    return is_choosy(world) and bool(world.about_nodes["tainted"])


def accepts(node: Node, gang: Gang, flavor: str, *, as_guest: bool) -> bool:
    info, asks = node.info, gang.asks
    if flavor and info.flavor != flavor:
        return False
    if any(info.labels.get(key) != value for key, value in asks.selector.items()):
        return False
    # A node without any labels, as models of clusters have them, says nothing that pods ask for.
    if info.labels and not gang.pods_selector.items() <= info.labels.items():
        return False
    return as_guest or all(tolerates(asks.tolerates, taint) for taint in info.taints)


# ---------------------------------------------------------------- within those nodes


def _fit_within(
    world: World, free: FreeDevices, gang: Gang, allowed: frozenset[int] | None
) -> Fit | None:
    if not gang.pins and not gang.parts:
        chosen = _choose(world, free, gang, allowed)
        if chosen is None:
            return None
        return Fit(slots(free, chosen, gang.size, world.node_names.__getitem__))
    return _fit_parts(world, free.copy(), gang, allowed)


def _choose(
    world: World, free: FreeDevices, gang: Gang, allowed: frozenset[int] | None
) -> Chosen | None:
    if not has_room(free, gang):
        return None
    if gang.topology is not None:
        return _choose_near(world, free, gang, gang.topology, allowed)
    packing = gang.asks.packing or world.policy.packing
    listed = free if allowed is None else Pool(free, sorted(allowed))
    chosen = PACKINGS.get(packing, choose)(listed, gang.needs)
    return choose_any(listed, gang.needs) if chosen is None and gang.mixed else chosen


def _choose_near(
    world: World, free: FreeDevices, gang: Gang, ask: TopologyAsk, allowed: frozenset[int] | None
) -> Chosen | None:
    tree = topology_of(world)
    if free.leaf_of is None:
        # The copy was made before the tree; it counts for itself from here on.
        free.watch(world.free.leaf_of, len(world.free.leaves))
    slice_level = tree.level(ask.slice_level) if ask.slice_size else 0
    if slice_level is None:
        return None
    size = ask.slice_size
    room = Room(
        free, max(1, gang.largest), allowed=allowed, slice_level=slice_level, slice_size=size
    )
    ranks = len(gang.needs)
    if size and ranks % size:
        return None
    for domains in domains_for(tree, ask):
        if ask.exclusive:
            domains = [domain for domain in domains if _is_empty(world, free, domain)]
        if gang.uniform:
            fitting = [(room.of(domain), i) for i, domain in enumerate(domains)]
            fitting = [pair for pair in fitting if pair[0] >= ranks]
            if fitting:
                found: Spread = []
                spread(domains[min(fitting)[1]], ranks, room, found)
                return spread_needs(gang.needs, found)
        else:
            chosen = _choose_mixed(free, gang, domains, allowed)
            if chosen is not None:
                return chosen
    return None


def _choose_mixed(
    free: FreeDevices, gang: Gang, domains: Iterable[Domain], allowed: frozenset[int] | None
) -> Chosen | None:
    """Ranks of different sizes: the tightest domain in which they find room, and further down."""
    found: tuple[int, int, Domain, Chosen] | None = None
    for index, domain in enumerate(domains):
        ordinals = [o for o in domain.nodes if allowed is None or o in allowed]
        total = sum(free.masks[o].bit_count() for o in ordinals if free.open[o])
        if total >= gang.gpus and (found is None or (total, index) < found[:2]):
            pool = Pool(free, ordinals)
            chosen = choose(pool, gang.needs) or choose_any(pool, gang.needs)
            if chosen is not None:
                found = (total, index, domain, chosen)
    if found is None:
        return None
    inner = _choose_mixed(free, gang, found[2].children, allowed)
    return inner or found[3]


def _is_empty(world: World, free: FreeDevices, domain: Domain) -> bool:
    """Whether nobody has anything there, and nothing was given away there in this pass."""
    for ordinal in domain.nodes:
        node = world.nodes[world.node_names[ordinal]]
        if free.masks[ordinal] != node.devices or free.shared.get(ordinal):
            return False
        if world.tenants[node.name] and not free.open[ordinal]:
            return False
    return True


# ---------------------------------------------------------------- named devices and parts of them


def _fit_parts(
    world: World, free: FreeDevices, gang: Gang, allowed: frozenset[int] | None
) -> Fit | None:
    """On a copy of what is free, which is used up."""
    found: dict[int, tuple[Slot, int]] = {}
    for rank, role in gang.pins:
        pinned = _pinned(world, free, role, allowed)
        if pinned is None:
            return None
        found[rank] = pinned
    for rank, role in gang.parts:
        part = _part(world, free, role, allowed)
        if part is None:
            return None
        found[rank] = part
    chosen: Chosen | None = []
    if gang.needs:
        chosen = _choose(world, free, gang, allowed)
    if chosen is None:
        return None
    names = world.node_names.__getitem__
    where: list[Slot | None] = [None] * gang.size
    if chosen:
        where = list(slots(free, chosen, gang.size, names))
    shares = [0] * gang.size
    company = None
    for rank, (slot, share) in found.items():
        where[rank], shares[rank] = slot, share
        company = company or Slot(slot.node)
    placement = tuple([company if slot is None else slot for slot in where])
    if any(slot is None for slot in placement):
        return None
    return Fit(tuple(s for s in placement if s is not None), tuple(shares) if any(shares) else ())


def _pinned(
    world: World, free: FreeDevices, role: Role, allowed: frozenset[int] | None
) -> tuple[Slot, int] | None:
    node = world.nodes.get(role.node)
    if node is None or (allowed is not None and node.ordinal not in allowed):
        return None
    ordinal = node.ordinal
    if not free.open[ordinal]:
        return None
    share = _share(node, role)
    if share is not None and share:
        device = role.devices[0] if role.devices else None
        return _take_part(free, node, share, device)
    mask = free.masks[ordinal]
    if role.devices:
        wanted = mask_of(role.devices)
        if mask & wanted != wanted:
            return None
        free.hold(ordinal, wanted)
        return Slot(node.name, role.devices), 0
    if mask.bit_count() < role.gpus:
        return None
    devices = lowest(mask, role.gpus)
    free.hold(ordinal, mask_of(devices))
    return Slot(node.name, devices), 0


def _part(
    world: World, free: FreeDevices, role: Role, allowed: frozenset[int] | None
) -> tuple[Slot, int] | None:
    """A device that others share already and that it fills best, else one of the fullest node."""
    best: tuple[int, int, int, int] | None = None
    for ordinal, taken in free.shared.items():
        if not free.open[ordinal] or (allowed is not None and ordinal not in allowed):
            continue
        share = _share(world.nodes[world.node_names[ordinal]], role)
        for device, used in taken.items():
            if share is not None and used + share <= WHOLE:
                offer = (WHOLE - used - share, ordinal, device, share)
                best = offer if best is None else min(best, offer)
    if best is not None:
        _, ordinal, device, share = best
        free.hold_share(ordinal, device, share)
        return Slot(world.node_names[ordinal], (device,)), share
    for count in free.counts:
        for ordinal in free.by_count[count] if count else ():
            if allowed is not None and ordinal not in allowed:
                continue
            node = world.nodes[world.node_names[ordinal]]
            share = _share(node, role)
            if share is not None:
                return _take_part(free, node, share, None)
    return None


def _take_part(
    free: FreeDevices, node: Node, share: int, device: int | None
) -> tuple[Slot, int] | None:
    """A part of this device of a node, or of any of its devices."""
    taken = free.shared.get(node.ordinal, {})
    if device is None:
        shared = [(WHOLE - used - share, d) for d, used in taken.items() if used + share <= WHOLE]
        if shared:
            device = min(shared)[1]
        elif free.masks[node.ordinal]:
            device = lowest(free.masks[node.ordinal], 1)[0]
        else:
            return None
    elif device in taken:
        if taken[device] + share > WHOLE:
            return None
    elif not free.masks[node.ordinal] >> device & 1:
        return None
    free.hold_share(node.ordinal, device, share)
    return Slot(node.name, (device,)), share


def _share(node: Node, role: Role) -> int | None:
    """Thousandths of one of the node's devices, or None when they are too small or unknown."""
    if role.gpu_share:
        return role.gpu_share
    if not role.gpu_memory_mib:
        return 0
    memory = node.info.gpu_memory_mib
    if memory < role.gpu_memory_mib:
        return None
    return -(-role.gpu_memory_mib * WHOLE // memory)
