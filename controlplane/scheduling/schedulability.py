"""Whether a job could start on the cluster as it is, if nothing ran; and if not, why.

A job that could not is set aside (phase Unschedulable): it is out of its line, so nothing waits
behind it, it gets no planned start and evicts nothing. Kueue calls such workloads inadmissible, and
Slurm shows them with ReqNodeNotAvail, BadConstraints or a limit as their reason. Here as there they
are looked at again only when what they hang on has changed: nodes, queues, policy, the job itself or
its group. What runs is no part of it, so nothing has to be asked when a job starts or ends.

The question is put to the scheduler itself. `Vacant` is the world as a scheduling pass would see it
with every device free and no quota used; a job that finds quota and a place there may wait its turn,
and any other has an `Obstacle`. So selectors, taints, flavours, levels, named nodes, parts of
devices, requests, ceilings and whatever is added to them later need no second set of rules here.
Only the search for the reason, once it is known that there is one, asks about them one by one.

Answers are kept by need (`lines.need_of`): a thousand equal jobs are one question, and most jobs, a
number of equal ranks without any wishes, are answered by counting.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from controlplane.devices import WHOLE, FreeDevices
from controlplane.events import SETS_ASIDE
from controlplane.image import Node
from controlplane.job import WAITING, Job, Phase
from controlplane.lines import need_of
from controlplane.model import OUR_NAMES, JobSpec, Obstacle, Remedy, Role
from controlplane.requests import says_nothing
from controlplane.scheduling.fitting import Fit, accepts, fit, is_choosy
from controlplane.scheduling.gangs import Gang, memories_of
from controlplane.scheduling.packing_search import RANKS_MAX
from controlplane.scheduling.quota import RESOURCE, UNLIMITED, QuotaTree
from controlplane.scheduling.quota_gate import UNPREEMPTIBLE, QuotaGate, lacking
from controlplane.scheduling.shortage import shortage
from controlplane.scheduling.smaller import fewer_replicas, scaled_gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.topology import Room, topology_of
from controlplane.world import World

# ---------------------------------------------------------------- all jobs


def changes(world: World) -> list[tuple[Job, Obstacle | None]]:
    """The waiting jobs that are to be set aside or taken back, with the obstacle or None.

    Those come first that stand or stood first in line. From here on they count as looked at.
    """
    jobs, everyone = _to_review(world), world.review_all
    world.to_review.clear()
    world.review_all = False
    # Nothing can be ruled out before every node has been reported.
    if not world.surveyed or world.rules < SETS_ASIDE:
        return []
    found: dict[str, Obstacle | None] = {}
    groups = dict.fromkeys(world.groups if everyone else ())
    for job in jobs:
        if job.spec.scheduling.group:
            groups[job.spec.scheduling.group] = None
        else:
            found[job.id] = obstacle_of(world, job)
    for group in groups:
        found.update(_obstacles_of_group(world, group))
    changed = [(world.jobs[i], o) for i, o in found.items() if _is_news(world.jobs[i], o)]
    return sorted(changed, key=lambda pair: (pair[0].queued_as, pair[0].id))


def _to_review(world: World) -> list[Job]:
    jobs = world.jobs
    if not world.review_all:
        return [jobs[i] for i in world.to_review]
    found = [jobs[i] for i in world.by_phase[Phase.UNSCHEDULABLE]]
    for alike in world.by_need.values():
        # Of equal jobs one speaks for all, and nearly always there is nothing to say.
        first = jobs[next(iter(alike))]
        if not first.spec.scheduling.group and obstacle_of(world, first) is not None:
            found += [jobs[i] for i in alike]
    return found


def present_obstacle(world: World, job: Job) -> Obstacle | None:
    """What keeps a waiting job from starting if nothing ran, its group included; or None."""
    group = job.spec.scheduling.group
    if not group:
        return obstacle_of(world, job)
    return dict(_obstacles_of_group(world, group)).get(job.id)


def _is_news(job: Job, obstacle: Obstacle | None) -> bool:
    """Whether the log should say so. That numbers have changed is not worth an event."""
    known = job.obstacle
    if known is None or obstacle is None:
        return known is not obstacle
    return (known.code, known.remedy) != (obstacle.code, obstacle.remedy)


def obstacle_of_draft(world: World, job: Job) -> Obstacle | None:
    """The same for a job that is not in the world."""
    if world.rules < SETS_ASIDE or not world.surveyed or job.spec.managed_by not in OUR_NAMES:
        return None
    if not job.spec.scheduling.group:
        return obstacle_of(world, job)
    return dict(_obstacles_of_group(world, job.spec.scheduling.group, job)).get(job.id)


# ---------------------------------------------------------------- one job


def obstacle_of(world: World, job: Job) -> Obstacle | None:
    """Why the job by itself, whatever its group does, could not start if nothing ran; or None."""
    if not world.surveyed or _fits_by_counting(world, job.spec):
        return None
    known: dict[Any, Obstacle | None] = world.about_nodes.setdefault("obstacles", {})
    need = need_of(job.spec)
    if need not in known:
        known[need] = _look(world, job)
    return known[need]


def _fits_by_counting(world: World, spec: JobSpec) -> bool:
    """True for equal ranks without wishes that find room; False says nothing."""
    roles = spec.roles
    queue = world.queues.get(spec.queue)
    if len(roles) != 1 or queue is None or queue.gpus_max is not None or is_choosy(world):
        return False
    if Snapshot(world).has_quotas or not says_nothing(spec) or len(need_of(spec)) != _PLAIN:
        return False
    role, rooms = roles[0], world.about_nodes.setdefault("rooms", {})
    room = rooms.get(role.gpus)
    if room is None:
        counts = Vacant(world).free.by_count.items()
        each = role.gpus
        room = sum(len(nodes) * (n // each if each else UNLIMITED) for n, nodes in counts)
        rooms[role.gpus] = room
    return bool(role.replicas <= room)


# The length of a need that has no wishes: queue, ranks, GPUs of each.
_PLAIN = 3


class Vacant(Snapshot):
    """The world as a pass would see it if nothing ran and no quota were used.

    With `whole` also those nodes take work that do not now. `free` is not to be changed.
    """

    def __init__(self, world: World, *, whole: bool = False) -> None:
        super().__init__(world)
        self._whole = whole

    @property
    def free(self) -> FreeDevices:
        key = "vacant, whole" if self._whole else "vacant"
        known = self.world.about_nodes.get(key)
        if known is None:
            known = self.world.about_nodes[key] = _vacant(self.world, whole=self._whole)
        assert isinstance(known, FreeDevices)
        return known

    @property
    def _some_leave(self) -> bool:
        return False

    def used_milli(self, queue: str) -> int:
        return self._used.get(queue, 0)

    def _own(self, flavor: str, name: str) -> int:
        return 0

    def place(self, gang: Gang, flavor: str) -> Fit | None:
        return fit(self.world, self.free, gang, flavor)


class VacantGate(QuotaGate):
    def _is_too_fixed(self, gang: Gang, tree: QuotaTree) -> bool:
        return not gang.preemptible and gang.milli > tree.branches[gang.queue].nominal


def _vacant(world: World, *, whole: bool) -> FreeDevices:
    free = FreeDevices()
    for node in world.nodes.values():
        is_open = not node.removed if whole else node.takes_work
        free.set_node(node.ordinal, node.devices, is_open=is_open)
        free.set_offers(node.ordinal, node.info.resources)
    return free


def gang_alone(world: World, job: Job) -> Gang:
    """The job's needs where nothing else runs: every domain is its own there."""
    spec, ask = job.spec, job.spec.scheduling.topology
    if ask.exclusive:
        asks = replace(spec.scheduling, topology=replace(ask, exclusive=False))
        job = replace(job, spec=replace(spec, scheduling=asks))
    return Gang(job, memories_of(world), by_request=world.by_request)


