"""What the scheduler works out from the state and keeps from one pass to the next.

A cache belongs to what runs passes (the engine, a re-decider, a dry run), never to the state. Each part is keyed
by the version of what it was computed from: facts about nodes by the node and policy versions of the world,
facts about queues by its policy version, a gang by the identity of its job's spec. A cache that is new, or that
was used with another world, computes everything again; decisions do not depend on it.
"""

from collections.abc import Hashable, Mapping
from functools import cached_property

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.job import Job
from controlplane.model.obstacle import Obstacle
from controlplane.model.phases import Phase
from controlplane.model.policy import (
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.topology import Topology
from controlplane.scheduling.quota.tree import RESOURCE
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from controlplane.state.devices import WHOLE, FreeDevices
from controlplane.state.image import Node
from controlplane.state.queue_order import Need
from controlplane.state.world import World


class NodeFacts:
    """What follows from the nodes and the policy, whatever runs."""

    def __init__(self, nodes: Mapping[str, Node], policy: Policy) -> None:
        self._nodes = [node for node in nodes.values() if not node.removed]
        self._policy = policy
        # Node constraints of a gang -> the nodes that meet them, by ordinal; see `fit.py`.
        self.allowed: dict[Hashable, frozenset[int]] = {}
        # What the cluster looks like when nothing runs; see `schedulability.py`.
        self.vacant: dict[bool, FreeDevices] = {}
        self.vacant_room: dict[int, int] = {}
        self.obstacles: dict[Need, Obstacle | None] = {}

    @cached_property
    def has_taints(self) -> bool:
        return any(node.info.taints for node in self._nodes)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether every node takes every gang, and nodes are filled one after the other."""
        return not self.has_taints and self._policy.packing == "pack"

    @cached_property
    def capacity_milli(self) -> int:
        """All devices of nodes that take work, in thousandths of a GPU."""
        return sum(node.info.gpus for node in self._nodes if node.takes_work) * WHOLE

    @cached_property
    def topology(self) -> Topology:
        return Topology(self._nodes, self._policy.levels)


class QueueFacts:
    """What follows from the queues and the policy, whatever runs."""

    def __init__(self, queues: Mapping[str, Queue], policy: Policy) -> None:
        self._queues = queues
        self._policy = policy
        self.quota_model = QUOTA_MODELS[policy.model]

    @cached_property
    def has_quotas(self) -> bool:
        """Whether any queue has more than a ceiling of its own."""
        return self.quota_model.applies_without_quotas or any(
            queue.nominal is not None or queue.parent or queue.flavors or queue.resources
            for queue in self._queues.values()
        )

    @cached_property
    def preempts(self) -> bool:
        """Whether any gang may preempt another."""
        policy = self._policy
        return (
            self.quota_model.preempts_by_default
            or policy.consolidate
            or any(_preempts(self.preempt(name)) for name in self._queues)
            or any(
                DISCIPLINES[queue.discipline or policy.discipline].preempts
                for queue in self._queues.values()
            )
        )

    def preempt(self, queue: str) -> Preempt:
        own = self._queues[queue].preempt
        return self._policy.preempt if own is None else own

    @cached_property
    def resources(self) -> list[str]:
        """The resources in addition to GPUs of which some queue has a quota, as keys of quota trees."""
        names = {quota.name for queue in self._queues.values() for quota in queue.resources}
        return [RESOURCE + name for name in sorted(names)]

    @cached_property
    def queues_with_flavors(self) -> frozenset[str]:
        """The queues of those trees in which some queue has quotas by flavour."""
        queues = self._queues
        roots = {_root(queues, name) for name, queue in queues.items() if queue.flavors}
        return frozenset(name for name in queues if _root(queues, name) in roots)


def _preempts(preempt: Preempt) -> bool:
    return (
        preempt.within_queue is not WithinQueue.NEVER
        or preempt.reclaim is not Reclaim.NEVER
        or preempt.borrow_below is not None
    )


def _root(queues: Mapping[str, Queue], name: str) -> str:
    # A parent that was never defined is a root, too; see `QuotaTree`.
    while (queue := queues.get(name)) is not None and queue.parent:
        name = queue.parent
    return name


_GANGS_MIN = 1_000


class SchedulerCache:
    """Facts about one world, each with the version that it was computed for."""

    def __init__(self) -> None:
        self._clear(None)

    def use_for(self, world: World) -> None:
        """Discard everything if the cache was used for another world."""
        if self._world is not world:
            self._clear(world)

    def _clear(self, world: World | None) -> None:
        self._world = world
        self._nodes: tuple[tuple[int, int], NodeFacts] | None = None
        self._queues: tuple[int, QueueFacts] | None = None
        self._gangs: dict[str, Gang] = {}
        self._gangs_max = _GANGS_MIN
        # The position up to which the feasibility of waiting jobs was reviewed; -1 for never.
        self.reviewed_position = -1

    def nodes(self, world: World) -> NodeFacts:
        version = world.node_version, world.policy_version
        if self._nodes is None or self._nodes[0] != version:
            self._nodes = version, NodeFacts(world.nodes, world.policy)
        return self._nodes[1]

    def queues(self, world: World) -> QueueFacts:
        if self._queues is None or self._queues[0] != world.policy_version:
            self._queues = world.policy_version, QueueFacts(world.queues, world.policy)
        return self._queues[1]

    def gang(self, world: World, job: Job) -> Gang:
        gang, by_request = self._gangs.get(job.id), world.waiting.by_request
        if gang is not None and gang.spec is job.spec and gang.by_request is by_request:
            uses_memory = gang.parts or gang.pins
            if not uses_memory or gang.memories_mib == world.devices.memories_mib:
                return gang
        if len(self._gangs) > self._gangs_max:
            self._drop_gangs(world)
        memories_mib = world.devices.memories_mib
        gang = self._gangs[job.id] = Gang(job, memories_mib, by_request=by_request)
        return gang

    def _drop_gangs(self, world: World) -> None:
        """Drop the gangs of jobs that neither wait nor run, and wait until there are twice as many."""
        used = {*world.phases.by_phase[Phase.QUEUED], *world.devices.live}
        self._gangs = {job_id: gang for job_id, gang in self._gangs.items() if job_id in used}
        self._gangs_max = max(_GANGS_MIN, 2 * len(self._gangs))
