"""The facts behind a wait reason: what the gang needs and what exists, in total and by domain.

Several constraints may keep one gang waiting. `explain` returns a `Wait` for each of them, the
deciding one first; `brief` returns only that one, without a look at every node, for the log.
"""

import math
from collections.abc import Iterable

from msgspec.structs import replace

from controlplane.lifecycle.attempt import asked_gpus
from controlplane.lifecycle.job import Job
from controlplane.model.reasons import (
    CeilingReached,
    CycleFull,
    DomainRoom,
    DomainsShort,
    HeadWaits,
    JobName,
    LevelUnknown,
    NeverFits,
    NodesTooFull,
    RanksShort,
    ResourceQuotaShort,
    ResourceShort,
    SharesShort,
    Wait,
    WaitReason,
)
from controlplane.scheduling.elastic.shrink import scaled_gang
from controlplane.scheduling.explain.shortage import Shortage, shortage, why_never_enough
from controlplane.scheduling.gang import Gang, quota_milli
from controlplane.scheduling.ordering.start_limit import StartLimit
from controlplane.scheduling.placement.fit import accepts, fit
from controlplane.scheduling.placement.packing import why_never_fits
from controlplane.scheduling.placement.topology import Room
from controlplane.scheduling.placement.vector_packing import is_constrained
from controlplane.scheduling.quota.gate import lacking
from controlplane.scheduling.quota.tree import ANY, RESOURCE
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import WHOLE
from controlplane.state.image import Node

# These need no numbers.
_BARE = (
    WaitReason.GANG_INCOMPLETE,
    WaitReason.GROUP_INCOMPLETE,
    WaitReason.GROUP_INCOMPLETE_CAPACITY,
    WaitReason.WOULD_DELAY_PLANNED_START,
)


def explain(
    snapshot: Snapshot, gang: Gang, code: WaitReason, flavor: str = ANY, head: str = ""
) -> tuple[Wait, ...]:
    """Every reason why the gang waits, the deciding one first.

    `head` is the id of the job that blocks the gang's queue, if one does.
    """
    # An elastic gang waits only if there is no room for its minimum of replicas.
    gang = scaled_gang(snapshot, gang)
    waits: list[Wait] = []
    if head:
        waits.append(_behind(snapshot, gang, snapshot.job(head)))
    never = why_never_fits(gang.spec, snapshot.cluster.nodes_by_size)
    never = never or why_never_enough(gang.spec, snapshot.cluster.nodes_by_shape)
    if never is not None:
        waits.append(_never(snapshot, gang, never))
    if code in _BARE:
        waits.append(Wait(code=code))
    if code is WaitReason.NON_PREEMPTIBLE_OVER_QUOTA:
        waits.append(_unpreemptible(snapshot, gang, flavor))
    quota = _quota(snapshot, gang, flavor, code)
    waits += quota
    room = _room(snapshot, gang, flavor)
    waits += room
    asked = snapshot.preempts or snapshot.queues[gang.queue].preempt is not None
    if asked and not head and (quota or room) and code not in _BARE:
        waits.append(Wait(code=snapshot.cluster.quota_model.no_victims))
    if not waits:
        waits.append(Wait(code=WaitReason.INSUFFICIENT_CAPACITY))
    first = waits[0]
    return tuple(sorted(waits, key=lambda wait: wait.code != code and wait is not first))


def refined(snapshot: Snapshot, gang: Gang, code: WaitReason) -> WaitReason:
    """The more exact reason for a lack of room, as far as counting shows it."""
    if code is not WaitReason.INSUFFICIENT_CAPACITY or gang.gpus > snapshot.free.total:
        return code
    if _shortage(snapshot, gang, ANY) is not None:
        return code
    return WaitReason.FRAGMENTED if gang.topology is None else WaitReason.TOPOLOGY_UNSATISFIED


