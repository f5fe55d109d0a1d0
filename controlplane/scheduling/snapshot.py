"""The snapshot that one scheduling pass works on: the state, read only, and what the pass has allocated so far.

The state is read through `cluster`. Devices and quotas are copied before the first change:

    free          devices that are free now
    future_free   the same after the gangs that are being stopped have released theirs
    tree          quotas and what is used of them now, for each flavour and resource
    future_tree   the same after those releases

A gang that fits in `future_free` waits for the releases and preempts no other gang; its place is allocated there, so
that no gang behind it gets it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.attempt import Attempt, leaving
from controlplane.lifecycle.job import Job, attained_gpu_s
from controlplane.model.phases import WITH_DEVICES
from controlplane.model.policy import Policy, Preempt, Queue
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement import allocation
from controlplane.scheduling.placement.exclusive_domains import close, fence, unfence
from controlplane.scheduling.placement.fit import Fit
from controlplane.scheduling.quota.tree import ANY, RESOURCE, Branch, QuotaTree
from controlplane.state.devices import WHOLE, FreeDevices, FreeDevicesView
from controlplane.state.queue_order import QueueIndex, QueueIndexView
from controlplane.state.state import faded
from controlplane.state.world import World

_EMPTY: QueueIndexView = QueueIndex(DISCIPLINES[Policy().discipline], Policy())


class Snapshot:
    """The state as one pass sees it. `world` may be a view of it already; `now` is by default the time of the state."""

    def __init__(
        self,
        world: World | ClusterView,
        now: float | None = None,
        cache: SchedulerCache | None = None,
    ) -> None:
        self.cluster = cluster = ClusterView(world, cache) if isinstance(world, World) else world
        self.now = cluster.at if now is None else now
        self._free: FreeDevices | None = None
        self._future_free: FreeDevices | None = None
        # Places allocated before `free` was copied.
        self._taken: list[Fit] = []
        # Whole GPUs that this pass has allocated.
        self._given = 0
        # Queue -> what this pass has allocated, in thousandths of a GPU.
        self._used: dict[str, int] = {}
        self._trees: dict[str, list[QuotaTree]] = {}
        self.evicted: dict[str, None] = {}
        # Jobs that this pass starts, repairs or gives a claim. Several routes lead to a job (its own turn, its
        # group, a claim, backfill), and it may be in one decision only.
        self.decided: set[str] = set()
        # Ranks that elastic gangs release in this pass.
        self._shrunk: dict[str, list[int]] = {}
        self._past: dict[str, float] | None = None
        # Queue -> its gangs that could be preempted, kept by `victim_search`.
        self.evictable: dict[str, list[Any]] = {}

    # -- devices -----------------------------------------------------------------------------

    @property
    def free(self) -> FreeDevices:
        """The devices that are free now. Copied on the first call, because most passes end before they need it."""
        if self._free is None:
            self._free = self.cluster.free.copy()
            self._fence(self._free)
            for fit in self._taken:
                self.allocate(self._free, fit)
        return self._free

    @property
    def free_readonly(self) -> FreeDevicesView:
        """The same for reading only: the state's own as long as this pass has allocated nothing."""
        if self._free is None and not self._taken and not self.cluster.exclusive:
            return self.cluster.free
        return self.free

    def lacks_devices(self, gang: Gang) -> bool:
        """Whether the number of free GPUs alone shows that the gang cannot start now."""
        return gang.gpus > self.cluster.free.total - self._given

    @property
    def future_free(self) -> FreeDevices:
        """The devices that are free once the gangs that are being stopped have released theirs."""
        if self._future_free is None:
            if not self._some_release:
                return self.free
            self._future_free = self.free.copy()
            for job, ranks in self._releasing():
                self.release_ranks(self._future_free, job, ranks)
        return self._future_free

    @property
    def _some_release(self) -> bool:
        return bool(self.cluster.stopping or self.cluster.shrinking)

    def _releasing(self) -> Iterator[tuple[Job, list[int] | None]]:
        """The jobs that are being stopped or shrink, and which of their ranks release devices; None means all."""
        jobs = self.cluster.jobs
        for job_id in sorted(self.cluster.stopping):
            yield jobs[job_id], None
        for job_id in sorted(self.cluster.shrinking):
            yield jobs[job_id], leaving(_attempt(jobs[job_id]))

    def _fence(self, free: FreeDevices) -> None:
        """Close the domains that gangs have to themselves."""
        if self.cluster.exclusive:
            fence(self.cluster, free, self.cluster.exclusive)

    def release_ranks(
        self, free: FreeDevices, job: Job, ranks: Iterable[int] | None = None
    ) -> None:
        """Release in `free` what these ranks of a job hold, or all of its ranks."""
        allocation.release(self.cluster, free, job, ranks)

    def ranks_staying(self, job: Job) -> list[int]:
        """The ranks that are not being released, by the state or by this pass."""
        attempt = _attempt(job)
        gone = {*leaving(attempt), *self._shrunk.get(job.id, ())}
        return [i for i in range(len(attempt.ranks)) if i not in gone]

    def has_shrunk(self, job: Job) -> bool:
        return job.id in self._shrunk

    def release(self, free: FreeDevices, job: Job, ranks: tuple[int, ...] = ()) -> None:
        """Release in `free` what these ranks of a running gang hold, or all ranks that stay.

        If all are released, a domain that the gang had to itself is open again.
        """
        self.release_ranks(free, job, ranks or self.ranks_staying(job))
        if job.id in self.cluster.exclusive and not ranks:
            left = [other for other in self.cluster.exclusive if other not in self.evicted]
            unfence(self.cluster, free, job.id, left)

    def release_fit(self, free: FreeDevices, fit: Fit) -> None:
        """Release in `free` a place that this pass allocated."""
        allocation.release_fit(self.cluster, free, fit)

    def allocate(self, free: FreeDevices, fit: Fit) -> None:
        """Allocate a place in `free`."""
        allocation.allocate(self.cluster, free, fit)

    # -- queues ------------------------------------------------------------------------------

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self.cluster.queues

    def queue_index(self, queue: str) -> QueueIndexView:
        """The queue's waiting jobs, in order."""
        return self.cluster.queue_indexes.get(queue, _EMPTY)

    def growing(self) -> list[Job]:
        """Running jobs whose gangs want more ranks, in the order in which they were submitted."""
        jobs = [self.cluster.jobs[job_id] for job_id in self.cluster.growing]
        return sorted(jobs, key=lambda job: job.submitted_position)

    def job(self, job_id: str) -> Job:
        return self.cluster.jobs[job_id]

    def gang(self, job_id: str) -> Gang:
        return self.cluster.gang(self.job(job_id))

    def used(self, queue: str) -> int:
        """GPUs that the queue's jobs hold, those of this pass included; shares are rounded up."""
        return -(-self.used_milli(queue) // WHOLE)

    def used_milli(self, queue: str) -> int:
        return self.cluster.used_milli(queue) + self._used.get(queue, 0)

    def decayed_usage(self, queue: str) -> float:
        """Past usage of the queue, decayed by the policy's half-life, in thousandths of a GPU; 0 without one."""
        halflife = self.cluster.policy.usage_halflife_s
        return 0.0 if halflife is None else self._history(halflife).get(queue, 0.0)

    def usage_with_history(self, branch: Branch) -> float:
        """What the queue uses now, plus its decayed past usage."""
        return branch.used_below + self.decayed_usage(branch.name)

    def _history(self, halflife: float) -> dict[str, float]:
        """Queue -> decayed GPU-seconds of ended attempts, spread over one half-life."""
        if self._past is None:
            now, past = self.now, dict[str, float]()
            for queue, (gpu_s, at) in self.cluster.usage.items():
                past[queue] = faded(gpu_s, now - at, halflife)
            for job in self.cluster.jobs.values():
                ended_at = None if job.attempt is None else job.attempt.ended_at
                if ended_at is not None and (had := attained_gpu_s(job)):
                    queue = job.spec.queue
                    past[queue] = past.get(queue, 0.0) + faded(had, now - ended_at, halflife)
            self._past = {queue: gpu_s * WHOLE / halflife for queue, gpu_s in past.items()}
        return self._past

    @property
    def has_quotas(self) -> bool:
        """Whether any queue has more than a ceiling of its own."""
        return self.cluster.queue_facts.has_quotas

    @property
    def preempts(self) -> bool:
        """Whether any gang may preempt another."""
        return self.cluster.queue_facts.preempts

    def preempt(self, queue: str) -> Preempt:
        return self.cluster.queue_facts.preempt(queue)

    def quota_key(self, queue: str, flavor: str) -> str:
        """The key of the quota tree in which a queue's gang of this flavour counts.

        If no queue of its tree has quotas by flavour, the flavour only selects nodes, and the quota is that of
        all GPUs.
        """
        return flavor if queue in self.cluster.queue_facts.queues_with_flavors else ANY

    def tree(self, flavor: str = ANY) -> QuotaTree:
        """Quotas and what is used of them now."""
        return self._pair(flavor)[0]

    def future_tree(self, flavor: str = ANY) -> QuotaTree:
        """Quotas, and what is used of them once the gangs that are being stopped are gone."""
        return self._pair(flavor)[1]

    def _pair(self, flavor: str) -> list[QuotaTree]:
        """`tree` and `future_tree`; the same object as long as no gang is being stopped."""
        pair = self._trees.get(flavor)
        if pair is None:
            now = QuotaTree(self.queues, flavor)
            now.set_usage([(name, self._own(flavor, name)) for name in self.queues])
            pair = self._trees[flavor] = [now, now]
            if self._some_release:
                pair[1] = now.twin(self.queues)
                for job_id in (*self.cluster.stopping, *self.cluster.shrinking):
                    job = self.cluster.jobs[job_id]
                    whole = job_id in self.cluster.stopping
                    self._uncharge(pair[1], job, None if whole else leaving(_attempt(job)))
        return pair

    @property
    def resources(self) -> list[str]:
        """The resources in addition to GPUs of which some queue has a quota, as keys of trees."""
        return self.cluster.queue_facts.resources

    def amount_held(self, job: Job, resource: str, ranks: Iterable[int] | None = None) -> int:
        """What a gang's pods, or those of some ranks, have requested of a resource."""
        there = self.ranks_staying(job) if ranks is None else ranks
        return self.gang(job.id).amount(resource.removeprefix(RESOURCE), there)

    def _own(self, flavor: str, name: str) -> int:
        """What the queue's jobs hold."""
        if flavor.startswith(RESOURCE):
            holders = self.cluster.holders.get(name, ())
            jobs = [self.cluster.jobs[job_id] for job_id in holders]
            return sum(self.amount_held(job, flavor, holding_ranks(job)) for job in jobs)
        if flavor != ANY:
            return self.cluster.used_flavors.get((name, flavor), 0)
        return self.cluster.used_milli(name)

    def _uncharge(self, tree: QuotaTree, job: Job, ranks: Iterable[int] | None = None) -> None:
        attempt = _attempt(job)
        if tree.flavor.startswith(RESOURCE):
            there = range(len(attempt.ranks)) if ranks is None else ranks
            tree.remove(job.spec.queue, self.amount_held(job, tree.flavor, there))
        elif tree.flavor in (ANY, attempt.flavor):
            tree.remove(job.spec.queue, held_milli(attempt, ranks))

    # -- what this pass decides --------------------------------------------------------------

    def start(self, gang: Gang, fit: Fit) -> None:
        """The gang starts at `fit` now."""
        if self._free is None:
            self._taken.append(fit)
        else:
            self.allocate(self._free, fit)
        if self._future_free is not None:
            self.allocate(self._future_free, fit)
        if _is_exclusive(gang):
            for view in {
                id(v): v for v in (self.free, self._future_free) if v is not None
            }.values():
                self.close_domain(view, gang, fit)
        self._given += gang.gpus
        self.decided.add(gang.id)
        self.charge(gang, fit.flavor)

    def close_domain(self, free: FreeDevices, gang: Gang, fit: Fit) -> None:
        """Close in `free` the domain that an exclusive gang has to itself at `fit`."""
        if _is_exclusive(gang):
            assert gang.topology is not None
            close(self.cluster, free, fit.placement, gang.topology.required)

    def charge(self, gang: Gang, flavor: str) -> None:
        """Charge the gang to its queue's quotas for the rest of this pass."""
        self._used[gang.queue] = self._used.get(gang.queue, 0) + gang.milli
        self._charge(gang, flavor)

    def discharge(self, gang: Gang, flavor: str) -> None:
        """The opposite of `charge`."""
        self._used[gang.queue] -= gang.milli
        self._charge(gang, flavor, -1)

    def add_ranks(self, more: Gang, place: Fit) -> None:
        """A running gang gets more ranks at `place`; `more` is a gang of just these ranks."""
        self.allocate(self.free, place)
        if self._future_free is not None:
            self.allocate(self._future_free, place)
        self.charge(more, place.flavor)

    def claim(self, gang: Gang, fit: Fit) -> None:
        """The gang starts at `fit` once the gangs that still hold some of it are gone."""
        assert self._future_free is not None
        self.decided.add(gang.id)
        self.allocate(self._future_free, fit)
        allocation.allocate_available(self.cluster, self.free, fit)
        if _is_exclusive(gang):
            self.close_domain(self._future_free, gang, fit)
            self.close_domain(self.free, gang, fit)
        self._charge(gang, fit.flavor)

    def reserve_quota(self, queue: str, milli: int, flavor: str = ANY) -> None:
        """Keep this much of the queue's quota from the other gangs of this pass."""
        now, future = self._pair(flavor)
        now.add(queue, milli)
        if future is not now:
            future.add(queue, milli)

    def _charge(self, gang: Gang, flavor: str, sign: int = 1) -> None:
        if self.has_quotas:
            amounts = dict.fromkeys((ANY, flavor), gang.milli)
            for name in self.resources:
                amounts[name] = gang.amount(name.removeprefix(RESOURCE))
            for name, amount in amounts.items():
                for tree in {id(t): t for t in self._pair(name)}.values():
                    (tree.add if sign > 0 else tree.remove)(gang.queue, amount)

    def evict(self, job: Job) -> None:
        """The whole gang will stop; what it holds counts as released in the future."""
        attempt = job.attempt
        assert attempt is not None
        if self._future_free is None:
            self._future_free = self.future_free if self._some_release else self.free.copy()
        self.evicted[job.id] = None
        self.evictable.pop(job.spec.queue, None)
        self.release(self._future_free, job)
        for flavor in {ANY, attempt.flavor, *self.resources}:
            pair = self._pair(flavor)
            if pair[1] is pair[0]:
                pair[1] = pair[0].twin(self.queues)
            self._uncharge(pair[1], job, self.ranks_staying(job))

    def shrink(self, job: Job, ranks: tuple[int, ...]) -> None:
        """These ranks will stop; what they hold counts as released in the future."""
        attempt = job.attempt
        assert attempt is not None
        if self._future_free is None:
            self._future_free = self.future_free if self._some_release else self.free.copy()
        self.release_ranks(self._future_free, job, ranks)
        self._shrunk.setdefault(job.id, []).extend(ranks)
        self.evictable.pop(job.spec.queue, None)
        for flavor in {ANY, attempt.flavor, *self.resources}:
            pair = self._pair(flavor)
            if pair[1] is pair[0]:
                pair[1] = pair[0].twin(self.queues)
            self._uncharge(pair[1], job, ranks)


def _is_exclusive(gang: Gang) -> bool:
    return gang.topology is not None and gang.topology.exclusive


def holding_ranks(job: Job) -> list[int]:
    """The ranks that hold devices."""
    return [i for i, rank in enumerate(_attempt(job).ranks) if rank.state in WITH_DEVICES]


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, job
    return job.attempt


def held_milli(attempt: Attempt, ranks: Iterable[int] | None = None) -> int:
    """What the attempt's ranks hold, in thousandths of a GPU."""
    total = 0
    for index in range(len(attempt.ranks)) if ranks is None else ranks:
        if attempt.ranks[index].state in WITH_DEVICES:
            total += attempt.share(index) or len(attempt.placement[index].devices) * WHOLE
    return total