def _look(world: World, job: Job) -> Obstacle | None:
    missing = job.spec.scheduling.members_missing
    if missing:
        size = job.spec.size
        return Obstacle(
            code="gang_incomplete", remedy=Remedy.GROUP, needed=size + missing, available=size,
            resource="ranks",
        )  # fmt: skip
    gang = gang_alone(world, job)
    if _starts(Vacant(world), gang, job):
        return None
    least = scaled_gang(_With(world, job), gang)
    quota = _quota(Vacant(world), least)
    if quota is not None:
        return quota
    found = _diagnosis(world, least)
    if found is None:
        return None
    grows = world.policy.autoscaled and found.code not in _OF_PRESENT_NODES
    if grows or _starts(Vacant(world, whole=True), gang, job):
        return replace(found, remedy=Remedy.NODES)
    return found


# Obstacles that no new node would remove: what is named is the policy's, or of a node by its name.
_OF_PRESENT_NODES = (
    "unknown_topology_level",
    "pinned_node_absent",
    "pinned_node_unavailable",
    "pinned_devices_unavailable",
)


class _With(Snapshot):
    """A snapshot that knows a job which may not be in the world."""

    def __init__(self, world: World, job: Job) -> None:
        super().__init__(world)
        self._job = job

    def job(self, job_id: str) -> Job:
        return self._job if job_id == self._job.id else super().job(job_id)