def brief(snapshot: Snapshot, gang: Gang, code: WaitReason, flavor: str = ANY) -> Wait:
    """The deciding reason, without a look at every node: for the log."""
    gang = scaled_gang(snapshot, gang)
    if code in _BARE:
        return Wait(code=code)
    if code is WaitReason.NON_PREEMPTIBLE_OVER_QUOTA:
        return _unpreemptible(snapshot, gang, flavor)
    quota = _quota(snapshot, gang, flavor, code)
    if quota:
        return quota[0]
    left = snapshot.free.total
    if gang.gpus <= left and (lack := _shortage(snapshot, gang, flavor)) is not None:
        facts = lack.facts
        if isinstance(facts, ResourceShort):
            facts = replace(facts, nodes=facts.nodes[:1])
        return Wait(code=code, needed=lack.ranks, available=lack.room, facts=facts)
    if gang.parts and gang.gpus <= left:
        return _parts(snapshot, gang, snapshot.cluster.nodes.values(), code)
    return Wait(code=code, needed=gang.gpus, available=left)


def left_over(snapshot: Snapshot, gang: Gang, flavor: str, limit: StartLimit) -> tuple[Wait, ...]:
    """Why a gang waits that the limit on starts left over, and what else it lacks now."""
    assert limit.max is not None
    gang = scaled_gang(snapshot, gang)
    first = Wait(code=WaitReason.STARTS_LIMITED, facts=CycleFull(limit.max, limit.ends_at))
    quota = _quota(snapshot, gang, flavor, WaitReason.STARTS_LIMITED)
    return (first, *quota, *_room(snapshot, gang, flavor))


def _behind(snapshot: Snapshot, gang: Gang, head: Job) -> Wait:
    needed = asked_gpus(head.spec)
    known = snapshot.job(gang.id).namespace == head.namespace
    facts = HeadWaits(float(needed), JobName(head.namespace, head.name) if known else None)
    return Wait(code=WaitReason.BLOCKED_BY_HEAD, needed=math.ceil(needed), facts=facts)


def _never(snapshot: Snapshot, gang: Gang, facts: NeverFits) -> Wait:
    total = sum(size * n for size, n in snapshot.cluster.nodes_by_size.items())
    return Wait(
        code=WaitReason.INSUFFICIENT_CAPACITY, needed=gang.gpus, available=total, facts=facts
    )


