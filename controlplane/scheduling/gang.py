"""A job as the scheduler sees it: what its gang needs of the cluster and of its quotas."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controlplane.lifecycle.job import Job
from controlplane.model.constraints import asks_of, pods_selector
from controlplane.model.node_affinity import affinity_of
from controlplane.model.resources import (
    Amounts,
    by_rank,
    has_plain_pods,
    requests_of,
    role_requests,
    supplies_of,
)
from controlplane.model.spec import PLAIN_SCHEDULING, JobSpec, Role, TopologyAsk
from controlplane.state.devices import WHOLE
from controlplane.state.queue_order import Shape, about_places, shape_of

# How many GPUs each rank needs, largest first, with the rank's number.
Needs = list[tuple[int, int]]

# Amounts: GPUs first, then each resource that a gang requests, in the order of `Gang.resources`.
Vector = tuple[int, ...]

_NO_TOPOLOGY = TopologyAsk()


class RankClass(NamedTuple):
    """The ranks of a gang that need the same of a node."""

    need: Vector
    ranks: Sequence[int]


class Gang:
    """One gang's needs, worked out once for each spec. `milli` is its quota in thousandths of a GPU."""

    __slots__ = (
        "_shape", "amounts", "asks", "by_request", "elastic", "gpus", "id", "largest", "memories_mib", "milli", "needs", "parts", "pins",
        "plain", "pods_affinity", "pods_selector", "preemptible", "priority", "queue", "rank_classes", "resources", "size", "spec", "topology", "uniform",
    )  # fmt: skip

    def amount(self, resource: str, ranks: Iterable[int] | None = None) -> int:
        """What its pods, or those of some ranks, request of a resource other than GPUs, in thousandths."""
        spec = self.spec
        if ranks is None:
            return sum(role.replicas * _requested(spec, role, resource) for role in spec.roles)
        size = spec.size
        return sum(_requested(spec, spec.role_of(i)[0], resource) for i in ranks if i < size)

    @property
    def mixed(self) -> bool:
        """Whether its ranks need different numbers of GPUs."""
        return bool(self.needs) and not self.uniform

    def __init__(
        self, job: Job, memories_mib: tuple[int, ...] = (), *, by_request: bool = False
    ) -> None:
        """`memories_mib` are the sizes of memory that the cluster's devices have, smallest first."""
        spec = job.spec
        self.id = job.id
        self.spec = spec
        self.queue = spec.queue
        self.priority = spec.priority
        pods_say_nothing = has_plain_pods(spec)
        self.asks = asks = spec.scheduling if pods_say_nothing else asks_of(spec)
        self.pods_selector = {} if pods_say_nothing else pods_selector(spec)
        self.pods_affinity = () if pods_say_nothing else affinity_of(spec)
        self.preemptible = asks.preemptible
        self.by_request = by_request
        self._shape: Shape | None = None
        self.elastic = elastic_role(spec)
        # Ranks that need a share of a device, and ranks that name their node.
        self.parts: list[tuple[int, Role]] = []
        self.pins: list[tuple[int, Role]] = []
        self.needs: Needs = []
        rank = 0
        for role in spec.roles:
            ranks = range(rank, rank + role.replicas)
            rank += role.replicas
            if role.node:
                self.pins += [(r, role) for r in ranks]
            elif role.gpu_share or role.gpu_memory_mib:
                self.parts += [(r, role) for r in ranks]
            elif role.gpus:
                gpus = role.gpus
                self.needs += [(gpus, r) for r in ranks]
        self.size = rank
        if len(spec.roles) > 1:
            self.needs.sort(key=lambda need: -need[0])
        self.largest = self.needs[0][0] if self.needs else 0
        # Whether all ranks with GPUs need equally many: then counting decides whether they fit.
        self.uniform = bool(self.needs) and self.needs[-1][0] == self.largest
        self.gpus = sum(need[0] for need in self.needs)
        # `milli` depends on these.
        self.memories_mib = memories_mib
        self.milli = self.gpus * WHOLE
        if self.pins or self.parts:
            named = (role for _, role in (*self.pins, *self.parts))
            self.milli += sum(quota_milli(role, memories_mib) for role in named)
        self.topology = None if asks.topology == _NO_TOPOLOGY else asks.topology
        # What each rank requests in addition to GPUs; empty if no rank requests anything.
        self.amounts: tuple[Amounts, ...] = ()
        # The names of these resources; and the ranks that name no node or share, the class that needs most first.
        self.resources: list[str] = []
        self.rank_classes: list[RankClass] = []
        if not pods_say_nothing and (requests := requests_of(spec)):
            self.amounts = by_rank(spec, requests)
            self.resources = sorted({name for each in requests for name in each})
            self.rank_classes = self.classes_among(range(rank))
        pods_choose = bool(self.pods_selector or self.pods_affinity)
        asks_nothing = about_places(asks) is PLAIN_SCHEDULING and not pods_choose
        self.plain = asks_nothing and not self.parts and not self.pins and not self.amounts

    @property
    def shape(self) -> Shape:
        """Equal for gangs that fit in the same places."""
        if self._shape is None:
            self._shape = shape_of(self.spec, by_request=self.by_request)
        return self._shape

    def classes_among(self, ranks: Iterable[int]) -> list[RankClass]:
        """The ranks among these that name no node or share, by what they need; the largest need first."""
        gpus = {rank: count for count, rank in self.needs}
        bound = {rank for rank, _ in (*self.pins, *self.parts)}
        ranks_by_need: dict[Vector, list[int]] = {}
        for rank in ranks:
            if rank not in bound:
                asked = [self.amounts[rank].get(name, 0) for name in self.resources]
                ranks_by_need.setdefault((gpus.get(rank, 0), *asked), []).append(rank)
        return [
            RankClass(need, ranks_by_need[need]) for need in sorted(ranks_by_need, reverse=True)
        ]


def _requested(spec: JobSpec, role: Role, resource: str) -> int:
    """What one pod of the role requests."""
    amount = role_requests(role, supplies_of(spec)).get(resource)
    return 0 if amount is None else round(amount.amount * WHOLE)


# Memory that is assumed for quota where no node reports any.
_MEMORY_MIB_USUAL = 81_920


def quota_milli(role: Role, memories_mib: tuple[int, ...]) -> int:
    """The quota of one rank that names devices or a share of one, in thousandths of a GPU."""
    return role.gpus * WHOLE or role.gpu_share or _share_of_memory(role, memories_mib)


def _share_of_memory(role: Role, memories_mib: tuple[int, ...]) -> int:
    """The share of the smallest device that is large enough; of a larger device the rank may get less."""
    asked = role.gpu_memory_mib
    memory = next((mib for mib in memories_mib if mib >= asked), _MEMORY_MIB_USUAL)
    return min(WHOLE, -(-asked * WHOLE // memory))


def elastic_role(spec: JobSpec) -> tuple[str, int] | None:
    """The role that may start with fewer replicas than it asks for, and the fewest it may have."""
    # Ranks are numbered through the roles, so only the last role can grow and shrink.
    role = spec.roles[-1] if spec.roles else None
    if role is not None and role.min_replicas is not None and role.min_replicas < role.replicas:
        return role.name, max(1, role.min_replicas)
    if spec.min_available is not None and spec.min_available < spec.size:
        assert role is not None
        fewest = max(1, spec.min_available - (spec.size - role.replicas))
        return (role.name, fewest) if fewest < role.replicas else None
    return None
