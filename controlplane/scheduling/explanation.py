"""The reasons behind a code, with their numbers: what is needed, what is there, by domain.

Several tiers may be in the way of one gang; each is told. The first is the one that decided.
"""

import math
from collections.abc import Iterable

from controlplane.attempt import asked_gpus
from controlplane.devices import WHOLE
from controlplane.image import Node
from controlplane.job import Job
from controlplane.scheduling.asking import counts
from controlplane.scheduling.fitting import accepts, fit
from controlplane.scheduling.gangs import Gang, quota_milli
from controlplane.scheduling.placement import why_never_fits
from controlplane.scheduling.quota import ANY, RESOURCE
from controlplane.scheduling.quota_gate import lacking
from controlplane.scheduling.reasons import Reason, reason
from controlplane.scheduling.shortage import Shortage, shortage, why_never_enough
from controlplane.scheduling.smaller import scaled_gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.start_limit import STARTS_LIMITED, StartLimit
from controlplane.scheduling.topology import Room, topology_of
from controlplane.sharing import QuotaModel

_QUOTA_CODES = ("insufficient_quota", "blocked_by_reserved_capacity", "queue_limit")
_SHARES = (QuotaModel.FAIR, QuotaModel.DESERVED, QuotaModel.FAIR_PREEMPT)


def explain(
    snapshot: Snapshot, gang: Gang, code: str, flavor: str = ANY, head: str = ""
) -> tuple[Reason, ...]:
    """Every reason why the gang waits, the one that decided first."""
    # An elastic gang waits only if there is no room for its fewest replicas.
    gang = scaled_gang(snapshot, gang)
    found: list[Reason] = []
    if head:
        found.append(_behind(snapshot, gang, snapshot.job(head)))
    never = why_never_fits(gang.spec, snapshot.world.nodes_by_size)
    never = never or why_never_enough(snapshot.world, gang.spec)
    if never:
        found.append(_never(snapshot, gang, never))
    if code in _DIRECT:
        found.append(reason(code, _DIRECT[code]))
    if code == "non_preemptible_over_quota":
        found.append(_unpreemptible(snapshot, gang, flavor))
    quota = _quota(snapshot, gang, flavor, code)
    found += quota
    room = _room(snapshot, gang, flavor)
    found += room
    asked = snapshot.evicts or snapshot.queues[gang.queue].preempt is not None
    if asked and not head and (quota or room) and code not in _DIRECT:
        found.append(_nobody_gives_way(snapshot, gang))
    if not found:
        found.append(reason("insufficient_capacity", "others that were ahead took what was free"))
    return tuple(sorted(found, key=lambda r: r.code != code and not _decides(r, found)))


def refined(snapshot: Snapshot, gang: Gang, code: str) -> str:
    """Which lack of room it is, as far as counting tells."""
    if code != "insufficient_capacity" or gang.gpus > snapshot.free.total:
        return code
    if _shortage(snapshot, gang, ANY) is not None:
        return code
    return "fragmented" if gang.topology is None else "topology_unsatisfied"


def brief(snapshot: Snapshot, gang: Gang, code: str, flavor: str = ANY) -> Reason:
    """The reason that decided, without a look at every node: for the log."""
    gang = scaled_gang(snapshot, gang)
    if code in _DIRECT:
        return reason(code, _DIRECT[code])
    if code == "non_preemptible_over_quota":
        return _unpreemptible(snapshot, gang, flavor)
    quota = _quota(snapshot, gang, flavor, code)
    if quota:
        return quota[0]
    left = snapshot.free.total
    if gang.gpus <= left and (lack := _shortage(snapshot, gang, flavor)) is not None:
        return reason(code, lack.message, needed=lack.ranks, available=lack.room)
    if gang.parts and gang.gpus <= left:
        return _parts(snapshot, gang, snapshot.world.nodes.values(), code)
    told = f"it needs {gang.gpus} GPUs; {left} are free"
    if code in ("fragmented", "topology_unsatisfied"):
        told += ", but not where its ranks could use them"
    return reason(code, told, needed=gang.gpus, available=left)


def _decides(one: Reason, found: list[Reason]) -> bool:
    return one is found[0]


_DIRECT = {
    "gang_incomplete": "not all members of the gang have been submitted",
    "group_incomplete": "not all gangs of its group have been submitted",
    "group_incomplete_capacity": "its group does not fit as a whole, and starts together or not",
    "would_delay_planned_start": "it would delay the planned start of a job ahead of it",
}


def left_over(snapshot: Snapshot, gang: Gang, flavor: str, limit: StartLimit) -> tuple[Reason, ...]:
    """Why a gang waits that the limit on starts has left over, and what else it lacks now."""
    gang = scaled_gang(snapshot, gang)
    gangs = "1 gang starts" if limit.max == 1 else f"{limit.max} gangs start"
    first = reason(
        STARTS_LIMITED,
        f"at most {gangs} in one scheduling cycle, and this cycle is full; it is looked at in the next",
        limit=limit.max,
        until=limit.ends_at,
        helps="a higher starts_per_cycle_max or a shorter cycle_s in the policy",
    )
    return (
        first,
        *_quota(snapshot, gang, flavor, STARTS_LIMITED),
        *_room(snapshot, gang, flavor),
    )


