"""What one scheduling pass looks at, and what it has given away so far; free to scribble on.

There are two views of the devices. `free` is what can be had now. `coming` is that, and what gangs
that are being stopped will leave: a gang that fits there waits for it and evicts nobody, and nobody
behind it gets what it waits for.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controlplane.attempt import HOLDING, Attempt
from controlplane.attempt_life import leaving
from controlplane.devices import WHOLE, FreeDevices
from controlplane.job import Job
from controlplane.job_life import attained_gpu_s
from controlplane.lines import Line
from controlplane.scheduling import taking
from controlplane.scheduling.exclusive import close, fence, unfence
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.gangs import Gang, gang_of
from controlplane.scheduling.quota import ANY, RESOURCE, Branch, QuotaTree
from controlplane.sharing import (
    Discipline,
    Policy,
    Preempt,
    Queue,
    QuotaModel,
    Reclaim,
    WithinQueue,
)
from controlplane.state import faded
from controlplane.world import World

_EMPTY = Line(Discipline.STRICT_FIFO, Policy())


class Snapshot:
    """The world as one scheduling pass sees it."""

    def __init__(self, world: World, now: float | None = None) -> None:
        self.world = world
        self.now = world.at if now is None else now
        self._free: FreeDevices | None = None
        self._coming: FreeDevices | None = None
        # What this pass gave away before anybody needed a view of what that leaves.
        self._taken: list[Fit] = []
        # How many whole GPUs it gave away.
        self._given = 0
        # Queue -> what this pass gave away, in thousandths of a GPU.
        self._used: dict[str, int] = {}
        self._trees: dict[str, list[QuotaTree]] = {}
        self.evicted: dict[str, None] = {}
        # Jobs that this pass starts, promises a place or repairs. Several routes lead to a job (its own
        # turn, its group, a claim, back-fill), and it may be in one decision only.
        self.decided: set[str] = set()
        # Ranks that elastic gangs give back in this pass.
        self._shrunk: dict[str, list[int]] = {}
        self._past: dict[str, float] | None = None
        # Queue -> who of it could be evicted, as `victims` worked it out.
        self.evictable: dict[str, list[Any]] = {}

    # -- devices -----------------------------------------------------------------------------

    @property
    def free(self) -> FreeDevices:
        """Copied only once somebody is about to look, since most passes end at a full queue."""
        if self._free is None:
            self._free = self.world.free.copy()
            self._fence(self._free)
            for fit in self._taken:
                self.hold(self._free, fit)
        return self._free

    def outlive_the_world(self) -> None:
        """The world will change now, and somebody wants to see afterwards what this pass saw."""
        assert self.free is self._free

    @property
    def to_look_at(self) -> FreeDevices:
        """The same for who only looks: as long as nothing was given away, the world's own."""
        if self._free is None and not self._taken and not self.world.exclusive:
            return self.world.free
        return self.free

    def lacks_devices(self, gang: Gang) -> bool:
        """Whether counting alone shows that the gang cannot start now; it needs no view of its own."""
        return gang.gpus > self.world.free.total - self._given

    @property
    def coming(self) -> FreeDevices:
        if self._coming is None:
            if not self._some_leave:
                return self.free
            self._coming = self.free.copy()
            for job, ranks in self._leavers():
                self.give_back(self._coming, job, ranks)
        return self._coming

    @property
    def _some_leave(self) -> bool:
        return bool(self.world.stopping or self.world.shrinking)

    def _leavers(self) -> Iterator[tuple[Job, list[int] | None]]:
        """Whoever has been told to go, and which of its ranks; None means all."""
        jobs = self.world.jobs
        for job_id in sorted(self.world.stopping):
            yield jobs[job_id], None
        for job_id in sorted(self.world.shrinking):
            yield jobs[job_id], leaving(_attempt(jobs[job_id]))

    def _fence(self, free: FreeDevices) -> None:
        """What gangs have for themselves alone is closed to the others."""
        if self.world.exclusive:
            fence(self.world, free, self.world.exclusive)

    def give_back(self, free: FreeDevices, job: Job, ranks: Iterable[int] | None = None) -> None:
        """Frees, in a view, all that a job's attempt holds; or what these ranks of it hold."""
        taking.give_back(self.world, free, job, ranks)

    def ranks_staying(self, job: Job) -> list[int]:
        """The ranks that nobody has told to go yet, in the world or in this pass."""
        attempt = _attempt(job)
        gone = {*leaving(attempt), *self._shrunk.get(job.id, ())}
        return [i for i in range(len(attempt.ranks)) if i not in gone]

    def has_shrunk(self, job: Job) -> bool:
        return job.id in self._shrunk

    def let_go(self, free: FreeDevices, job: Job, ranks: tuple[int, ...] = ()) -> None:
        """These ranks of a running gang leave a view of what is coming, or all that are left of it.

        What a whole gang had for itself alone is open to others again.
        """
        self.give_back(free, job, ranks or self.ranks_staying(job))
        if job.id in self.world.exclusive and not ranks:
            left = [other for other in self.world.exclusive if other not in self.evicted]
            unfence(self.world, free, job.id, left)

    def give_back_fit(self, free: FreeDevices, fit: Fit) -> None:
        """Frees, in a view, a place that was given away in this pass."""
        taking.give_back_fit(self.world, free, fit)

    def hold(self, free: FreeDevices, fit: Fit) -> None:
        """Takes a placement in a view."""
        taking.hold(self.world, free, fit)

    # -- queues ------------------------------------------------------------------------------

    @property
    def queues(self) -> dict[str, Queue]:
        return self.world.queues

    def line(self, queue: str) -> Line:
        """The queue's waiting jobs, in order."""
        return self.world.lines.get(queue, _EMPTY)

    def growing(self) -> list[Job]:
        """Running jobs whose gangs want more ranks, in the order in which they were submitted."""
        jobs = [self.world.jobs[job_id] for job_id in self.world.growing]
        return sorted(jobs, key=lambda job: job.submitted_as)

    def job(self, job_id: str) -> Job:
        return self.world.jobs[job_id]

    def gang(self, job_id: str) -> Gang:
        return gang_of(self.world, self.job(job_id))

    def used(self, queue: str) -> int:
        """GPUs that the queue's jobs hold, counting what this pass gave them; parts are rounded up."""
        return -(-self.used_milli(queue) // WHOLE)

    def used_milli(self, queue: str) -> int:
        world = self.world
        held = world.used.get(queue, 0) * WHOLE + world.used_parts.get(queue, 0)
        return held + self._used.get(queue, 0)

    def had_lately(self, queue: str) -> float:
        """What the queue had that has ended, where the policy remembers, in thousandths of a GPU."""
        halflife = self.world.policy.usage_halflife_s
        return 0.0 if halflife is None else self._history(halflife).get(queue, 0.0)

    def usage_with_history(self, branch: Branch) -> float:
        """What the queue has, and, where the policy remembers, what it had lately."""
        return branch.used_below + self.had_lately(branch.name)

    def _history(self, halflife: float) -> dict[str, float]:
        """Queue -> GPU-seconds of ended attempts, halved with time, spread over one half-life."""
        if self._past is None:
            now, past = self.now, dict[str, float]()
            for queue, (gpu_s, at) in self.world.usage.items():
                past[queue] = faded(gpu_s, now - at, halflife)
            for job in self.world.jobs.values():
                ended_at = None if job.attempt is None else job.attempt.ended_at
                if ended_at is not None and (had := attained_gpu_s(job)):
                    queue = job.spec.queue
                    past[queue] = past.get(queue, 0.0) + faded(had, now - ended_at, halflife)
            self._past = {queue: gpu_s * WHOLE / halflife for queue, gpu_s in past.items()}
        return self._past

    @property
    def has_quotas(self) -> bool:
        """Whether any queue has more than a ceiling of its own."""
        found = self.world.about_queues.get("quotas")
        if found is None:
            found = self.world.policy.model is not QuotaModel.CLASSIC or any(
                queue.nominal is not None or queue.parent or queue.flavors or queue.resources
                for queue in self.queues.values()
            )
            self.world.about_queues["quotas"] = found
        return bool(found)

    @property
    def evicts(self) -> bool:
        """Whether anybody may evict anybody."""
        found = self.world.about_queues.get("evicts")
        if found is None:
            policy = self.world.policy
            found = (
                policy.model not in (QuotaModel.CLASSIC, QuotaModel.PROGRESSIVE)
                or policy.consolidate
                or any(_evicts(self.preempt(name)) for name in self.queues)
                or any(self.world.discipline(q) is Discipline.LEAST_ATTAINED for q in self.queues)
            )
            self.world.about_queues["evicts"] = found
        return bool(found)

    def preempt(self, queue: str) -> Preempt:
        said = self.queues[queue].preempt
        return self.world.policy.preempt if said is None else said

    def quota_key(self, queue: str, flavor: str) -> str:
        """The tree in which a queue's gang of this flavour counts.

        Where no queue of its tree states quotas by flavour, a flavour says only which nodes a gang
        takes, and its quota is the one for all GPUs.
        """
        apart: frozenset[str] | None = self.world.about_queues.get("flavors")
        if apart is None:
            roots = {_root(self.queues, name) for name, q in self.queues.items() if q.flavors}
            apart = frozenset(name for name in self.queues if _root(self.queues, name) in roots)
            self.world.about_queues["flavors"] = apart
        return flavor if queue in apart else ANY

    def tree(self, flavor: str = ANY) -> QuotaTree:
        """Quotas and what is used of them now."""
        return self._pair(flavor)[0]

    def coming_tree(self, flavor: str = ANY) -> QuotaTree:
        """Quotas, and what will be used of them when those are gone who are being stopped."""
        return self._pair(flavor)[1]

    def _pair(self, flavor: str) -> list[QuotaTree]:
        """The tree now and the tree to come; one and the same as long as nobody is stopped."""
        pair = self._trees.get(flavor)
        if pair is None:
            now = QuotaTree(self.queues, flavor)
            now.set_usage([(name, self._own(flavor, name)) for name in self.queues])
            pair = self._trees[flavor] = [now, now]
            if self._some_leave:
                pair[1] = now.twin(self.queues)
                for job_id in (*self.world.stopping, *self.world.shrinking):
                    job = self.world.jobs[job_id]
                    whole = job_id in self.world.stopping
                    self._uncharge(pair[1], job, None if whole else leaving(_attempt(job)))
        return pair

    @property
    def resources(self) -> list[str]:
        """What some queue has a quota of beside GPUs, as keys of trees."""
        found = self.world.about_queues.get("resources")
        if found is None:
            names = {quota.name for queue in self.queues.values() for quota in queue.resources}
            found = self.world.about_queues["resources"] = [RESOURCE + n for n in sorted(names)]
        return list(found)

    def amount_held(self, job: Job, resource: str, ranks: Iterable[int] | None = None) -> int:
        """What a gang's pods, or some of them, have requested of such a resource."""
        there = self.ranks_staying(job) if ranks is None else ranks
        return self.gang(job.id).amount(resource.removeprefix(RESOURCE), there)

    def _own(self, flavor: str, name: str) -> int:
        """What the queue's jobs hold."""
        if flavor.startswith(RESOURCE):
            holders = self.world.holders.get(name, ())
            jobs = [self.world.jobs[job_id] for job_id in holders]
            return sum(self.amount_held(job, flavor, holding_ranks(job)) for job in jobs)
        if flavor != ANY:
            return self.world.used_flavors.get((name, flavor), 0)
        return self.world.used.get(name, 0) * WHOLE + self.world.used_parts.get(name, 0)

    def _uncharge(self, tree: QuotaTree, job: Job, ranks: Iterable[int] | None = None) -> None:
        attempt = _attempt(job)
        if tree.flavor.startswith(RESOURCE):
            there = range(len(attempt.ranks)) if ranks is None else ranks
            tree.remove(job.spec.queue, self.amount_held(job, tree.flavor, there))
        elif tree.flavor in (ANY, attempt.flavor):
            tree.remove(job.spec.queue, held_milli(attempt, ranks))

    # -- what this pass gives away -----------------------------------------------------------

    def take(self, gang: Gang, fit: Fit) -> None:
        """The gang starts there now."""
        if self._free is None:
            self._taken.append(fit)
        else:
            self.hold(self._free, fit)
        if self._coming is not None:
            self.hold(self._coming, fit)
        if _is_exclusive(gang):
            for view in {id(v): v for v in (self.free, self._coming) if v is not None}.values():
                self.fence_off(view, gang, fit)
        self._given += gang.gpus
        self.decided.add(gang.id)
        self.charge(gang, fit.flavor)

    def fence_off(self, free: FreeDevices, gang: Gang, fit: Fit) -> None:
        """Closes, in a view, what the gang would have for itself alone there."""
        if _is_exclusive(gang):
            assert gang.topology is not None
            close(self.world, free, fit.placement, gang.topology.required)

    def charge(self, gang: Gang, flavor: str) -> None:
        """The gang has its quota, of everything, from here on in this pass."""
        self._used[gang.queue] = self._used.get(gang.queue, 0) + gang.milli
        self._charge(gang, flavor)

    def discharge(self, gang: Gang, flavor: str) -> None:
        """The opposite of `charge`."""
        self._used[gang.queue] -= gang.milli
        self._charge(gang, flavor, -1)

    def is_enacted(self) -> None:
        """What this pass gave away is in the world by now, and counted there."""
        self._used.clear()

    def take_more(self, more: Gang, found: Fit) -> None:
        """A gang that runs gets more ranks, there; `more` is just these."""
        self.hold(self.free, found)
        if self._coming is not None:
            self.hold(self._coming, found)
        self.charge(more, found.flavor)

    def claim(self, gang: Gang, fit: Fit) -> None:
        """The gang starts there once those are gone who still hold some of it."""
        assert self._coming is not None
        self.decided.add(gang.id)
        self.hold(self._coming, fit)
        taking.hold_what_is_there(self.world, self.free, fit)
        if _is_exclusive(gang):
            self.fence_off(self._coming, gang, fit)
            self.fence_off(self.free, gang, fit)
        self._charge(gang, fit.flavor)

    def reserve_quota(self, queue: str, milli: int, flavor: str = ANY) -> None:
        """Nobody else may use so much of the queue's quota in this pass."""
        now, coming = self._pair(flavor)
        now.add(queue, milli)
        if coming is not now:
            coming.add(queue, milli)

    def _charge(self, gang: Gang, flavor: str, sign: int = 1) -> None:
        if self.has_quotas:
            amounts = dict.fromkeys((ANY, flavor), gang.milli)
            for name in self.resources:
                amounts[name] = gang.amount(name.removeprefix(RESOURCE))
            for name, amount in amounts.items():
                for tree in {id(t): t for t in self._pair(name)}.values():
                    (tree.add if sign > 0 else tree.remove)(gang.queue, amount)

    def evict(self, job: Job) -> None:
        """The whole gang is to stop; what it holds is coming."""
        attempt = job.attempt
        assert attempt is not None
        if self._coming is None:
            self._coming = self.coming if self._some_leave else self.free.copy()
        self.evicted[job.id] = None
        self.evictable.pop(job.spec.queue, None)
        self.let_go(self._coming, job)
        for flavor in {ANY, attempt.flavor, *self.resources}:
            pair = self._pair(flavor)
            if pair[1] is pair[0]:
                pair[1] = pair[0].twin(self.queues)
            self._uncharge(pair[1], job, self.ranks_staying(job))

    def shrink(self, job: Job, ranks: tuple[int, ...]) -> None:
        """These ranks are to stop; what they hold is coming."""
        attempt = job.attempt
        assert attempt is not None
        if self._coming is None:
            self._coming = self.coming if self._some_leave else self.free.copy()
        self.give_back(self._coming, job, ranks)
        self._shrunk.setdefault(job.id, []).extend(ranks)
        self.evictable.pop(job.spec.queue, None)
        for flavor in {ANY, attempt.flavor, *self.resources}:
            pair = self._pair(flavor)
            if pair[1] is pair[0]:
                pair[1] = pair[0].twin(self.queues)
            self._uncharge(pair[1], job, ranks)


def _is_exclusive(gang: Gang) -> bool:
    return gang.topology is not None and gang.topology.exclusive


def _root(queues: Mapping[str, Queue], name: str) -> str:
    # A parent that was never defined is a root, too; see `QuotaTree`.
    while (queue := queues.get(name)) is not None and queue.parent:
        name = queue.parent
    return name


def holding_ranks(job: Job) -> list[int]:
    """The ranks that hold something."""
    return [i for i, rank in enumerate(_attempt(job).ranks) if rank.state in HOLDING]


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, job
    return job.attempt


def _evicts(preempt: Preempt) -> bool:
    return (
        preempt.within_queue is not WithinQueue.NEVER
        or preempt.reclaim is not Reclaim.NEVER
        or preempt.borrow_below is not None
    )


def held_milli(attempt: Attempt, ranks: Iterable[int] | None = None) -> int:
    """What the attempt's ranks hold, in thousandths of a GPU."""
    total = 0
    for index in range(len(attempt.ranks)) if ranks is None else ranks:
        if attempt.ranks[index].state in HOLDING:
            total += attempt.share(index) or len(attempt.placement[index].devices) * WHOLE
    return total