def _starts(vacant: Vacant, gang: Gang, job: Job) -> bool:
    """Whether the gang, or an elastic one with fewer ranks, finds quota and a place."""
    gate = VacantGate(vacant)
    for flavor in gate.flavors(gang):
        if not gate.code(gang, flavor) and vacant.place(gang, flavor) is not None:
            return True
    if gang.elastic is None:
        return False
    known = _With(vacant.world, job)
    return fewer_replicas(known, gang, gate.code, vacant.place) is not None


def flavors_of(world: World) -> list[str]:
    """The flavours of GPUs that there are: of nodes, whether or not they are up, and of quotas."""
    known: list[str] | None = world.about_nodes.get("flavors")
    if known is None:
        nodes = {n.info.flavor for n in world.nodes.values() if not n.removed and n.info.flavor}
        quotas = {quota.name for queue in world.queues.values() for quota in queue.flavors}
        known = world.about_nodes["flavors"] = sorted(nodes | quotas)
    return known


# ---------------------------------------------------------------- groups


def _obstacles_of_group(
    world: World, group: str, *drafts: Job
) -> Iterator[tuple[str, Obstacle | None]]:
    """For each waiting gang of a group what keeps it from starting with the others, or None."""
    members = [*(world.jobs[i] for i in world.groups.get(group, ())), *drafts]
    waiting = sorted((m for m in members if m.phase in WAITING), key=lambda m: (m.queued_as, m.id))
    own = {job.id: obstacle_of(world, job) for job in waiting}
    too_large = None
    if waiting and not any(own.values()):
        too_large = _too_large(world, group, waiting)
    for job in waiting:
        needed = job.spec.scheduling.group_size
        if len(members) < needed:
            yield job.id, Obstacle(
                code="group_incomplete", remedy=Remedy.GROUP, needed=needed,
                available=len(members), resource="gangs", group=group,
            )  # fmt: skip
        elif own[job.id] is not None:
            yield job.id, own[job.id]
        elif (culprit := next((o for o in own.values() if o is not None), None)) is not None:
            yield (
                job.id,
                Obstacle(code="group_member_unschedulable", remedy=culprit.remedy, group=group),
            )
        else:
            yield job.id, too_large


