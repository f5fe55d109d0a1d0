"""What a gang lacks besides GPUs, in numbers: now, and on an empty cluster."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.model.reasons import (
    NeverFits,
    NodeAmount,
    RanksTooMany,
    RankTooLarge,
    ResourceShort,
    ResourcesScattered,
)
from controlplane.model.resources import Amounts, requests_of
from controlplane.model.spec import JobSpec, Role
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import fit
from controlplane.scheduling.placement.vector_packing import is_constrained
from controlplane.state.device_index import NodeShape
from controlplane.state.devices import FreeDevicesView
from controlplane.state.image import Node

# At most this many nodes are listed: those with the most left.
NODES_LISTED_MAX = 8


class Shortage(NamedTuple):
    """What is short; of `ranks` that need it, the free nodes have enough for `room`."""

    facts: ResourceShort | ResourcesScattered
    ranks: int
    room: int

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are short: one, or several of which none is short alone."""
        if isinstance(self.facts, ResourceShort):
            return (self.facts.resource,)
        return self.facts.resources


def shortage(
    cluster: ClusterView, free: FreeDevicesView, gang: Gang, flavor: str, nodes: Iterable[Node]
) -> Shortage | None:
    """What the gang lacks on these nodes now besides GPUs, or None.

    It is None too where GPUs are short, or where no resource besides GPUs is limited.
    """
    if not is_constrained(free, gang) or not _fits_with(cluster, free, gang, flavor, {}):
        return None
    there = [node for node in nodes if free.open[node.ordinal]]
    for name in gang.resources:
        alone = {o: {name: offers[name]} for o, offers in free.offers.items() if name in offers}
        if not _fits_with(cluster, free, gang, flavor, alone):
            return _of_one(free, gang, name, there)
    return Shortage(ResourcesScattered(tuple(gang.resources)), gang.size, 0)


def _fits_with(
    cluster: ClusterView,
    free: FreeDevicesView,
    gang: Gang,
    flavor: str,
    offers: dict[int, dict[str, int]],
) -> bool:
    """Whether the gang would fit if only `offers` limited it besides GPUs."""
    view = free.copy()
    view.offers = offers
    return fit(cluster, view, gang, flavor) is not None


def _of_one(free: FreeDevicesView, gang: Gang, name: str, nodes: Iterable[Node]) -> Shortage:
    asked = [amounts[name] for amounts in gang.amounts if name in amounts]
    least, ranks = min(asked), len(asked)
    left = [(free.left(node.ordinal, name), node) for node in nodes]
    limited = [(max(0, n), node) for n, node in left if n is not None]
    limited.sort(key=lambda pair: (-pair[0], pair[1].ordinal))
    listed = tuple(
        NodeAmount(node.name, n, node.info.resources[name])
        for n, node in limited[:NODES_LISTED_MAX]
    )
    room = min(ranks, sum(n // least for n, _ in limited))
    facts = ResourceShort(name, least, max(asked), listed, other_nodes=len(limited) > 1)
    return Shortage(facts, ranks, room)


# ---------------------------------------------------------------- on an empty cluster

# The number of nodes with these GPUs and other resources.
Sorts = Mapping[NodeShape, int]


def why_never_enough(spec: JobSpec, sorts: Sorts) -> NeverFits | None:
    """Why the gang can never get its requests on an empty cluster, or None if it may.

    The test is only a necessary condition: each role by itself must find room on the existing
    nodes.
    """
    requests = requests_of(spec)
    if not requests:
        return None
    for role, amounts in zip(spec.roles, requests, strict=True):
        if not amounts or not role.replicas:
            continue
        room = sum(n * _times(role, amounts, *sort) for sort, n in sorts.items())
        if room < role.replicas:
            return _too_much(role, amounts, sorts, room)
    return None


def _times(role: Role, amounts: Amounts, gpus: int, has: tuple[tuple[str, int], ...]) -> int:
    """The number of ranks of a role that an empty node of this shape holds."""
    rooms = [most // amounts[name] for name, most in has if name in amounts]
    if role.gpus:
        rooms.append(gpus // role.gpus)
    return min([role.replicas, *rooms])


def _too_much(role: Role, amounts: Amounts, sorts: Sorts, room: int) -> NeverFits:
    for name, amount in amounts.items():
        most = [dict(has).get(name) for _, has in sorts]
        largest = max((n for n in most if n is not None), default=0)
        if None not in most and amount > largest:
            return RankTooLarge(amount, largest, name, role.name)
    return RanksTooMany(role.replicas, room, role.gpus, role.name, tuple(amounts.items()))
