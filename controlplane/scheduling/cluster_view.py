"""The state as the scheduler reads it: jobs, nodes, queues and their indexes, and facts worked out from them.

A view is made for one pass and is valid until the world changes. Its types allow reading only, so a pass cannot
change the world; what a pass allocates and releases, it does in the copies that its `Snapshot` makes.
"""

from collections.abc import Mapping, Sequence, Set

from controlplane.disciplines.discipline import Discipline
from controlplane.lifecycle.job import Job
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy, Queue
from controlplane.model.resources import Amounts
from controlplane.scheduling.cache import NodeFacts, QueueFacts, SchedulerCache
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.quota_models.quota_model import QuotaModel
from controlplane.state.device_index import NodeShape
from controlplane.state.devices import FreeDevicesView
from controlplane.state.image import Cycle, Node
from controlplane.state.queue_order import Need, QueueIndexView, QueueKey
from controlplane.state.run_lengths import Estimate
from controlplane.state.world import World


class ClusterView:
    """Read-only view of a world. Without a `cache`, facts are worked out for this view alone."""

    def __init__(self, world: World, cache: SchedulerCache | None = None) -> None:
        self._world = world
        self._cache = cache = SchedulerCache() if cache is None else cache
        cache.use_for(world)
        self.node_facts: NodeFacts = cache.nodes(world)
        self.queue_facts: QueueFacts = cache.queues(world)

    # -- the state ---------------------------------------------------------------------------

    @property
    def at(self) -> float:
        return self._world.at

    @property
    def jobs(self) -> Mapping[str, Job]:
        return self._world.state.jobs

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self._world.state.nodes

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self._world.state.queues

    @property
    def policy(self) -> Policy:
        return self._world.state.policy

    @property
    def surveyed(self) -> bool:
        return self._world.state.surveyed

    @property
    def cycle(self) -> Cycle | None:
        return self._world.state.cycle

    @property
    def usage(self) -> Mapping[str, tuple[float, float]]:
        """Queue -> GPU-seconds that its removed jobs have had, decayed, and the time of that."""
        return self._world.state.usage

    @property
    def quota_model(self) -> QuotaModel:
        return self.queue_facts.quota_model

    def discipline(self, queue: str) -> Discipline:
        return self._world.state.discipline(queue)

    def gang(self, job: Job) -> Gang:
        """The job's needs, computed once for each spec."""
        return self._cache.gang(self._world, job)

    # -- devices and the gangs that hold them ------------------------------------------------

    @property
    def free(self) -> FreeDevicesView:
        """The world's own free devices."""
        return self._world.devices.free

    @property
    def node_names(self) -> Sequence[str]:
        """Names of nodes by ordinal."""
        return self._world.devices.node_names

    @property
    def nodes_by_size(self) -> Mapping[int, int]:
        return self._world.devices.nodes_by_size

    @property
    def nodes_by_shape(self) -> Mapping[NodeShape, int]:
        return self._world.devices.nodes_by_shape

    @property
    def nodes_by_flavor(self) -> Mapping[str, int]:
        return self._world.devices.nodes_by_flavor

    @property
    def memories_mib(self) -> tuple[int, ...]:
        return self._world.devices.memories_mib

    @property
    def jobs_by_node(self) -> Mapping[str, Mapping[str, int]]:
        return self._world.devices.jobs_by_node

    @property
    def used_flavors(self) -> Mapping[tuple[str, str], int]:
        return self._world.devices.used_flavors

    def used_milli(self, queue: str) -> int:
        return self._world.devices.used_milli(queue)

    @property
    def holders(self) -> Mapping[str, Mapping[str, None]]:
        """Queue -> its jobs that hold devices."""
        return self._world.devices.holders

    @property
    def stopping(self) -> Set[str]:
        return self._world.devices.stopping.keys()

    @property
    def shrinking(self) -> Set[str]:
        return self._world.devices.shrinking.keys()

    @property
    def exclusive(self) -> Set[str]:
        return self._world.devices.exclusive.keys()

    @property
    def degraded(self) -> Set[str]:
        return self._world.devices.degraded.keys()

    @property
    def growing(self) -> Set[str]:
        return self._world.devices.growing.keys()

    def requests(self, job: Job) -> tuple[Amounts, ...]:
        """What one rank of each role of a running job requests in addition to GPUs; () if nothing."""
        return self._world.devices.requests.get(job.id, ())

    # -- waiting jobs and plans --------------------------------------------------------------

    @property
    def queue_indexes(self) -> Mapping[str, QueueIndexView]:
        """Queue -> its waiting jobs in order."""
        return self._world.waiting.queues

    @property
    def claimed(self) -> Set[str]:
        """The waiting jobs that other gangs were preempted for."""
        return self._world.waiting.claimed.keys()

    @property
    def by_request(self) -> bool:
        """Whether some queue has a quota of what pods request in addition to GPUs."""
        return self._world.waiting.by_request

    def queue_key(self, job: Job) -> QueueKey:
        return self._world.waiting.key_of(job)

    @property
    def plans_ahead(self) -> bool:
        """Whether some queue's discipline plans starts ahead."""
        return self._world.planned_ends.is_kept

    @property
    def planned_ends(self) -> Sequence[tuple[float, str]]:
        """When running gangs are planned to end, the earliest first; empty unless `plans_ahead`."""
        return self._world.planned_ends.order

    def estimate(self, job: Job) -> Estimate:
        return self._world.estimate(job)

    # -- feasibility -------------------------------------------------------------------------

    @property
    def unschedulable(self) -> Set[str]:
        return self._world.phases.by_phase[Phase.UNSCHEDULABLE].keys()

    @property
    def jobs_by_need(self) -> Mapping[Need, Mapping[str, None]]:
        return self._world.feasibility.by_need

    @property
    def groups(self) -> Mapping[str, Mapping[str, None]]:
        return self._world.feasibility.groups