def _too_large(world: World, group: str, jobs: Iterable[Job]) -> Obstacle | None:
    """An obstacle if the waiting gangs of a group do not fit beside each other."""
    gangs = [gang_alone(world, job) for job in jobs]
    if _all_start(Vacant(world), gangs):
        return None
    grows = world.policy.autoscaled and _all_have_quota(Vacant(world), gangs)
    later = grows or _all_start(Vacant(world, whole=True), gangs)
    return Obstacle(
        code="group_exceeds_cluster",
        remedy=Remedy.NODES if later else Remedy.OTHER,
        needed=sum(-(-gang.milli // WHOLE) for gang in gangs),
        available=Vacant(world).free.total,
        resource="gpus",
        group=group,
    )


def _all_start(vacant: Vacant, gangs: Iterable[Gang]) -> bool:
    gate, view = VacantGate(vacant), vacant.free.copy()
    for gang in gangs:
        places = (
            None if gate.code(gang, flavor) else fit(vacant.world, view, gang, flavor)
            for flavor in gate.flavors(gang)
        )
        place = next((place for place in places if place is not None), None)
        if place is None:
            return False
        vacant.hold(view, place)
        vacant.charge(gang, place.flavor)
    return True


def _all_have_quota(vacant: Vacant, gangs: Iterable[Gang]) -> bool:
    """Whether all may hold what they need at the same time, wherever that is."""
    gate = VacantGate(vacant)
    for gang in gangs:
        flavor = next((f for f in gate.flavors(gang) if not gate.code(gang, f)), None)
        if flavor is None:
            return False
        vacant.charge(gang, flavor)
    return True


# ---------------------------------------------------------------- the reason


def _quota(vacant: Vacant, gang: Gang) -> Obstacle | None:
    """The quota that lets it start nowhere, if every flavour fails by that."""
    gate = VacantGate(vacant)
    flavors = gate.flavors(gang)
    codes = [gate.code(gang, flavor) for flavor in flavors]
    if not all(codes):
        return None
    code, flavor = codes[0], flavors[0]
    needed = -(-gang.milli // WHOLE)
    tree = vacant.tree(flavor) if vacant.has_quotas else None
    resource, queue = "gpus", gang.queue
    if tree is None:
        available = vacant.queues[gang.queue].gpus_max or 0
    elif code == UNPREEMPTIBLE:
        available = tree.branches[gang.queue].nominal // WHOLE
    elif code == "queue_limit":
        # The ceiling may be that of a queue above it.
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
    """The resource beside GPUs whose quota is too small, if that of GPUs is not."""
    if gang.milli > vacant.tree(flavor).available(gang.queue):
        return ""
    return lacking(vacant, gang)


def _diagnosis(world: World, gang: Gang) -> Obstacle | None:
    """What is wrong on the nodes that take work; None where only a search was given up."""
    if (found := _unknown_level(world, gang)) is not None:
        return found
    flavors = tuple(f for f in VacantGate(Vacant(world)).flavors(gang) if f)
    present = [node for node in world.nodes.values() if node.takes_work]
    # A gang has one flavour; what is wrong with the roomiest is what is told.
    by_flavor = {flavor: _willing(present, gang, flavor) for flavor in flavors or ("",)}
    flavor = max(by_flavor, key=lambda each: _gpus(by_flavor[each]))
    willing = by_flavor[flavor]
    if (found := _pinned(world, gang, {node.name for node in willing})) is not None:
        return found
    if not willing:
        return _no_match(gang, flavors, present)
    for look in (_memory, _count):
        if (found := look(gang, willing)) is not None:
            return found
    if gang.size > RANKS_MAX and (gang.mixed or len(gang.kin) > 1):
        # Nobody has looked through all ways to place it, so it may well find one.
        return None
    lack = shortage(world, Vacant(world).free, gang, flavor, willing)
    if lack is not None:
        return Obstacle(
            code="insufficient_resources", needed=lack.ranks, available=lack.room,
            resource=lack.resource,
        )  # fmt: skip
    if gang.topology is not None:
        return _topology(world, gang, willing)
    return Obstacle(
        code="insufficient_capacity", needed=gang.gpus, available=_gpus(willing), resource="gpus"
    )


def _willing(present: list[Node], gang: Gang, flavor: str) -> list[Node]:
    """The nodes that would take its ranks, whatever their size."""
    guest = gang.asks.away_priority is not None
    return [node for node in present if accepts(node, gang, flavor, as_guest=guest)]


def _gpus(nodes: list[Node]) -> int:
    return sum(node.devices.bit_count() for node in nodes)


def _count(gang: Gang, willing: list[Node]) -> Obstacle | None:
    """What counting GPUs tells: a rank that is too large for any node, or too many ranks."""
    if not gang.largest:
        return None
    largest = max(node.devices.bit_count() for node in willing)
    if gang.largest > largest:
        return Obstacle(
            code="rank_exceeds_node", needed=gang.largest, available=largest, resource="gpus"
        )
    room = sum(node.devices.bit_count() // gang.largest for node in willing)
    if gang.uniform and len(gang.needs) > room:
        return Obstacle(
            code="insufficient_capacity", needed=len(gang.needs), available=room, resource="ranks"
        )
    if gang.gpus > _gpus(willing):
        return Obstacle(
            code="insufficient_capacity", needed=gang.gpus, available=_gpus(willing),
            resource="gpus",
        )  # fmt: skip
    return None


def _unknown_level(world: World, gang: Gang) -> Obstacle | None:
    ask = gang.topology
    if ask is None:
        return None
    levels = (ask.required, ask.slice_level if ask.slice_size else "")
    unknown = next((n for n in levels if n and topology_of(world).level(n) is None), "")
    return Obstacle(code="unknown_topology_level", level=unknown) if unknown else None


def _pinned(world: World, gang: Gang, willing: set[str]) -> Obstacle | None:
    for _, role in gang.pins:
        node = world.nodes.get(role.node)
        if node is None or node.removed:
            return Obstacle(code="pinned_node_absent", role=role.name, node=role.node)
        if not node.takes_work:
            return Obstacle(code="pinned_node_unavailable", role=role.name, node=role.node)
        if role.node in willing and (found := _devices(node, role)) is not None:
            return found
    return None


def _devices(node: Node, role: Role) -> Obstacle | None:
    """What of the devices that a role names, or wants, its node does not have."""
    lost = tuple(d for d in role.devices if not node.devices >> d & 1)
    have = node.devices.bit_count()
    wanted = max(role.gpus, len(role.devices)) * role.replicas
    if not lost and wanted <= have:
        return None
    return Obstacle(
        code="pinned_devices_unavailable", role=role.name, node=node.name, devices=lost,
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
        code="no_matching_node" if present else "no_node_takes_work", available=0, resource="nodes",
        flavors=flavors, selector=tuple(sorted(selector.items())), taints=tuple(taints),
    )  # fmt: skip


def _memory(gang: Gang, willing: list[Node]) -> Obstacle | None:
    asked = max((role.gpu_memory_mib for _, role in (*gang.parts, *gang.pins)), default=0)
    most = max(node.info.gpu_memory_mib for node in willing)
    if asked <= most:
        return None
    return Obstacle(
        code="gpu_memory_exceeds_device", needed=asked, available=most, resource="gpu_memory_mib"
    )


def _topology(world: World, gang: Gang, willing: list[Node]) -> Obstacle:
    """How many ranks the roomiest domain of the wanted level takes."""
    ask, tree = gang.topology, topology_of(world)
    assert ask is not None
    name = ask.required or ask.slice_level
    level = tree.level(name) if name else 0
    allowed = frozenset(node.ordinal for node in willing)
    room = Room(Vacant(world).free, max(1, gang.largest), allowed=allowed)
    most = max((room.of(d) for d in tree.root.at(level or 0)), default=0)
    ranks = len(gang.needs) or gang.size
    return Obstacle(
        code="topology_unsatisfied", needed=ranks, available=min(most, ranks), resource="ranks",
        level=name,
    )  # fmt: skip


def waits_for_nodes(job: Job) -> bool:
    """Whether more of the nodes that the cluster has, or can get, would let a waiting job start."""
    if job.spec.managed_by not in OUR_NAMES:
        return False
    obstacle = job.obstacle
    return obstacle is None or obstacle.remedy is Remedy.NODES
