"""The search for the fewest victims: candidates, their order, and the set that suffices.

The rules of a quota model (`rules.py`, `fair_sharing.py`) make a list of candidates. `in_order`
sorts it as Kueue does (other queues first, then the lowest priority, then the latest admission),
with two criteria of its own after priority: the larger key by now, where the queue's discipline
preempts by it, and the least lost work, where jobs declare checkpoints. Gangs are evicted whole;
but ranks of an elastic gang beyond its minimum come first, from its last rank down.

`Search.fewest` then works as Kueue's `classicalPreemptions` and `fillBackWorkloads`:

1. Find the shortest prefix of the list with which the gang gets quota and a placement. Kueue
   removes candidates one by one; here the length is doubled and then bisected, so that long lists
   take few placements.
2. Go through the prefix in reverse and spare every victim without which the gang still fits (Kueue:
   fill back). With more than EXACT_MAX victims a placement for each would be too slow. Then, for a
   gang of equal ranks, one placement is fixed and the victims that are not in its way are spared;
   for any other gang none is spared.

So no gang is evicted unless the preemptor then fits, and with at most EXACT_MAX victims none of them
is needless. With more, some may be: those that the fixed placement uses although another would not,
and, for a gang of unequal ranks, any.
"""

from collections.abc import Callable, Sequence
from operator import add, le, sub
from typing import NamedTuple

from controlplane.lifecycle.attempt import staying
from controlplane.lifecycle.job import Job, scales_in_place
from controlplane.model.constraints import tolerates
from controlplane.model.resources import NO_AMOUNTS, of_rank
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.preemption.protection import lost_s
from controlplane.scheduling.quota.gang_quotas import Quotas
from controlplane.scheduling.snapshot import Snapshot, held_milli
from controlplane.state.devices import FreeDevices

# With at most this many victims, a placement is tried without each one; with more, those that are
# not in the way of one placement are spared.
EXACT_MAX = 64


class Victim(NamedTuple):
    """A running gang, or some ranks that it can continue without."""

    job: Job
    gang: Gang
    priority: int
    admitted_at: float
    milli: int
    ranks: tuple[int, ...] = ()
    # The gang is protected for now: only ranks beyond its minimum may be taken.
    is_safe: bool = False

    @property
    def queue(self) -> str:
        return self.gang.queue


class Eviction(NamedTuple):
    """The victims, where the preemptor then fits, and the gangs that are moved for that."""

    victims: list[Victim]
    fit: Fit
    moved: tuple[tuple[str, Fit], ...] = ()


# Whether quotas allow the preemptor without these victims; called while they are removed from them.
Allowed = Callable[[Sequence[Victim]], bool]


def running(snapshot: Snapshot, queue: str) -> list[Victim]:
    """The queue's running gangs that may be evicted at all, in no particular order.

    Many waiting gangs need the same list, so it is cached until the pass evicts a gang.
    """
    known = snapshot.evictable.get(queue)
    if known is None:
        known = snapshot.evictable[queue] = _running(snapshot, queue)
    return known


def _running(snapshot: Snapshot, queue: str) -> list[Victim]:
    cluster, now = snapshot.cluster, snapshot.now
    victims = []
    for job_id in cluster.holders.get(queue, ()):
        if job_id in cluster.stopping or job_id in snapshot.evicted or job_id in snapshot.decided:
            continue
        job = cluster.jobs[job_id]
        gang, attempt = snapshot.gang(job_id), job.attempt
        assert attempt is not None
        is_safe = attempt.safe_until is not None and now < attempt.safe_until
        if not gang.preemptible or (is_safe and gang.elastic is None):
            continue
        priority = effective_priority(snapshot, job, gang)
        milli = held_milli(attempt, snapshot.ranks_staying(job))
        victims.append(Victim(job, gang, priority, attempt.placed_at, milli, is_safe=is_safe))
    return victims


def effective_priority(snapshot: Snapshot, job: Job, gang: Gang) -> int:
    """The gang's priority, or its `away_priority` while it runs as a guest.

    A guest runs on a node whose taints it does not tolerate.
    """
    away = gang.asks.away_priority
    if away is None or job.attempt is None:
        return gang.priority
    nodes, borne = snapshot.cluster.nodes, gang.asks.tolerates
    for slot in job.attempt.placement:
        if not all(tolerates(borne, taint) for taint in nodes[slot.node].info.taints):
            return away
    return gang.priority


