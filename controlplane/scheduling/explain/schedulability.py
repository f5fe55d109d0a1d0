"""Whether a job could start on the present cluster if nothing ran; and if not, why.

A job that could not is set aside (phase Unschedulable): it is outside its queue, so nothing waits
behind it, it gets no planned start and preempts nothing. Kueue calls such workloads inadmissible,
and Slurm shows them with ReqNodeNotAvail, BadConstraints or a limit as their reason. As there, they
are checked again only when their conditions have changed: nodes, queues, policy, the job itself or
its group. Running jobs do not matter, so no check is needed when a job starts or ends.

The scheduler itself answers the question. `Vacant` is the world as a scheduling pass would see it
with every device free and no quota used; a job that gets quota and a placement there may wait in
its queue, and any other job has an `Obstacle`. So selectors, taints, flavours, levels, named nodes,
shared devices, requests, ceilings and later additions need no second set of rules here. Only the
search for the reason, once it is known that there is one, checks them one by one.

Answers are cached by need (`queue_order.need_of`): a thousand equal jobs are one question. Most
jobs, equal ranks without constraints, are answered by counting.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from controlplane.lifecycle.job import Job
from controlplane.model.obstacle import Obstacle, Remedy
from controlplane.model.phases import WAITING
from controlplane.model.policy import Queue
from controlplane.model.reasons import WaitReason
from controlplane.model.resources import has_plain_pods
from controlplane.model.spec import OUR_NAMES, JobSpec, Role
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.elastic.shrink import largest_fitting_size, scaled_gang
from controlplane.scheduling.explain.shortage import shortage
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.exact_packing import RANKS_MAX
from controlplane.scheduling.placement.fit import Fit, accepts, fit
from controlplane.scheduling.placement.topology import Room
from controlplane.scheduling.quota.gate import QuotaGate, lacking
from controlplane.scheduling.quota.tree import RESOURCE, UNLIMITED
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE, FreeDevices
from controlplane.state.image import Node
from controlplane.state.queue_order import need_of

# ---------------------------------------------------------------- all jobs


def changes(
    cluster: ClusterView, changed: Sequence[str] | None = None
) -> list[tuple[Job, Obstacle | None]]:
    """The waiting jobs that become unschedulable, with their obstacle, or schedulable, with None.

    Only the jobs in `changed` and their groups are checked; None means every waiting job. Jobs with
    an earlier queue position come first.
    """
    # Nothing can be ruled out before every node has been reported.
    if not cluster.surveyed:
        return []
    jobs = _all_waiting(cluster) if changed is None else [cluster.jobs[i] for i in changed]
    obstacles: dict[str, Obstacle | None] = {}
    groups = dict.fromkeys(cluster.groups if changed is None else ())
    for job in jobs:
        if job.spec.scheduling.group:
            groups[job.spec.scheduling.group] = None
        else:
            obstacles[job.id] = obstacle_of(cluster, job)
    for group in groups:
        obstacles.update(_obstacles_of_group(cluster, group))
    transitions = [
        (cluster.jobs[i], o) for i, o in obstacles.items() if _is_change(cluster.jobs[i], o)
    ]
    return sorted(transitions, key=lambda pair: (pair[0].queue_position, pair[0].id))


def _all_waiting(cluster: ClusterView) -> list[Job]:
    """Every job whose obstacle may have changed; of queued jobs, only those that have one now."""
    jobs = cluster.jobs
    waiting = [jobs[i] for i in cluster.unschedulable]
    for same_need in cluster.jobs_by_need.values():
        # Jobs of one need have the same answer, and nearly always there is no obstacle.
        first = jobs[next(iter(same_need))]
        if not first.spec.scheduling.group and obstacle_of(cluster, first) is not None:
            waiting += [jobs[i] for i in same_need]
    return waiting


def present_obstacle(cluster: ClusterView, job: Job) -> Obstacle | None:
    """What prevents a waiting job from starting if nothing ran, its group included; or None."""
    group = job.spec.scheduling.group
    if not group:
        return obstacle_of(cluster, job)
    return dict(_obstacles_of_group(cluster, group)).get(job.id)


def _is_change(job: Job, obstacle: Obstacle | None) -> bool:
    """Whether to record the change. Changed numbers alone are not worth an event."""
    known = job.obstacle
    if known is None or obstacle is None:
        return known is not obstacle
    return (known.code, known.remedy) != (obstacle.code, obstacle.remedy)


def obstacle_of_draft(cluster: ClusterView, job: Job) -> Obstacle | None:
    """As `present_obstacle`, for a job that is not in the world."""
    if not cluster.surveyed or job.spec.managed_by not in OUR_NAMES:
        return None
    if not job.spec.scheduling.group:
        return obstacle_of(cluster, job)
    return dict(_obstacles_of_group(cluster, job.spec.scheduling.group, job)).get(job.id)


# ---------------------------------------------------------------- one job


def obstacle_of(cluster: ClusterView, job: Job) -> Obstacle | None:
    """Why the job alone, apart from its group, could not start if nothing ran; or None."""
    if not cluster.surveyed or _fits_by_counting(cluster, job.spec):
        return None
    known = cluster.node_facts.obstacles
    need = need_of(job.spec)
    if need not in known:
        known[need] = _obstacle(cluster, job)
    return known[need]


def _fits_by_counting(cluster: ClusterView, spec: JobSpec) -> bool:
    """True for equal ranks without constraints that find room; False is inconclusive."""
    roles = spec.roles
    queue = cluster.queues.get(spec.queue)
    if (
        len(roles) != 1
        or queue is None
        or queue.gpus_max is not None
        or not cluster.node_facts.is_uniform
    ):
        return False
    if cluster.queue_facts.has_quotas or not has_plain_pods(spec) or len(need_of(spec)) != _PLAIN:
        return False
    role, rooms = roles[0], cluster.node_facts.vacant_room
    room = rooms.get(role.gpus)
    if room is None:
        counts = Vacant(cluster).free.by_count.items()
        each = role.gpus
        room = sum(len(nodes) * (n // each if each else UNLIMITED) for n, nodes in counts)
        rooms[role.gpus] = room
    return bool(role.replicas <= room)


# The length of a need without constraints: queue, ranks, GPUs of each.
_PLAIN = 3


class Vacant(Snapshot):
    """The world as a scheduling pass would see it if nothing ran and no quota were used.

    With `whole`, nodes that take no work now count as well. Do not change `free`: it is cached.
    """

    def __init__(self, cluster: ClusterView, *, whole: bool = False) -> None:
        super().__init__(cluster)
        self._whole = whole

    @property
    def free(self) -> FreeDevices:
        known = self.cluster.node_facts.vacant
        if self._whole not in known:
            known[self._whole] = _vacant(self.cluster, whole=self._whole)
        return known[self._whole]

    @property
    def _some_release(self) -> bool:
        return False

    def used_milli(self, queue: str) -> int:
        return self._used.get(queue, 0)

    def _own(self, flavor: str, name: str) -> int:
        return 0

    def place(self, gang: Gang, flavor: str) -> Fit | None:
        return fit(self.cluster, self.free, gang, flavor)


class VacantGate(QuotaGate):
    """The quota gate where no gang runs."""

    def _non_preemptible_milli(self, gang: Gang) -> int:
        return gang.milli


def _vacant(cluster: ClusterView, *, whole: bool) -> FreeDevices:
    free = FreeDevices()
    for node in cluster.nodes.values():
        is_open = not node.removed if whole else node.takes_work
        free.set_node(node.ordinal, node.devices, is_open=is_open)
        free.set_offers(node.ordinal, node.info.resources)
    return free


def gang_alone(cluster: ClusterView, job: Job) -> Gang:
    """The job's gang without its demand for exclusive domains.

    Where nothing else runs, every domain is exclusive.
    """
    spec, ask = job.spec, job.spec.scheduling.topology
    if ask.exclusive:
        asks = replace(spec.scheduling, topology=replace(ask, exclusive=False))
        job = replace(job, spec=replace(spec, scheduling=asks))
    return Gang(job, cluster.memories_mib, by_request=cluster.by_request)


def _obstacle(cluster: ClusterView, job: Job) -> Obstacle | None:
    """The obstacle of a job, computed without the cache; or None."""
    missing = job.spec.scheduling.members_missing
    if missing:
        size = job.spec.size
        return Obstacle(
            code=WaitReason.GANG_INCOMPLETE, remedy=Remedy.GROUP, needed=size + missing, available=size,
            resource="ranks",
        )  # fmt: skip
    gang = gang_alone(cluster, job)
    if _starts(Vacant(cluster), gang, job):
        return None
    least = scaled_gang(_With(cluster, job), gang)
    quota = _quota(Vacant(cluster), least)
    if quota is not None:
        return quota
    obstacle = _diagnosis(cluster, least)
    if obstacle is None:
        return None
    grows = cluster.policy.autoscaled and obstacle.code not in _OF_PRESENT_NODES
    if grows or _starts(Vacant(cluster, whole=True), gang, job):
        return replace(obstacle, remedy=Remedy.NODES)
    return obstacle


# Obstacles that no new node would remove: they name a level of the policy or a node.
_OF_PRESENT_NODES = (
    WaitReason.UNKNOWN_TOPOLOGY_LEVEL,
    WaitReason.PINNED_NODE_ABSENT,
    WaitReason.PINNED_NODE_UNAVAILABLE,
    WaitReason.PINNED_DEVICES_UNAVAILABLE,
)


class _With(Snapshot):
    """A snapshot that also contains a job which may not be in the world."""

    def __init__(self, cluster: ClusterView, job: Job) -> None:
        super().__init__(cluster)
        self._job = job

    def job(self, job_id: str) -> Job:
        return self._job if job_id == self._job.id else super().job(job_id)


def _starts(vacant: Vacant, gang: Gang, job: Job) -> bool:
    """Whether the gang, or an elastic one with fewer ranks, gets quota and a placement."""
    gate = VacantGate(vacant)
    for flavor in gate.flavors(gang):
        if not gate.code(gang, flavor) and vacant.place(gang, flavor) is not None:
            return True
    if gang.elastic is None:
        return False
    known = _With(vacant.cluster, job)
    return largest_fitting_size(known, gang, gate.code, vacant.place) is not None


def flavors_of(nodes_by_flavor: Iterable[str], queues: Mapping[str, Queue]) -> list[str]:
    """The existing flavours of GPUs: of nodes, whether or not they are up, and of quotas."""
    quotas = {quota.name for queue in queues.values() for quota in queue.flavors}
    return sorted({*nodes_by_flavor, *quotas})


# ---------------------------------------------------------------- groups


def _obstacles_of_group(
    cluster: ClusterView, group: str, *drafts: Job
) -> Iterator[tuple[str, Obstacle | None]]:
    """For each waiting gang of a group what prevents it from starting with the others, or None."""
    members = [*(cluster.jobs[i] for i in cluster.groups.get(group, ())), *drafts]
    waiting = sorted(
        (m for m in members if m.phase in WAITING), key=lambda m: (m.queue_position, m.id)
    )
    own = {job.id: obstacle_of(cluster, job) for job in waiting}
    too_large = None
    if waiting and not any(own.values()):
        too_large = _too_large(cluster, group, waiting)
    for job in waiting:
        needed = job.spec.scheduling.group_size
        if len(members) < needed:
            yield job.id, Obstacle(
                code=WaitReason.GROUP_INCOMPLETE, remedy=Remedy.GROUP, needed=needed,
                available=len(members), resource="gangs", group=group,
            )  # fmt: skip
        elif own[job.id] is not None:
            yield job.id, own[job.id]
        elif (culprit := next((o for o in own.values() if o is not None), None)) is not None:
            yield (
                job.id,
                Obstacle(
                    code=WaitReason.GROUP_MEMBER_UNSCHEDULABLE, remedy=culprit.remedy, group=group
                ),
            )
        else:
            yield job.id, too_large


def _too_large(cluster: ClusterView, group: str, jobs: Iterable[Job]) -> Obstacle | None:
    """An obstacle if the waiting gangs of a group do not fit together, else None."""
    gangs = [gang_alone(cluster, job) for job in jobs]
    if _all_start(Vacant(cluster), gangs):
        return None
    grows = cluster.policy.autoscaled and _all_have_quota(Vacant(cluster), gangs)
    later = grows or _all_start(Vacant(cluster, whole=True), gangs)
    return Obstacle(
        code=WaitReason.GROUP_EXCEEDS_CLUSTER,
        remedy=Remedy.NODES if later else Remedy.OTHER,
        needed=sum(-(-gang.milli // WHOLE) for gang in gangs),
        available=Vacant(cluster).free.total,
        resource="gpus",
        group=group,
    )


def _all_start(vacant: Vacant, gangs: Iterable[Gang]) -> bool:
    gate, view = VacantGate(vacant), vacant.free.copy()
    for gang in gangs:
        places = (
            None if gate.code(gang, flavor) else fit(vacant.cluster, view, gang, flavor)
            for flavor in gate.flavors(gang)
        )
        place = next((place for place in places if place is not None), None)
        if place is None:
            return False
        vacant.allocate(view, place)
        vacant.charge(gang, place.flavor)
    return True


def _all_have_quota(vacant: Vacant, gangs: Iterable[Gang]) -> bool:
    """Whether quotas allow all gangs at the same time, wherever they would run."""
    gate = VacantGate(vacant)
    for gang in gangs:
        flavor = next((f for f in gate.flavors(gang) if not gate.code(gang, f)), None)
        if flavor is None:
            return False
        vacant.charge(gang, flavor)
    return True


# ---------------------------------------------------------------- the reason


def _quota(vacant: Vacant, gang: Gang) -> Obstacle | None:
    """The quota that prevents the gang from starting with any flavour, or None."""
    gate = VacantGate(vacant)
    flavors = gate.flavors(gang)
    codes = [gate.code(gang, flavor) for flavor in flavors]
    if not all(codes):
        return None
    code, flavor = codes[0], flavors[0]
    assert code is not None
    needed = -(-gang.milli // WHOLE)
    tree = vacant.tree(flavor) if vacant.has_quotas else None
    resource, queue = "gpus", gang.queue
    if tree is None:
        available = vacant.queues[gang.queue].gpus_max or 0
    elif code is WaitReason.NON_PREEMPTIBLE_OVER_QUOTA:
        available = tree.branches[gang.queue].nominal // WHOLE
    elif code is WaitReason.QUEUE_LIMIT:
        # The ceiling may be that of a queue above.
        lowest = min(tree.branches[gang.queue].path(), key=lambda branch: branch.ceiling)
        available, queue = lowest.ceiling // WHOLE, lowest.name
    elif name := _lacking_beside(vacant, gang, flavor):
        resource, needed = name, gang.amount(name) // WHOLE
        available = max(0, vacant.tree(RESOURCE + name).available(gang.queue)) // WHOLE
    else:
        available = max(0, min(tree.available(gang.queue), UNLIMITED)) // WHOLE
    return Obstacle(
        code=code, remedy=Remedy.QUOTA, needed=needed, available=available, resource=resource,
        queue=queue, flavors=tuple(f for f in flavors if f),
    )  # fmt: skip


def _lacking_beside(vacant: Vacant, gang: Gang, flavor: str) -> str:
    """The resource other than GPUs whose quota is too small; empty if the quota of GPUs is."""
    if gang.milli > vacant.tree(flavor).available(gang.queue):
        return ""
    return lacking(vacant, gang)


def _diagnosis(cluster: ClusterView, gang: Gang) -> Obstacle | None:
    """What is wrong on the nodes that take work; None where the search was merely cut short."""
    if (obstacle := _unknown_level(cluster, gang)) is not None:
        return obstacle
    flavors = tuple(f for f in VacantGate(Vacant(cluster)).flavors(gang) if f)
    present = [node for node in cluster.nodes.values() if node.takes_work]
    # A gang has one flavour; the reason is reported for the flavour with the most GPUs.
    by_flavor = {flavor: _eligible(present, gang, flavor) for flavor in flavors or ("",)}
    flavor = max(by_flavor, key=lambda each: _gpus(by_flavor[each]))
    eligible = by_flavor[flavor]
    if (obstacle := _pinned(cluster, gang, {node.name for node in eligible})) is not None:
        return obstacle
    if not eligible:
        return _no_match(gang, flavors, present)
    for look in (_memory, _count):
        if (obstacle := look(gang, eligible)) is not None:
            return obstacle
    if gang.size > RANKS_MAX and (gang.mixed or len(gang.rank_classes) > 1):
        # The search for a placement was not exhaustive, so there may be one.
        return None
    lack = shortage(cluster, Vacant(cluster).free, gang, flavor, eligible)
    if lack is not None:
        return Obstacle(
            code=WaitReason.INSUFFICIENT_RESOURCES, needed=lack.ranks, available=lack.room,
            resource=lack.resources[0] if len(lack.resources) == 1 else "",
            resources=lack.resources if len(lack.resources) > 1 else (),
        )  # fmt: skip
    if gang.topology is not None:
        return _topology(cluster, gang, eligible)
    return Obstacle(
        code=WaitReason.INSUFFICIENT_CAPACITY,
        needed=gang.gpus,
        available=_gpus(eligible),
        resource="gpus",
    )


def _eligible(present: list[Node], gang: Gang, flavor: str) -> list[Node]:
    """The nodes that accept its ranks, regardless of their size."""
    guest = gang.asks.away_priority is not None
    return [node for node in present if accepts(node, gang, flavor, as_guest=guest)]


def _gpus(nodes: list[Node]) -> int:
    return sum(node.devices.bit_count() for node in nodes)


def _count(gang: Gang, eligible: list[Node]) -> Obstacle | None:
    """What counting GPUs shows: a rank that is too large for any node, or too many ranks; or None."""
    if not gang.largest:
        return None
    largest = max(node.devices.bit_count() for node in eligible)
    if gang.largest > largest:
        return Obstacle(
            code=WaitReason.RANK_EXCEEDS_NODE,
            needed=gang.largest,
            available=largest,
            resource="gpus",
        )
    room = sum(node.devices.bit_count() // gang.largest for node in eligible)
    if gang.uniform and len(gang.needs) > room:
        return Obstacle(
            code=WaitReason.INSUFFICIENT_CAPACITY,
            needed=len(gang.needs),
            available=room,
            resource="ranks",
        )
    if gang.gpus > _gpus(eligible):
        return Obstacle(
            code=WaitReason.INSUFFICIENT_CAPACITY, needed=gang.gpus, available=_gpus(eligible),
            resource="gpus",
        )  # fmt: skip
    return None


def _unknown_level(cluster: ClusterView, gang: Gang) -> Obstacle | None:
    ask = gang.topology
    if ask is None:
        return None
    levels = (ask.required, ask.slice_level if ask.slice_size else "")
    unknown = next((n for n in levels if n and cluster.node_facts.topology.level(n) is None), "")
    return Obstacle(code=WaitReason.UNKNOWN_TOPOLOGY_LEVEL, level=unknown) if unknown else None


def _pinned(cluster: ClusterView, gang: Gang, eligible: set[str]) -> Obstacle | None:
    for _, role in gang.pins:
        node = cluster.nodes.get(role.node)
        if node is None or node.removed:
            return Obstacle(code=WaitReason.PINNED_NODE_ABSENT, role=role.name, node=role.node)
        if not node.takes_work:
            return Obstacle(code=WaitReason.PINNED_NODE_UNAVAILABLE, role=role.name, node=role.node)
        if role.node in eligible and (obstacle := _devices(node, role)) is not None:
            return obstacle
    return None


def _devices(node: Node, role: Role) -> Obstacle | None:
    """The devices that a role names or needs and that its node does not have, or None."""
    lost = tuple(d for d in role.devices if not node.devices >> d & 1)
    have = node.devices.bit_count()
    wanted = max(role.gpus, len(role.devices)) * role.replicas
    if not lost and wanted <= have:
        return None
    return Obstacle(
        code=WaitReason.PINNED_DEVICES_UNAVAILABLE, role=role.name, node=node.name, devices=lost,
        needed=wanted, available=have, resource="gpus",
    )  # fmt: skip


def _no_match(gang: Gang, flavors: tuple[str, ...], present: list[Node]) -> Obstacle:
    selector = {**gang.pods_selector, **gang.asks.selector}
    taints = sorted(
        {
            taint
            for node in present
            if any(accepts(node, gang, f, as_guest=True) for f in flavors or ("",))
            for taint in node.info.taints
        }
    )
    return Obstacle(
        code=WaitReason.NO_MATCHING_NODE if present else WaitReason.NO_NODE_TAKES_WORK, available=0, resource="nodes",
        flavors=flavors, selector=tuple(sorted(selector.items())), taints=tuple(taints),
    )  # fmt: skip


def _memory(gang: Gang, eligible: list[Node]) -> Obstacle | None:
    asked = max((role.gpu_memory_mib for _, role in (*gang.parts, *gang.pins)), default=0)
    most = max(node.info.gpu_memory_mib for node in eligible)
    if asked <= most:
        return None
    return Obstacle(
        code=WaitReason.GPU_MEMORY_EXCEEDS_DEVICE,
        needed=asked,
        available=most,
        resource="gpu_memory_mib",
    )


def _topology(cluster: ClusterView, gang: Gang, eligible: list[Node]) -> Obstacle:
    """How many ranks the domain with the most room at the required level takes."""
    ask, tree = gang.topology, cluster.node_facts.topology
    assert ask is not None
    name = ask.required or ask.slice_level
    level = tree.level(name) if name else 0
    allowed = frozenset(node.ordinal for node in eligible)
    room = Room(Vacant(cluster).free, max(1, gang.largest), allowed=allowed)
    most = max((room.of(d) for d in tree.root.at(level or 0)), default=0)
    ranks = len(gang.needs) or gang.size
    return Obstacle(
        code=WaitReason.TOPOLOGY_UNSATISFIED, needed=ranks, available=min(most, ranks), resource="ranks",
        level=name,
    )  # fmt: skip


def waits_for_nodes(job: Job) -> bool:
    """Whether more nodes of the cluster or its pools would let a waiting job start."""
    if job.spec.managed_by not in OUR_NAMES:
        return False
    obstacle = job.obstacle
    return obstacle is None or obstacle.remedy is Remedy.NODES
