"""Who could give way, in which order, and the fewest of them that are enough.

Gangs go whole. What an elastic gang has beyond its least goes first, rank by rank. A set of victims
is a beginning of the list of candidates from which, in reverse, everyone not needed is taken out
again; so nobody is evicted unless the preemptor then fits.
"""

from collections.abc import Callable, Sequence
from operator import add, le, sub
from typing import NamedTuple

from controlplane.asks import tolerates
from controlplane.attained import attained_step
from controlplane.attempt_life import staying
from controlplane.devices import FreeDevices
from controlplane.job import Job
from controlplane.job_life import scales_in_place
from controlplane.lines import attained_by
from controlplane.requests import NO_AMOUNTS, of_rank
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.protection import lost_s
from controlplane.scheduling.quotas import Quotas
from controlplane.scheduling.snapshot import Snapshot, held_milli
from controlplane.sharing import Discipline

# Up to so many victims each one is tried without; beyond it is counted who is in the way.
EXACT_MAX = 64


class Victim(NamedTuple):
    """A running gang, or some ranks that it can do without."""

    job: Job
    gang: Gang
    priority: int
    admitted_at: float
    milli: int
    ranks: tuple[int, ...] = ()
    # It is protected for now, and may only be asked for what it can do without.
    is_safe: bool = False

    @property
    def queue(self) -> str:
        return self.gang.queue


class Eviction(NamedTuple):
    """Who goes, and where the preemptor then fits; and who is moved aside to make that true."""

    victims: list[Victim]
    fit: Fit
    moved: tuple[tuple[str, Fit], ...] = ()


# Whether quotas allow the preemptor in once these are gone; asked when quotas are without them.
Allowed = Callable[[Sequence[Victim]], bool]


def running(snapshot: Snapshot, queue: str) -> list[Victim]:
    """The queue's running gangs that may be evicted at all, in no order that matters.

    Many who wait ask for the same, so it is kept until somebody is told to go.
    """
    known = snapshot.evictable.get(queue)
    if known is None:
        known = snapshot.evictable[queue] = _running(snapshot, queue)
    return known


def _running(snapshot: Snapshot, queue: str) -> list[Victim]:
    world, now = snapshot.world, snapshot.now
    found = []
    for job_id in world.holders.get(queue, ()):
        if job_id in world.stopping or job_id in snapshot.evicted or job_id in snapshot.decided:
            continue
        job = world.jobs[job_id]
        gang, attempt = snapshot.gang(job_id), job.attempt
        assert attempt is not None
        is_safe = attempt.safe_until is not None and now < attempt.safe_until
        if not gang.preemptible or (is_safe and gang.elastic is None):
            continue
        priority = effective_priority(snapshot, job, gang)
        milli = held_milli(attempt, snapshot.ranks_staying(job))
        found.append(Victim(job, gang, priority, attempt.placed_at, milli, is_safe=is_safe))
    return found


def effective_priority(snapshot: Snapshot, job: Job, gang: Gang) -> int:
    """A guest counts for less: who runs where a taint would have kept it out."""
    away = gang.asks.away_priority
    if away is None or job.attempt is None:
        return gang.priority
    nodes, borne = snapshot.world.nodes, gang.asks.tolerates
    for slot in job.attempt.placement:
        if not all(tolerates(borne, taint) for taint in nodes[slot.node].info.taints):
            return away
    return gang.priority


def in_order(snapshot: Snapshot, victims: Sequence[Victim], own_queue: str = "") -> list[Victim]:
    """Other queues first, then the lowest priority, the least lost, the last to come, the id."""
    counts_cost = any(v.gang.asks.checkpoint_every_s is not None for v in victims)
    now = snapshot.now

    def key(victim: Victim) -> tuple[bool, int, int, float, float, str]:
        lost = lost_gpu_s(victim, now) if counts_cost else 0.0
        own = victim.queue == own_queue
        by_attained = snapshot.world.discipline(victim.queue) is Discipline.LEAST_ATTAINED
        had = step_of(victim, now) if by_attained else 0
        return own, victim.priority, -had, lost, -victim.admitted_at, victim.job.id

    ordered = sorted(victims, key=key)
    # Whoever gave some in this pass already is not asked for more of it.
    able = [victim for victim in ordered if not snapshot.has_shrunk(victim.job)]
    surplus = [part for victim in able for part in _surplus(victim)]
    return surplus + [victim for victim in ordered if not victim.is_safe]


def step_of(victim: Victim, now: float) -> int:
    """How far it has come in attained service, by now; rounding must not leave it a step behind."""
    return attained_step(attained_by(victim.job, now) * (1 + 1e-9) + 1e-6)


def lost_gpu_s(victim: Victim, now: float) -> float:
    """GPU-seconds since its last checkpoint, or all of them if it never made one."""
    every = victim.gang.asks.checkpoint_every_s
    return lost_s(now - victim.admitted_at, every) * victim.milli / 1_000