def in_order(snapshot: Snapshot, victims: Sequence[Victim], own_queue: str = "") -> list[Victim]:
    """The candidates in order of preference, with the surplus ranks of elastic gangs first.

    The order is: other queues than `own_queue`, lowest priority, largest key of a discipline that preempts,
    least lost work, latest admission, id.
    """
    counts_cost = any(v.gang.asks.checkpoint_every_s is not None for v in victims)
    now = snapshot.now

    def key(victim: Victim) -> tuple[bool, int, float, float, float, str]:
        lost = lost_gpu_s(victim, now) if counts_cost else 0.0
        own = victim.queue == own_queue
        discipline = snapshot.cluster.discipline(victim.queue)
        running_key = discipline.running_key(victim.job, now) if discipline.preempts else 0.0
        return own, victim.priority, -running_key, lost, -victim.admitted_at, victim.job.id

    ordered = sorted(victims, key=key)
    # A gang that gave ranks in this pass already gives no more of them.
    able = [victim for victim in ordered if not snapshot.has_shrunk(victim.job)]
    surplus = [part for victim in able for part in _surplus(victim)]
    return surplus + [victim for victim in ordered if not victim.is_safe]


def lost_gpu_s(victim: Victim, now: float) -> float:
    """GPU-seconds since the victim's last checkpoint, or since its start without checkpoints."""
    every = victim.gang.asks.checkpoint_every_s
    return lost_s(now - victim.admitted_at, every) * victim.milli / 1_000


def _surplus(victim: Victim) -> list[Victim]:
    """The ranks beyond the minimum of an elastic gang, last rank first; empty for any other gang."""
    gang, job = victim.gang, victim.job
    if gang.elastic is None or not scales_in_place(job, gang.elastic[0]):
        return []
    name, fewest = gang.elastic
    attempt = job.attempt
    assert attempt is not None
    there = staying(attempt, gang.spec.size)
    ranks = [r for r in gang.spec.ranks_of(name) if r < there]
    return [
        victim._replace(ranks=(rank,), milli=held_milli(attempt, (rank,)))
        for rank in reversed(ranks[fewest:])
    ]


