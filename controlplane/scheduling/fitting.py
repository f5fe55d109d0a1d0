"""Where a gang with wishes fits: selectors, taints, flavours, topology, named devices, parts of devices.

`fit` looks at free devices and changes nothing. What has no wishes takes the short way through
`placement.choose`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from controlplane.asks import tolerates
from controlplane.devices import WHOLE, FreeDevices
from controlplane.image import Node
from controlplane.model import Cause, Placement, Slot
from controlplane.node_affinity import suits
from controlplane.requests import NO_AMOUNTS, Amounts
from controlplane.scheduling.asking import counts, pack, spaces_of
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.near import choose_near
from controlplane.scheduling.packing_search import choose_any
from controlplane.scheduling.parts import take_part, take_pinned
from controlplane.scheduling.placement import (
    Chosen,
    Pool,
    choose,
    choose_apart,
    choose_emptiest,
    slots,
)
from controlplane.world import World

PACKINGS = {"pack": choose, "spread": choose_apart, "pack_emptiest": choose_emptiest}


class Fit(NamedTuple):
    """Where every rank goes, and the part of its device that it gets (0 for whole devices).

    `amounts` is what each of them requests beside devices, if any does.
    """

    placement: Placement
    shares: tuple[int, ...] = ()
    flavor: str = ""
    amounts: tuple[Amounts, ...] = ()


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
    says_where = bool(asks.selector or gang.pods_selector or gang.pods_affinity or flavor)
    if not says_where and not _has_taints(world):
        return None
    selectors = sorted(asks.selector.items()), sorted(gang.pods_selector.items())
    asked = (*selectors, gang.pods_affinity)
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
    if not gang.pods_selector.items() <= info.labels.items():
        return False
    if gang.pods_affinity and not suits(gang.pods_affinity, info):
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
        where = slots(free, chosen, gang.size, world.node_names.__getitem__)
        return Fit(where, amounts=gang.amounts)
    return _fit_parts(world, free.copy(), gang, allowed)


def _choose(
    world: World, free: FreeDevices, gang: Gang, allowed: frozenset[int] | None
) -> Chosen | None:
    if not has_room(free, gang):
        return None
    if gang.topology is not None:
        return choose_near(world, free, gang, gang.topology, allowed)
    packing = gang.asks.packing or world.policy.packing
    if counts(free, gang):
        nodes = range(len(free.masks)) if allowed is None else sorted(allowed)
        return pack(spaces_of(free, gang, nodes), gang.kin, packing)
    listed = free if allowed is None else Pool(free, sorted(allowed))
    chosen = PACKINGS.get(packing, choose)(listed, gang.needs)
    return choose_any(listed, gang.needs) if chosen is None and gang.mixed else chosen


# ---------------------------------------------------------------- named devices and parts of them


def _fit_parts(
    world: World, free: FreeDevices, gang: Gang, allowed: frozenset[int] | None
) -> Fit | None:
    """On a copy of what is free, which is used up."""
    found: dict[int, tuple[Slot, int]] = {}
    for rank, role in gang.pins:
        pinned = take_pinned(world, free, role, _asked(gang, rank), allowed)
        if pinned is None:
            return None
        found[rank] = pinned
    for rank, role in gang.parts:
        part = take_part(world, free, role, _asked(gang, rank), allowed)
        if part is None:
            return None
        found[rank] = part
    chosen: Chosen | None = []
    if gang.needs or (gang.kin and counts(free, gang)):
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
    return Fit(
        tuple(s for s in placement if s is not None),
        tuple(shares) if any(shares) else (),
        amounts=gang.amounts,
    )


def _asked(gang: Gang, rank: int) -> Amounts:
    return gang.amounts[rank] if gang.amounts else NO_AMOUNTS