def _surplus(victim: Victim) -> list[Victim]:
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
    """Looks for the fewest victims from the front of a list that let the preemptor in."""

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
        # What must also hold of those who are left when somebody is spared.
        self.may_spare = may_spare

    def fewest(self, candidates: Sequence[Victim]) -> Eviction | None:
        if not candidates or self._try(candidates) is None:
            return None
        low, high = 0, 1
        while high < len(candidates) and self._try(candidates[:high]) is None:
            low, high = high, high * 2
        high = min(high, len(candidates))
        # Not enough with `low` of them, enough with `high`.
        while high - low > 1:
            middle = (low + high) // 2
            if self._try(candidates[:middle]) is None:
                low = middle
            else:
                high = middle
        chosen = list(candidates[:high])
        return self._without_the_unneeded(no_doubles(chosen))

    def _try(self, victims: Sequence[Victim]) -> Fit | None:
        whole = no_doubles(victims)
        if not self._quota_allows(whole, self.is_allowed):
            return None
        return fit(self.snapshot.world, self.without(whole), self.gang, self.flavor)

    def _quota_allows(self, victims: Sequence[Victim], is_allowed: Allowed) -> bool:
        self.quotas.remove(victims)
        allowed = is_allowed(victims)
        self.quotas.add(reversed(victims))
        return allowed

    def without(self, victims: Sequence[Victim]) -> FreeDevices:
        free = self.snapshot.coming.copy()
        for victim in victims:
            self.snapshot.let_go(free, victim.job, victim.ranks)
        return free

    def _without_the_unneeded(self, chosen: list[Victim]) -> Eviction | None:
        is_even = self.gang.uniform or not self.gang.needs
        if len(chosen) > EXACT_MAX and is_even and not self.gang.parts:
            chosen = self._in_the_way(chosen)
        if len(chosen) <= EXACT_MAX:
            for victim in reversed(chosen.copy()):
                fewer = [other for other in chosen if other is not victim]
                if _top_ranks_only(fewer) and self._spares(fewer) and self._try(fewer):
                    chosen = fewer
        found = self._try(chosen)
        return None if found is None else Eviction(chosen, found)

    def _spares(self, left: Sequence[Victim]) -> bool:
        return self.may_spare is None or self._quota_allows(left, self.may_spare)

    def _in_the_way(self, chosen: list[Victim]) -> list[Victim]:
        """Those without whom the found placement would not be there, or the quota not enough."""
        free = self.without(chosen)
        found = fit(self.snapshot.world, free, self.gang, self.flavor)
        assert found is not None
        names = self.gang.resources
        spare = self._spare(free, found, names)
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
        self, free: FreeDevices, found: Fit, names: Sequence[str]
    ) -> dict[int, tuple[int, ...]]:
        """What the nodes of a place have left beside it: devices, and then of each of these."""
        nodes, spare = self.snapshot.world.nodes, dict[int, tuple[int, ...]]()
        for index, slot in enumerate(found.placement):
            ordinal = nodes[slot.node].ordinal
            has = spare.get(ordinal)
            if has is None:
                left = [free.left(ordinal, name) for name in names]
                rest = [_NO_END if each is None else each for each in left]
                has = (free.masks[ordinal].bit_count(), *rest)
            devices = has[0] - len(slot.devices)
            asked = [found.amounts[index].get(name, 0) for name in names] if names else ()
            spare[ordinal] = (devices, *map(sub, has[1:], asked)) if names else (devices,)
        return spare


def no_doubles(victims: Sequence[Victim]) -> list[Victim]:
    """A gang that goes whole does not also give ranks."""
    whole = {victim.job.id for victim in victims if not victim.ranks}
    if len(whole) == len(victims):
        return list(victims)
    return [v for v in victims if not v.ranks or v.job.id not in whole]


def _top_ranks_only(victims: Sequence[Victim]) -> bool:
    """Whether each elastic gang gives its last ranks and none before a later one."""
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
    """How many devices a victim has on each node, by ordinal."""
    return {ordinal: has[0] for ordinal, has in _by_node(snapshot, victim, ()).items()}


def ranks_given_by(victim: Victim, taken: Sequence[Victim]) -> list[Victim]:
    """Ranks of the same gang that were taken before the whole of it."""
    if victim.ranks or victim.gang.elastic is None:
        return []
    return [other for other in taken if other.ranks and other.job.id == victim.job.id]


# More than any node has of anything.
_NO_END = 1 << 80


def _by_node(
    snapshot: Snapshot, victim: Victim, names: Sequence[str]
) -> dict[int, tuple[int, ...]]:
    """What a victim has on each node: devices, and then of each of these resources."""
    attempt, nodes = victim.job.attempt, snapshot.world.nodes
    assert attempt is not None
    found: dict[int, tuple[int, ...]] = {}
    requests = snapshot.world.requests(victim.job) if names else ()
    for index in victim.ranks or range(len(attempt.placement)):
        slot = attempt.placement[index]
        ordinal, devices = nodes[slot.node].ordinal, len(slot.devices)
        has = found.get(ordinal)
        if not names:
            found[ordinal] = (devices if has is None else has[0] + devices,)
            continue
        asked = (
            of_rank(victim.job.spec, requests, index, len(attempt.ranks))
            if requests
            else NO_AMOUNTS
        )
        more = (devices, *[asked.get(name, 0) for name in names])
        found[ordinal] = more if has is None else tuple(map(add, has, more))
    return found