class Search:
    """Finds the fewest victims from the front of a list that let the preemptor start."""

    def __init__(
        self,
        snapshot: Snapshot,
        quotas: Quotas,
        flavor: str,
        is_allowed: Allowed,
        may_spare: Allowed | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.quotas = quotas
        self.gang = quotas.gang
        self.flavor = flavor
        self.is_allowed = is_allowed
        # What must also hold for the remaining victims when one is spared.
        self.may_spare = may_spare

    def fewest(self, candidates: Sequence[Victim]) -> Eviction | None:
        """The victims and the preemptor's placement, or None if all candidates do not suffice."""
        if not candidates or self._try(candidates) is None:
            return None
        low, high = 0, 1
        while high < len(candidates) and self._try(candidates[:high]) is None:
            low, high = high, high * 2
        high = min(high, len(candidates))
        # `low` victims are not enough, `high` are.
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(candidates[:middle]) is None:
                low = middle
            else:
                high = middle
        chosen = list(candidates[:high])
        return self._spare_unneeded(no_doubles(chosen))

    def _try(self, victims: Sequence[Victim]) -> Fit | None:
        whole = no_doubles(victims)
        if not self._quota_allows(whole, self.is_allowed):
            return None
        return fit(self.snapshot.cluster, self.without(whole), self.gang, self.flavor)

    def _quota_allows(self, victims: Sequence[Victim], is_allowed: Allowed) -> bool:
        self.quotas.remove(victims)
        allowed = is_allowed(victims)
        self.quotas.add(reversed(victims))
        return allowed

    def without(self, victims: Sequence[Victim]) -> FreeDevices:
        """The free devices after all leaving gangs and these victims have left."""
        free = self.snapshot.future_free.copy()
        for victim in victims:
            self.snapshot.release(free, victim.job, victim.ranks)
        return free

    def _spare_unneeded(self, chosen: list[Victim]) -> Eviction | None:
        is_even = self.gang.uniform or not self.gang.needs
        if len(chosen) > EXACT_MAX and is_even and not self.gang.parts:
            chosen = self._victims_in_the_way(chosen)
        if len(chosen) <= EXACT_MAX:
            for victim in reversed(chosen.copy()):
                fewer = [other for other in chosen if other is not victim]
                if _top_ranks_only(fewer) and self._spares(fewer) and self._try(fewer):
                    chosen = fewer
        place = self._try(chosen)
        return None if place is None else Eviction(chosen, place)

    def _spares(self, left: Sequence[Victim]) -> bool:
        return self.may_spare is None or self._quota_allows(left, self.may_spare)

    def _victims_in_the_way(self, chosen: list[Victim]) -> list[Victim]:
        """The victims without which this placement would not exist, or the quota would not suffice."""
        free = self.without(chosen)
        place = fit(self.snapshot.cluster, free, self.gang, self.flavor)
        assert place is not None
        names = self.gang.resources
        spare = self._spare(free, place, names)
        kept: list[Victim] = []
        for index in range(len(chosen) - 1, -1, -1):
            victim = chosen[index]
            takes = _by_node(self.snapshot, victim, names)
            fewer = [*chosen[:index], *kept]
            if (
                all(all(map(le, n, spare.get(ordinal, n))) for ordinal, n in takes.items())
                and self._spares(fewer)
                and self._quota_allows(fewer, self.is_allowed)
            ):
                for ordinal, n in takes.items():
                    if ordinal in spare:
                        spare[ordinal] = tuple(map(sub, spare[ordinal], n))
            else:
                kept.append(victim)
        return kept[::-1]

    def _spare(
        self, free: FreeDevices, place: Fit, names: Sequence[str]
    ) -> dict[int, tuple[int, ...]]:
        """What the nodes of a placement have left in addition to it: devices, then each resource."""
        nodes, spare = self.snapshot.cluster.nodes, dict[int, tuple[int, ...]]()
        for index, slot in enumerate(place.placement):
            ordinal = nodes[slot.node].ordinal
            has = spare.get(ordinal)
            if has is None:
                left = [free.left(ordinal, name) for name in names]
                rest = [_NO_END if each is None else each for each in left]
                has = (free.masks[ordinal].bit_count(), *rest)
            devices = has[0] - len(slot.devices)
            asked = [place.amounts[index].get(name, 0) for name in names] if names else ()
            spare[ordinal] = (devices, *map(sub, has[1:], asked)) if names else (devices,)
        return spare


def no_doubles(victims: Sequence[Victim]) -> list[Victim]:
    """The victims without single ranks of gangs that are evicted whole."""
    whole = {victim.job.id for victim in victims if not victim.ranks}
    if len(whole) == len(victims):
        return list(victims)
    return [v for v in victims if not v.ranks or v.job.id not in whole]


def _top_ranks_only(victims: Sequence[Victim]) -> bool:
    """Whether each elastic gang gives its last ranks without a gap."""
    given: dict[str, list[int]] = {}
    for victim in victims:
        if victim.ranks:
            given.setdefault(victim.job.id, []).append(victim.ranks[0])
    for victim in victims:
        if victim.ranks:
            assert victim.job.attempt is not None
            last = staying(victim.job.attempt, victim.gang.spec.size) - 1
            ranks = given[victim.job.id]
            if max(ranks) != last or max(ranks) - min(ranks) + 1 != len(ranks):
                return False
    return True


def devices_by_node(snapshot: Snapshot, victim: Victim) -> dict[int, int]:
    """The number of devices that a victim has on each node, by the node's ordinal."""
    return {ordinal: has[0] for ordinal, has in _by_node(snapshot, victim, ()).items()}


def ranks_given_by(victim: Victim, taken: Sequence[Victim]) -> list[Victim]:
    """The victims in `taken` that are ranks of the same gang, if `victim` is the whole gang."""
    if victim.ranks or victim.gang.elastic is None:
        return []
    return [other for other in taken if other.ranks and other.job.id == victim.job.id]


# More than any node has of any resource.
_NO_END = 1 << 80


def _by_node(
    snapshot: Snapshot, victim: Victim, names: Sequence[str]
) -> dict[int, tuple[int, ...]]:
    """What a victim has on each node, by ordinal: devices, then each resource in `names`."""
    attempt, nodes = victim.job.attempt, snapshot.cluster.nodes
    assert attempt is not None
    amounts: dict[int, tuple[int, ...]] = {}
    requests = snapshot.cluster.requests(victim.job) if names else ()
    for index in victim.ranks or range(len(attempt.placement)):
        slot = attempt.placement[index]
        ordinal, devices = nodes[slot.node].ordinal, len(slot.devices)
        has = amounts.get(ordinal)
        if not names:
            amounts[ordinal] = (devices if has is None else has[0] + devices,)
            continue
        asked = (
            of_rank(victim.job.spec, requests, index, len(attempt.ranks))
            if requests
            else NO_AMOUNTS
        )
        more = (devices, *[asked.get(name, 0) for name in names])
        amounts[ordinal] = more if has is None else tuple(map(add, has, more))
    return amounts
