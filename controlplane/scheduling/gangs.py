"""A job as the scheduler sees it: what it needs, worked out once and kept as long as its spec."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from controlplane.asks import asks_of, pods_selector
from controlplane.devices import WHOLE
from controlplane.job import Job
from controlplane.lines import Shape, about_places, shape_of
from controlplane.model import PLAIN_SCHEDULING, JobSpec, Role, TopologyAsk
from controlplane.node_affinity import affinity_of
from controlplane.requests import (
    Amounts,
    by_rank,
    requests_of,
    role_requests,
    says_nothing,
    supplies_of,
)
from controlplane.world import World

# How many GPUs each rank needs, largest first, with the rank's number.
Needs = list[tuple[int, int]]

# How much there is, or is needed, of GPUs and then of each resource that a gang requests.
Vector = tuple[int, ...]

_NO_TOPOLOGY = TopologyAsk()


class Kin(NamedTuple):
    """Ranks of a gang that need the same of a node."""

    need: Vector
    ranks: Sequence[int]


class Gang:
    """One gang's needs. `milli` is its quota, in thousandths of a GPU."""

    __slots__ = (
        "_shape", "amounts", "asks", "by_request", "elastic", "gpus", "id", "kin", "largest", "memories_mib", "milli", "needs", "parts", "pins",
        "plain", "pods_affinity", "pods_selector", "preemptible", "priority", "queue", "resources", "size", "spec", "topology", "uniform",
    )  # fmt: skip

    def amount(self, resource: str, ranks: Iterable[int] | None = None) -> int:
        """Thousandths of something else than GPUs that its pods request, or those of some ranks."""
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
        pods_say_nothing = says_nothing(spec)
        self.asks = asks = spec.scheduling if pods_say_nothing else asks_of(spec)
        self.pods_selector = {} if pods_say_nothing else pods_selector(spec)
        self.pods_affinity = () if pods_say_nothing else affinity_of(spec)
        self.preemptible = asks.preemptible
        self.by_request = by_request
        self._shape: Shape | None = None
        self.elastic = elastic_role(spec)
        # Ranks that need a part of a device, and ranks that say where they must run.
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
        # All ranks with GPUs need equally many: then counting tells whether they fit.
        self.uniform = bool(self.needs) and self.needs[-1][0] == self.largest
        self.gpus = sum([need[0] for need in self.needs])
        # What its quota was worked out from.
        self.memories_mib = memories_mib
        self.milli = self.gpus * WHOLE
        if self.pins or self.parts:
            told = (role for _, role in (*self.pins, *self.parts))
            self.milli += sum(quota_milli(role, memories_mib) for role in told)
        self.topology = None if asks.topology == _NO_TOPOLOGY else asks.topology
        # What each rank requests beside GPUs; empty if nobody requests anything.
        self.amounts: tuple[Amounts, ...] = ()
        # The names of that in order; and the ranks that may go anywhere, those that need most first.
        self.resources: list[str] = []
        self.kin: list[Kin] = []
        if not pods_say_nothing and (requests := requests_of(spec)):
            self.amounts = by_rank(spec, requests)
            self.resources = sorted({name for each in requests for name in each})
            self.kin = self.kin_among(range(rank))
        pods_choose = bool(self.pods_selector or self.pods_affinity)
        asks_nothing = about_places(asks) is PLAIN_SCHEDULING and not pods_choose
        self.plain = asks_nothing and not self.parts and not self.pins and not self.amounts

    @property
    def shape(self) -> Shape:
        """What it has in common with those that fit in the same places."""
        if self._shape is None:
            self._shape = shape_of(self.spec, by_request=self.by_request)
        return self._shape

    def kin_among(self, ranks: Iterable[int]) -> list[Kin]:
        """Those of these ranks that may go anywhere, by what they need; who needs most comes first."""
        gpus = {rank: count for count, rank in self.needs}
        bound = {rank for rank, _ in (*self.pins, *self.parts)}
        found: dict[Vector, list[int]] = {}
        for rank in ranks:
            if rank not in bound:
                asked = [self.amounts[rank].get(name, 0) for name in self.resources]
                found.setdefault((gpus.get(rank, 0), *asked), []).append(rank)
        return [Kin(need, found[need]) for need in sorted(found, reverse=True)]


def _requested(spec: JobSpec, role: Role, resource: str) -> int:
    """What one pod of the role requests."""
    amount = role_requests(role, supplies_of(spec)).get(resource)
    return 0 if amount is None else round(amount.amount * WHOLE)


# A device whose memory nobody knows is taken for one of this size when quota is counted.
_MEMORY_MIB_USUAL = 81_920


def quota_milli(role: Role, memories_mib: tuple[int, ...]) -> int:
    """The quota of one rank that says which devices, or how much of one, it needs."""
    return role.gpus * WHOLE or role.gpu_share or _share_of_memory(role, memories_mib)


def _share_of_memory(role: Role, memories_mib: tuple[int, ...]) -> int:
    """The part of the smallest device that is large enough: it may get less of a larger one."""
    asked = role.gpu_memory_mib
    memory = next((mib for mib in memories_mib if mib >= asked), _MEMORY_MIB_USUAL)
    return min(WHOLE, -(-asked * WHOLE // memory))


def memories_of(world: World) -> tuple[int, ...]:
    found: tuple[int, ...] | None = world.about_nodes.get("memories")
    if found is None:
        nodes = [node for node in world.nodes.values() if not node.removed]
        sizes = {node.info.gpu_memory_mib for node in nodes if node.info.gpu_memory_mib}
        found = world.about_nodes["memories"] = tuple(sorted(sizes))
    return found


def elastic_role(spec: JobSpec) -> tuple[str, int] | None:
    """The role that may start with fewer replicas than it asks for, and the fewest it may have."""
    # Ranks count through the roles, so only those at the end can come and go.
    role = spec.roles[-1] if spec.roles else None
    if role is not None and role.min_replicas is not None and role.min_replicas < role.replicas:
        return role.name, max(1, role.min_replicas)
    if spec.min_available is not None and spec.min_available < spec.size:
        assert role is not None
        fewest = max(1, spec.min_available - (spec.size - role.replicas))
        return (role.name, fewest) if fewest < role.replicas else None
    return None


def gang_of(world: World, job: Job) -> Gang:
    """The job's needs, worked out anew only when its spec has changed."""
    known, by_request = world.gangs.get(job.id), world.by_request
    if isinstance(known, Gang) and known.by_request is by_request:
        told_memory = known.parts or known.pins
        if not told_memory or known.memories_mib == memories_of(world):
            return known
    gang = world.gangs[job.id] = Gang(job, memories_of(world), by_request=by_request)
    return gang