def _behind(snapshot: Snapshot, gang: Gang, head: Job) -> Reason:
    needed = asked_gpus(head.spec)
    known = snapshot.job(gang.id).namespace == head.namespace
    who = f"{head.namespace}/{head.name}" if known else "a job of another namespace"
    message = f"{who} is ahead of it, needs {needed:g} GPUs and waits, too"
    helps = "the job ahead starts, or the queue gets a discipline that lets others past it"
    return reason("blocked_by_head", message, needed=math.ceil(needed), helps=helps)


def _never(snapshot: Snapshot, gang: Gang, why: str) -> Reason:
    total = sum(size * n for size, n in snapshot.world.nodes_by_size.items())
    return reason(
        "insufficient_capacity",
        f"it cannot fit on this cluster, even were it empty: {why}",
        needed=gang.gpus,
        available=total,
        helps="more or larger nodes, or fewer or smaller ranks",
    )


def _quota(snapshot: Snapshot, gang: Gang, flavor: str, code: str) -> list[Reason]:
    queue = snapshot.queues[gang.queue]
    if not snapshot.has_quotas:
        left = None if queue.gpus_max is None else queue.gpus_max - snapshot.used(gang.queue)
        if left is None or gang.gpus <= left:
            return []
        return [_limit(gang, queue.name, max(0, left), queue.gpus_max or 0)]
    tree = snapshot.tree(snapshot.quota_key(gang.queue, flavor))
    left = snapshot.tree().below_ceiling(gang.queue)
    found = []
    if gang.milli > left:
        # The ceiling that leaves least may be that of a queue above.
        path = tree.branches[gang.queue].path()[::-1]
        tight = min(path, key=lambda branch: branch.ceiling - branch.used_below)
        found.append(_limit(gang, tight.name, max(0, left) // WHOLE, tight.ceiling // WHOLE))
    model = snapshot.world.policy.model
    if model in (QuotaModel.CLASSIC, QuotaModel.FAIR) and code != "queue_limit":
        available = tree.available(gang.queue)
        if gang.milli > available:
            found.append(_over(gang, tree.potential(gang.queue), available, code))
    if not found and (resource := lacking(snapshot, gang)):
        found.append(_lacks(snapshot, gang, resource))
    return found


def _lacks(snapshot: Snapshot, gang: Gang, resource: str) -> Reason:
    left = max(0, snapshot.tree(RESOURCE + resource).available(gang.queue)) / WHOLE
    needed = gang.amount(resource) / WHOLE
    return reason(
        "insufficient_quota",
        f"its pods request {needed:g} of {resource}; its queue can have {left:g} more now",
        helps=f"{needed - left:g} of {resource} become free in the queue, or more quota of it",
    )


def _limit(gang: Gang, queue: str, left: int, ceiling: int) -> Reason:
    return reason(
        "queue_limit",
        f"it needs {gang.gpus} GPUs; queue {queue} has {left} left of its {ceiling}",
        needed=gang.gpus,
        available=left,
        helps=f"{gang.gpus - left} GPUs less in use by the queue, or a higher ceiling",
    )


def _over(gang: Gang, potential: int, available: int, code: str) -> Reason:
    name = code if code in _QUOTA_CODES else "insufficient_quota"
    left = max(0, available) // WHOLE
    needed = -(-gang.milli // WHOLE)
    kept = "; the rest is kept for a job ahead" if name == "blocked_by_reserved_capacity" else ""
    helps = f"{needed - left} GPUs of quota become free"
    if gang.milli > potential:
        helps = f"more quota: at most {potential // WHOLE} GPUs can ever be had"
    message = f"it needs {needed} GPUs of quota; its queue can have {left} more now{kept}"
    return reason(name, message, needed=needed, available=left, helps=helps)


def _unpreemptible(snapshot: Snapshot, gang: Gang, flavor: str) -> Reason:
    key = snapshot.quota_key(gang.queue, flavor)
    nominal = snapshot.tree(key).branches[gang.queue].nominal // WHOLE
    return reason(
        "non_preemptible_over_quota",
        f"what cannot be evicted must stay within the queue's quota of {nominal} GPUs",
        needed=gang.gpus,
        available=nominal,
        helps="let it be preemptible, or give the queue more quota",
    )


def _nobody_gives_way(snapshot: Snapshot, gang: Gang) -> Reason:
    if snapshot.world.policy.model in _SHARES:
        told = "its queue has its fair share, or who could give way has no more than theirs"
        return reason(
            "fair_share", told, helps="others' usage falls, or the queue gets more weight"
        )
    told = "nobody runs who would have to give way to it, or not enough of them"
    return reason("no_preemption_candidates", told)


# ---------------------------------------------------------------- devices


def _room(snapshot: Snapshot, gang: Gang, flavor: str) -> list[Reason]:
    world, free = snapshot.world, snapshot.free
    if fit(world, free, gang, flavor) is not None:
        return []
    willing = [
        node
        for node in world.nodes.values()
        if not node.removed
        and accepts(node, gang, flavor, as_guest=gang.asks.away_priority is not None)
    ]
    if not willing:
        told = "no node has what its selector asks for and takes it with its taints"
        return [reason("no_matching_node", told, available=0, helps="label or untaint nodes")]
    if (lack := shortage(world, free, gang, flavor, willing)) is not None:
        return [
            reason(
                "insufficient_capacity", lack.message, needed=lack.ranks, available=lack.room,
                by_domain=lack.by_node, helps="others end there, or the ranks request less",
            )
        ]  # fmt: skip
    left = sum(free.masks[n.ordinal].bit_count() for n in willing if free.open[n.ordinal])
    if gang.gpus > left:
        told = f"it needs {gang.gpus} GPUs; {left} are free"
        helps = f"{gang.gpus - left} more GPUs become free"
        short = reason("insufficient_capacity", told, needed=gang.gpus, available=left, helps=helps)
        if gang.topology is None:
            return [short]
        return [short, _topology(snapshot, gang)]
    if gang.topology is not None:
        return [_topology(snapshot, gang)]
    if gang.parts:
        return [_parts(snapshot, gang, willing, "insufficient_capacity")]
    largest = max(
        (free.masks[n.ordinal].bit_count() for n in willing if free.open[n.ordinal]), default=0
    )
    told = (
        f"{left} GPUs are free, but not so that every rank finds its {gang.largest} on one "
        f"node; the most on one is {largest}"
    )
    room = sum(
        free.masks[n.ordinal].bit_count() // max(1, gang.largest)
        for n in willing
        if free.open[n.ordinal]
    )
    return [
        reason(
            "fragmented", told, needed=gang.gpus, available=left,
            helps="smaller ranks, or a policy that consolidates",
        ),
        reason(
            "insufficient_capacity",
            f"{len(gang.needs)} ranks need {gang.largest} GPUs on one node each; {room} find them",
            needed=len(gang.needs), available=room,
        ),
    ]  # fmt: skip


def _parts(snapshot: Snapshot, gang: Gang, nodes: Iterable[Node], code: str) -> Reason:
    """How much is left of devices for ranks that share them; the largest part is what is short."""
    free = snapshot.free
    milli = max(quota_milli(role, gang.memories_mib) for _, role in gang.parts)
    there = [node.ordinal for node in nodes if not node.removed and free.open[node.ordinal]]
    whole = sum(free.masks[ordinal].bit_count() for ordinal in there)
    left = [WHOLE - taken for o in there for taken in free.shared.get(o, {}).values()]
    count = len(gang.parts)
    told = (
        f"{count} ranks need up to {milli / WHOLE:g} of a GPU each; "
        if count > 1
        else f"a rank needs {milli / WHOLE:g} of a GPU; "
    )
    told += "no GPU is free, " if not whole else f"{whole} GPUs are free, "
    told += f"and the most that is left of a shared one is {max(left, default=0) / WHOLE:g}"
    room = whole * (WHOLE // milli) + sum(each // milli for each in left)
    return reason(
        code, told, needed=count, available=room, helps="ranks that share end, or ask for less"
    )


def _shortage(snapshot: Snapshot, gang: Gang, flavor: str) -> Shortage | None:
    world = snapshot.world
    if not counts(snapshot.free, gang):
        return None
    willing = [node for node in world.nodes.values() if not node.removed]
    return shortage(world, snapshot.free, gang, flavor, willing)


def _topology(snapshot: Snapshot, gang: Gang) -> Reason:
    """How many ranks each domain of the wanted level could take."""
    ask = gang.topology
    assert ask is not None
    tree = topology_of(snapshot.world)
    level = tree.level(ask.required or ask.slice_level or ask.preferred)
    ranks = len(gang.needs) or 1
    if level is None:
        told = f"the policy knows no level {ask.required or ask.slice_level!r}"
        return reason("topology_unsatisfied", told)
    room = Room(snapshot.free, max(1, gang.largest), allowed=None)
    by_domain = {d.name: f"{min(room.of(d), ranks)} of {ranks}" for d in tree.root.at(level)}
    most = max((room.of(d) for d in tree.root.at(level)), default=0)
    name = ask.required or ask.slice_level
    if ask.exclusive and most >= ranks:
        told = f"no {name} is empty, and it wants one for itself"
        return reason("no_exclusive_domain", told, by_domain=by_domain)
    if ask.exclusive and most < ranks:
        told = f"no empty {name} has room for {ranks} ranks"
        return reason("no_exclusive_domain", told, by_domain=by_domain)
    told = f"{ranks} ranks must be in one {name}; the most that one takes is {min(most, ranks)}"
    if ask.slice_size and not ask.required:
        told = f"{ranks} ranks in groups of {ask.slice_size} in one {name} each do not fit"
    return reason(
        "topology_unsatisfied", told, needed=ranks, available=most, by_domain=by_domain,
        helps=f"room in one {name}, or a preferred level instead of a required one",
    )  # fmt: skip