def _quota(snapshot: Snapshot, gang: Gang, flavor: str, code: WaitReason) -> list[Wait]:
    """The quotas and ceilings that are too small for the gang now; empty if none is."""
    queue = snapshot.queues[gang.queue]
    if not snapshot.has_quotas:
        left = None if queue.gpus_max is None else queue.gpus_max - snapshot.used(gang.queue)
        if left is None or gang.gpus <= left:
            return []
        return [_limit(gang, queue.name, max(0, left), queue.gpus_max or 0)]
    tree = snapshot.tree(snapshot.quota_key(gang.queue, flavor))
    left = snapshot.tree().below_ceiling(gang.queue)
    waits = []
    if gang.milli > left:
        # The tightest ceiling may be that of a queue above.
        path = tree.branches[gang.queue].path()[::-1]
        tight = min(path, key=lambda branch: branch.ceiling - branch.used_below)
        waits.append(_limit(gang, tight.name, max(0, left) // WHOLE, tight.ceiling // WHOLE))
    waits += snapshot.cluster.quota_model.explain(snapshot, gang, flavor, code)
    if not waits and (resource := lacking(snapshot, gang)):
        waits.append(_lacks(snapshot, gang, resource))
    return waits


def _lacks(snapshot: Snapshot, gang: Gang, resource: str) -> Wait:
    left = max(0, snapshot.tree(RESOURCE + resource).available(gang.queue)) / WHOLE
    facts = ResourceQuotaShort(resource, gang.amount(resource) / WHOLE, left)
    return Wait(code=WaitReason.INSUFFICIENT_QUOTA, facts=facts)


def _limit(gang: Gang, queue: str, left: int, ceiling: int) -> Wait:
    facts = CeilingReached(queue, ceiling)
    return Wait(code=WaitReason.QUEUE_LIMIT, needed=gang.gpus, available=left, facts=facts)


def _unpreemptible(snapshot: Snapshot, gang: Gang, flavor: str) -> Wait:
    key = snapshot.quota_key(gang.queue, flavor)
    nominal = snapshot.tree(key).branches[gang.queue].nominal // WHOLE
    code = WaitReason.NON_PREEMPTIBLE_OVER_QUOTA
    return Wait(code=code, needed=gang.gpus, available=nominal)


# ---------------------------------------------------------------- devices


def _room(snapshot: Snapshot, gang: Gang, flavor: str) -> list[Wait]:
    """Why the gang has no placement on the free devices; empty if it has one."""
    cluster, free = snapshot.cluster, snapshot.free
    if fit(cluster, free, gang, flavor) is not None:
        return []
    eligible = [
        node
        for node in cluster.nodes.values()
        if not node.removed
        and accepts(node, gang, flavor, as_guest=gang.asks.away_priority is not None)
    ]
    if not eligible:
        return [Wait(code=WaitReason.NO_MATCHING_NODE, available=0)]
    short = WaitReason.INSUFFICIENT_CAPACITY
    if (lack := shortage(cluster, free, gang, flavor, eligible)) is not None:
        return [Wait(code=short, needed=lack.ranks, available=lack.room, facts=lack.facts)]
    left = sum(free.masks[n.ordinal].bit_count() for n in eligible if free.open[n.ordinal])
    if gang.gpus > left:
        too_few = Wait(code=short, needed=gang.gpus, available=left)
        return [too_few] if gang.topology is None else [too_few, _topology(snapshot, gang)]
    if gang.topology is not None:
        return [_topology(snapshot, gang)]
    if gang.parts:
        return [_parts(snapshot, gang, eligible, short)]
    frees = [free.masks[n.ordinal].bit_count() for n in eligible if free.open[n.ordinal]]
    room = sum(each // max(1, gang.largest) for each in frees)
    facts = NodesTooFull(gang.largest, max(frees, default=0))
    ranks = len(gang.needs)
    return [
        Wait(code=WaitReason.FRAGMENTED, needed=gang.gpus, available=left, facts=facts),
        Wait(code=short, needed=ranks, available=room, facts=RanksShort(gang.largest)),
    ]


def _parts(snapshot: Snapshot, gang: Gang, nodes: Iterable[Node], code: WaitReason) -> Wait:
    """How much of the devices is left for ranks that share them; the largest share is short."""
    free = snapshot.free
    milli = max(quota_milli(role, gang.memories_mib) for _, role in gang.parts)
    there = [node.ordinal for node in nodes if not node.removed and free.open[node.ordinal]]
    whole = sum(free.masks[ordinal].bit_count() for ordinal in there)
    left = [WHOLE - taken for o in there for taken in free.shared.get(o, {}).values()]
    room = whole * (WHOLE // milli) + sum(each // milli for each in left)
    facts = SharesShort(milli, whole, max(left, default=0))
    return Wait(code=code, needed=len(gang.parts), available=room, facts=facts)


def _shortage(snapshot: Snapshot, gang: Gang, flavor: str) -> Shortage | None:
    cluster = snapshot.cluster
    if not is_constrained(snapshot.free, gang):
        return None
    eligible = [node for node in cluster.nodes.values() if not node.removed]
    return shortage(cluster, snapshot.free, gang, flavor, eligible)


def _topology(snapshot: Snapshot, gang: Gang) -> Wait:
    """How many ranks each domain of the required level could take."""
    ask = gang.topology
    assert ask is not None
    tree = snapshot.cluster.node_facts.topology
    level = tree.level(ask.required or ask.slice_level or ask.preferred)
    ranks = len(gang.needs) or 1
    if level is None:
        facts = LevelUnknown(ask.required or ask.slice_level)
        return Wait(code=WaitReason.TOPOLOGY_UNSATISFIED, facts=facts)
    room = Room(snapshot.free, max(1, gang.largest), allowed=None)
    rooms = [(domain.name, room.of(domain)) for domain in tree.root.at(level)]
    return Wait(
        code=WaitReason.NO_EXCLUSIVE_DOMAIN if ask.exclusive else WaitReason.TOPOLOGY_UNSATISFIED,
        needed=ranks,
        available=max((most for _, most in rooms), default=0),
        facts=DomainsShort(
            level=ask.required or ask.slice_level,
            domains=tuple(DomainRoom(name, min(most, ranks)) for name, most in rooms),
            slice_size=0 if ask.required else ask.slice_size,
        ),
    )
