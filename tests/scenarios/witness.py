"""A witness of its own: what the system promises, checked with books that are kept here.

It reads the recorded events and the reports that went in, and nothing else: none of the control
plane's indexes, snapshots or quota trees. Its books are small and naive (everything is added up
anew, each time), so that a clever index that is wrong has no twin here. It asserts that

- no device has two owners, and no shared one is given away beyond its whole;
- devices are given back only when the cluster has reported that the rank ended;
- a gang is placed whole, or with its least, on nodes that take it, near each other if it asks;
- no decision takes a queue above its ceiling, its quota or what it may borrow;
- strict lines keep their order, growth waits for those who wait, and a line that lets others go
  past leaves no device idle that the first in line could use;
- no protected job is evicted, and none where eviction is not allowed;
- the gangs of a group start together;
- no more gangs start in a scheduling cycle, or have others evicted, than the policy allows;
- a job ends once.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import UNSET
from msgspec.structs import replace as with_fields

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Slot
from controlplane.model.failures import Cause
from controlplane.model.policy import (
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.model.spec import JobSpec, Role
from controlplane.state.image import DEFAULT_POLICY

WHOLE = 1_000
_STRICT = ("fifo", "sjf")
_LETS_PAST = ("fit", "sjffit")
# The reason with which a job waits for whom others give way.
_CLAIMED = "waiting_for_victims"


@dataclass
class RankBook:
    slot: Slot
    share: int = 0
    # How often it was started anew within the attempt.
    run: int = 0
    holding: bool = True
    # Its process has ended; it is to run once more.
    over: bool = False
    retrying: bool = False

    @property
    def milli(self) -> int:
        return self.share or WHOLE * len(self.slot.devices)


@dataclass
class JobBook:
    spec: JobSpec
    submitted_at: float
    queue_position: int
    waiting: bool = True
    # It waits for other jobs, and is in no queue before they have ended.
    depends: bool = False
    awake: bool = True
    claimed: bool = False
    attempt: int = 0
    flavor: str = ""
    safe_until: float | None = None
    ranks: list[RankBook] = field(default_factory=list)
    ended: str = ""

    @property
    def holding(self) -> list[RankBook]:
        return [rank for rank in self.ranks if rank.holding]


@dataclass(frozen=True)
class NodeBook:
    info: NodeInfo
    ready: bool = True
    cordoned: bool = False
    removed: bool = False


class Witness:
    def __init__(self) -> None:
        self.jobs: dict[str, JobBook] = {}
        self.nodes: dict[str, NodeBook] = {}
        self.queues: dict[str, Queue] = {"default": Queue("default")}
        self.policy: Policy = DEFAULT_POLICY
        # Ranks whose end was reported: (job, attempt, rank, run).
        self._reported: set[tuple[str, int, int, int]] = set()
        self._nodes_gone: set[str] = set()
        # The groups of which a gang was placed in this batch.
        self._groups: set[str] = set()
        # When the scheduling cycle began, and the gangs that were admitted in it.
        self._cycle_at = -math.inf
        self._admitted: list[str] = []
        self._handlers: dict[type[e.Event], Callable[..., None]] = {
            e.JobSubmitted: self._submitted,
            e.DependenciesMet: self._dependencies_met,
            e.JobRequeued: self._requeued,
            e.GangWaiting: self._held,
            e.JobUnschedulable: self._set_aside,
            e.JobSchedulable: self._back_in_line,
            e.GangPlaced: self._placed,
            e.RanksAdded: self._added,
            e.RanksReplaced: self._replaced,
            e.RanksExited: self._exited,
            e.RanksGone: self._gone,
            e.RanksLost: self._lost,
            e.RanksReleased: self._lost,
            e.RankRestarting: self._rank_restarting,
            e.RankRelaunched: self._relaunched,
            e.JobRestarting: self._restarting,
            e.JobSuspended: self._suspended,
            e.JobResumed: self._resumed,
            e.JobSucceeded: self._ended,
            e.JobFailed: self._ended,
            e.JobCancelled: self._ended,
            e.AttemptEnded: self._attempt_ended,
            e.JobScaled: self._scaled,
            e.JobAmended: self._amended,
            e.JobRemoved: self._removed,
            e.ProtectionEnded: self._protection_ended,
            e.NodeReported: self._node_reported,
            e.NodeLost: self._node_lost,
            e.NodeRemoved: self._node_removed,
            e.NodeCordoned: self._node_cordoned,
            e.NodeUncordoned: self._node_uncordoned,
            e.QueueDefined: self._queue_defined,
            e.QueueRemoved: self._queue_removed,
            e.PolicySet: self._policy_set,
        }

    # -- what passes ---------------------------------------------------------------------------

    def see_report(self, report: c.Report) -> None:
        """A report that reached the engine."""
        if isinstance(report, c.ReportRanks):
            over = (*(each.rank for each in report.exited), *report.gone)
            for rank in over:
                self._reported.add((report.job, report.attempt, rank, report.incarnation))
        elif isinstance(report, c.ReportNodeRemoved):
            self._nodes_gone.add(report.node)

    def see(self, batch: Sequence[e.Recorded]) -> None:
        """What one append wrote: the events of one step."""
        self._groups.clear()
        for recorded in batch:
            handle = self._handlers.get(type(recorded.event))
            if handle is not None:
                handle(recorded.event, recorded)
        self._check_groups()
        self._check_nothing_idle(batch[-1])

    def finish(self) -> None:
        left = {name: job for name, job in self.jobs.items() if job.holding}
        assert not left, f"these still hold devices: {left}"

    # -- jobs ----------------------------------------------------------------------------------

    def _submitted(self, event: e.JobSubmitted, recorded: e.Recorded) -> None:
        assert event.job not in self.jobs, f"{event.job} was submitted twice"
        book = JobBook(event.spec, recorded.at, recorded.position)
        book.depends, book.waiting = bool(event.after), not event.after
        self.jobs[event.job] = book

    def _dependencies_met(self, event: e.DependenciesMet, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        assert job.depends, f"{event.job} waited for nothing"
        job.depends, job.queue_position = False, recorded.position
        job.waiting = job.awake

    def _requeued(self, event: e.JobRequeued, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        assert not job.holding, f"{event.job} waits, and holds devices of its last attempt"
        job.waiting = not job.depends
        if not event.keeps_place:
            job.queue_position = recorded.position

    def _held(self, event: e.GangWaiting, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        if event.code == _CLAIMED and not job.claimed:
            self._count(event.job, recorded.at)
        job.claimed = event.code == _CLAIMED

    def _set_aside(self, event: e.JobUnschedulable, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        job.waiting = job.claimed = False

    def _back_in_line(self, event: e.JobSchedulable, recorded: e.Recorded) -> None:
        self.jobs[event.job].waiting = True

    def _placed(self, event: e.GangPlaced, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        assert job.waiting, f"{event.job} was placed, and did not wait"
        assert event.attempt == job.attempt + 1, f"{event.job}: attempts are counted one by one"
        self._check_size(job, len(event.placement))
        self._check_order(event.job, job)
        self._count(event.job, recorded.at)
        job.attempt, job.flavor = event.attempt, event.flavor
        job.safe_until = event.safe_until
        job.waiting = job.claimed = False
        if job.spec.scheduling.group:
            self._groups.add(job.spec.scheduling.group)
        before = self._held_by_queue()
        shares = event.shares or (0,) * len(event.placement)
        job.ranks = [RankBook(s, share) for s, share in zip(event.placement, shares, strict=True)]
        self._check_taken(event.job, range(len(job.ranks)), before)

    def _added(self, event: e.RanksAdded, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        waiting = self._waiting_in(job.spec.queue)
        assert not waiting, f"{event.job} grows, and {waiting} of its queue still wait"
        old, before = job.ranks, self._held_by_queue()
        assert not any(rank.holding for rank in old[event.first :]), "its number is still in use"
        new = [
            RankBook(slot, run=old[i].run + 1 if i < len(old) else 0)
            for i, slot in enumerate(event.placement, event.first)
        ]
        job.ranks = [*old[: event.first], *new]
        assert len(job.ranks) <= job.spec.size, f"{event.job} has more ranks than it asks for"
        self._check_taken(event.job, range(event.first, len(job.ranks)), before)

    def _replaced(self, event: e.RanksReplaced, recorded: e.Recorded) -> None:
        job, before = self.jobs[event.job], self._held_by_queue()
        for i, slot in zip(event.ranks, event.slots, strict=True):
            assert not job.ranks[i].holding, f"rank {i} of {event.job} is replaced, and still there"
            job.ranks[i] = RankBook(slot, job.ranks[i].share, job.ranks[i].run + 1)
        self._check_taken(event.job, event.ranks, before)

    def _exited(self, event: e.RanksExited, recorded: e.Recorded) -> None:
        for end in event.exits:
            self._rank_over(event.job, end.rank)

    def _gone(self, event: e.RanksGone, recorded: e.Recorded) -> None:
        for rank in event.ranks:
            self._rank_over(event.job, rank)

    def _rank_over(self, job_id: str, index: int) -> None:
        job = self.jobs[job_id]
        rank = job.ranks[index]
        known = (job_id, job.attempt, index, rank.run) in self._reported
        left = self.nodes[rank.slot.node].removed
        assert known or left, f"rank {index} of {job_id} ended, and nothing reported that"
        rank.over = True
        rank.holding = rank.retrying

    def _lost(self, event: e.RanksLost | e.RanksReleased, recorded: e.Recorded) -> None:
        for index in event.ranks:
            rank = self.jobs[event.job].ranks[index]
            if rank.retrying:
                # In back-off it has no process, so nothing more will be reported of it.
                rank.retrying, rank.holding = False, not rank.over

    def _rank_restarting(self, event: e.RankRestarting, recorded: e.Recorded) -> None:
        rank = self.jobs[event.job].ranks[event.rank]
        rank.retrying = rank.holding = True

    def _relaunched(self, event: e.RankRelaunched, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        old = job.ranks[event.rank]
        assert old.holding, "a rank runs once more on devices that it still has"
        assert old.over, "a rank runs once more only when its process is gone"
        job.ranks[event.rank] = RankBook(old.slot, old.share, old.run + 1)

    def _stop(self, job: JobBook) -> None:
        """No rank runs once more; one without a process lets go at once."""
        job.waiting = job.claimed = False
        for rank in job.ranks:
            if rank.retrying:
                rank.retrying, rank.holding = False, not rank.over

    def _restarting(self, event: e.JobRestarting, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        if not recorded.cause:
            self._check_eviction(event, job, recorded.at)
        self._stop(job)

    def _suspended(self, event: e.JobSuspended, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        job.awake = False
        self._stop(job)

    def _resumed(self, event: e.JobResumed, recorded: e.Recorded) -> None:
        self.jobs[event.job].awake = True

    def _ended(self, event: e.JobEvent, recorded: e.Recorded) -> None:
        job, how = self.jobs[event.job], type(event).__name__
        assert not job.ended, f"{event.job} ended twice: {job.ended} and {how}"
        job.ended, job.awake = how, False
        self._stop(job)

    def _attempt_ended(self, event: e.AttemptEnded, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        assert not job.holding, f"the attempt of {event.job} is over, and ranks hold devices"

    def _scaled(self, event: e.JobScaled, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        roles = tuple(
            with_fields(role, replicas=event.replicas) if role.name == event.role else role
            for role in job.spec.roles
        )
        job.spec = with_fields(job.spec, roles=roles)

    def _amended(self, event: e.JobAmended, recorded: e.Recorded) -> None:
        job = self.jobs[event.job]
        if event.active_deadline_s is not UNSET:
            job.spec = with_fields(job.spec, active_deadline_s=event.active_deadline_s)

    def _removed(self, event: e.JobRemoved, recorded: e.Recorded) -> None:
        job = self.jobs.pop(event.job)
        assert job.ended, f"{event.job} is removed before it has ended"
        assert not job.holding, f"{event.job} is removed and holds devices"

    def _protection_ended(self, event: e.ProtectionEnded, recorded: e.Recorded) -> None:
        self.jobs[event.job].safe_until = None

    # -- nodes, queues, policy -----------------------------------------------------------------

    def _node_reported(self, event: e.NodeReported, recorded: e.Recorded) -> None:
        known = self.nodes.get(event.node)
        cordoned = known is not None and known.cordoned
        self.nodes[event.node] = NodeBook(event.info, cordoned=cordoned)

    def _node_lost(self, event: e.NodeLost, recorded: e.Recorded) -> None:
        self.nodes[event.node] = replace(self.nodes[event.node], ready=False)

    def _node_removed(self, event: e.NodeRemoved, recorded: e.Recorded) -> None:
        self.nodes[event.node] = replace(self.nodes[event.node], ready=False, removed=True)

    def _node_cordoned(self, event: e.NodeCordoned, recorded: e.Recorded) -> None:
        self.nodes[event.node] = replace(self.nodes[event.node], cordoned=True)

    def _node_uncordoned(self, event: e.NodeUncordoned, recorded: e.Recorded) -> None:
        self.nodes[event.node] = replace(self.nodes[event.node], cordoned=False)

    def _queue_defined(self, event: e.QueueDefined, recorded: e.Recorded) -> None:
        self.queues[event.queue.name] = event.queue

    def _queue_removed(self, event: e.QueueRemoved, recorded: e.Recorded) -> None:
        del self.queues[event.name]

    def _policy_set(self, event: e.PolicySet, recorded: e.Recorded) -> None:
        known, policy = self.policy, event.policy
        if (known.starts_per_cycle_max, known.cycle_s) != (
            policy.starts_per_cycle_max,
            policy.cycle_s,
        ):
            self._cycle_at = -math.inf
        self.policy = policy

    # -- the limit on starts -------------------------------------------------------------------

    def _count(self, job_id: str, at: float) -> None:
        most = self.policy.starts_per_cycle_max
        if most is None:
            return
        if at >= self._cycle_at + self.policy.cycle_s:
            self._cycle_at, self._admitted = at, []
        self._admitted.append(job_id)
        groups = {self.jobs[i].spec.scheduling.group for i in self._admitted if i in self.jobs}
        one_group = len(groups) == 1 and "" not in groups
        assert len(self._admitted) <= most or one_group, (
            f"{self._admitted} start in one cycle, and at most {most} may"
        )

    def _is_limited(self, at: float) -> bool:
        """Whether gangs may have to wait for the next cycle, though they fit."""
        most = self.policy.starts_per_cycle_max
        if most is None or at >= self._cycle_at + self.policy.cycle_s:
            return False
        grouped = any(j.waiting and j.spec.scheduling.group for j in self.jobs.values())
        return len(self._admitted) >= most or grouped

    # -- devices and places --------------------------------------------------------------------

    def _check_taken(self, job_id: str, ranks: Sequence[int], before: Counter[str]) -> None:
        """These ranks of a job have just got their slots."""
        job = self.jobs[job_id]
        for index in ranks:
            self._check_slot(job_id, job, index)
        for node in {job.ranks[index].slot.node for index in ranks}:
            self._check_owners(node)
        self._check_near(job_id, job)
        self._check_fences(job_id, job, ranks)
        gpus = sum(job.ranks[index].milli for index in ranks)
        if gpus:
            self._check_ceilings(job_id, job, before)

    def _check_slot(self, job_id: str, job: JobBook, index: int) -> None:
        """The rank has what its role asks for, on a node that takes it."""
        rank, role = job.ranks[index], job.spec.role_of(index)[0]
        what = f"rank {index} of {job_id} on {rank.slot}"
        node = self.nodes[rank.slot.node]
        if rank.slot.devices:
            takes_work = node.ready and not node.cordoned
            assert takes_work, f"{what}: the node takes no work"
        there = set(range(node.info.gpus)) - set(node.info.unusable)
        assert set(rank.slot.devices) <= there, f"{what}: no such device"
        self._check_amount(what, role, rank, node.info)
        if role.node:
            assert rank.slot.node == role.node, f"{what}: pinned to {role.node}"
            assert not role.devices or rank.slot.devices == role.devices, f"{what}: {role.devices}"
        if rank.slot.devices:
            self._check_admits(what, job, node.info)

    def _check_amount(self, what: str, role: Role, rank: RankBook, info: NodeInfo) -> None:
        if role.gpu_share or role.gpu_memory_mib:
            assert len(rank.slot.devices) == 1, f"{what}: a share is of one device"
            asked = role.gpu_share or -(-role.gpu_memory_mib * WHOLE // info.gpu_memory_mib)
            assert rank.share == asked, f"{what}: has {rank.share}, not {asked} thousandths"
        else:
            gpus = role.gpus or len(role.devices)
            assert len(rank.slot.devices) == gpus, f"{what}: needs {gpus} devices"

    def _check_admits(self, what: str, job: JobBook, info: NodeInfo) -> None:
        asks = job.spec.scheduling
        assert asks.selector.items() <= info.labels.items(), f"{what}: {asks.selector}"
        guest = asks.away_priority is not None
        assert guest or set(info.taints) <= set(asks.tolerates), f"{what}: taints {info.taints}"
        if job.flavor:
            assert info.flavor == job.flavor, f"{what}: charged as {job.flavor}"

    def _check_owners(self, node: str) -> None:
        taken = Counter[int]()
        for job in self.jobs.values():
            for rank in job.holding:
                if rank.slot.node == node:
                    for device in rank.slot.devices:
                        taken[device] += rank.share or WHOLE
        over = {device: milli for device, milli in taken.items() if milli > WHOLE}
        assert not over, f"devices of {node} are given away more than once: {over}"

    def _check_near(self, job_id: str, job: JobBook) -> None:
        asks = job.spec.scheduling.topology
        if asks.required:
            domains = {self._domain(rank.slot.node, asks.required) for rank in _with_gpus(job)}
            assert len(domains) <= 1, f"{job_id} asks for one {asks.required}, and has {domains}"

    def _check_fences(self, job_id: str, job: JobBook, ranks: Sequence[int]) -> None:
        """Nothing of another gang in a domain that one has for itself."""
        mine = [job.ranks[index].slot for index in ranks if job.ranks[index].milli]
        for other_id, other in self.jobs.items():
            if other_id == job_id:
                continue
            theirs = [rank.slot for rank in _with_gpus(other)]
            for owner, guests in ((job, theirs), (other, mine)):
                asks = owner.spec.scheduling.topology
                if asks.exclusive:
                    level = asks.required
                    own = {self._domain(rank.slot.node, level) for rank in _with_gpus(owner)}
                    shared = own & {self._domain(slot.node, level) for slot in guests}
                    assert not shared, f"{job_id} and {other_id} are both in {shared}"

    def _domain(self, node: str, level: str) -> tuple[str, ...]:
        """The domain of a level, from the outermost down, in which a node is."""
        info, levels = self.nodes[node].info, self.policy.levels
        path = (*(info.path or (info.rack,)), node)
        if level == "node":
            return (node,)
        return path[: levels.index(level) + 1]

    # -- sizes and groups ----------------------------------------------------------------------

    def _check_size(self, job: JobBook, ranks: int) -> None:
        spec = job.spec
        least = spec.size
        if spec.min_available is not None:
            least = min(least, max(1, spec.min_available))
        last = spec.roles[-1]
        if last.min_replicas is not None:
            least = min(least, spec.size - last.replicas + max(1, last.min_replicas))
        assert least <= ranks <= spec.size, f"{ranks} ranks of {spec.size}, at least {least}"

    def _check_groups(self) -> None:
        for group in self._groups:
            members = [
                (name, job)
                for name, job in self.jobs.items()
                if job.spec.scheduling.group == group and not job.ended
            ]
            left = [name for name, job in members if job.waiting]
            assert not left, f"{group} was started without {left}"
            awake = sum(job.awake for _, job in members)
            size = max(job.spec.scheduling.group_size for _, job in members)
            assert awake >= size, f"{group} was started with {awake} of {size} gangs"

    # -- quotas --------------------------------------------------------------------------------

    def _held_by_queue(self, flavor: str = "") -> Counter[str]:
        """Queue -> thousandths of GPUs that its jobs hold; of one flavour if one is given."""
        held = Counter[str]()
        for job in self.jobs.values():
            if not flavor or job.flavor == flavor:
                held[job.spec.queue] += sum(rank.milli for rank in job.holding)
        return held

    def _check_ceilings(self, job_id: str, job: JobBook, before: Counter[str]) -> None:
        after = self._held_by_queue()
        for queue in self._path(job.spec.queue):
            below = sum(after[name] for name in self._subtree(queue.name))
            if queue.gpus_max is not None:
                most = queue.gpus_max * WHOLE
                problem = f"{job_id} takes {queue.name} to {below} of gpus_max {most} thousandths"
                assert below <= most, problem
        if self.policy.model in ("quota_classic", "quota_fair"):
            self._check_quotas(job_id, job, before, after)

    def _check_quotas(
        self, job_id: str, job: JobBook, before: Counter[str], after: Counter[str]
    ) -> None:
        """Where it was too much before, as after a quota was lowered, nothing may be added to it."""
        flavor = job.flavor if self._reports_flavors(job.spec.queue) else ""
        if flavor:
            after = self._held_by_queue(flavor)
            taken = self._held_by_queue()[job.spec.queue] - before[job.spec.queue]
            before = after.copy()
            before[job.spec.queue] -= taken
        for queue in self._path(job.spec.queue):
            limit = self._quota_limit(queue, flavor)
            used = self._used(queue, after, flavor)
            if limit is not None and used > limit:
                problem = f"{job_id} takes {queue.name} to {used} of {limit} thousandths by quota"
                assert used <= self._used(queue, before, flavor), problem

    def _reports_flavors(self, name: str) -> bool:
        """Whether a queue of its tree states quotas by flavour."""
        *_, root = self._path(name)
        return any(self.queues[below].flavors for below in self._subtree(root.name))

    def _quota_limit(self, queue: Queue, flavor: str) -> int | None:
        """What the queue and those below it may have of what they share with others."""
        if not queue.parent:
            alone = not any(other.parent == queue.name for other in self.queues.values())
            stated = _quota(queue, flavor)[0] is not None
            return None if alone and not stated else self._owned(queue, flavor)
        borrow = _quota(queue, flavor)[1]
        return None if borrow is None else self._owned(queue, flavor) + borrow * WHOLE

    def _owned(self, queue: Queue, flavor: str) -> int:
        """Its own quota, and what those below it lend."""
        nominal = _quota(queue, flavor)[0] or 0
        lent = sum(
            self._owned(child, flavor) - self._kept(child, flavor)
            for child in self._children(queue)
        )
        return nominal * WHOLE + lent

    def _kept(self, queue: Queue, flavor: str) -> int:
        """What it lends to none."""
        lend = _quota(queue, flavor)[2]
        if lend is None or not queue.parent:
            return 0
        return max(0, self._owned(queue, flavor) - lend * WHOLE)

    def _used(self, queue: Queue, held: Counter[str], flavor: str) -> int:
        """What it has, and what those below it have beyond what they keep for themselves."""
        return held[queue.name] + sum(
            max(0, self._used(child, held, flavor) - self._kept(child, flavor))
            for child in self._children(queue)
        )

    def _children(self, queue: Queue) -> list[Queue]:
        return [other for other in self.queues.values() if other.parent == queue.name]

    def _subtree(self, name: str) -> Iterator[str]:
        yield name
        for child in self._children(self.queues[name]):
            yield from self._subtree(child.name)

    def _path(self, name: str) -> Iterator[Queue]:
        """The queue, and those above it."""
        while name:
            yield self.queues[name]
            name = self.queues[name].parent

    # -- fairness ------------------------------------------------------------------------------

    def _discipline(self, queue: str) -> str:
        return self.queues[queue].discipline or self.policy.discipline

    def _waiting_in(self, queue: str) -> list[str]:
        return [n for n, job in self.jobs.items() if job.waiting and job.spec.queue == queue]

    def _check_order(self, job_id: str, job: JobBook) -> None:
        """In a strict line nothing starts before what stands ahead of it.

        Gangs of a group come with the first of them. One for which others give way has its place, so
        those behind it move up meanwhile; and it gets that place before all others.
        """
        queue = job.spec.queue
        if self._discipline(queue) not in _STRICT or job.claimed or job.spec.scheduling.group:
            return
        mine = self._place(job)
        for other_id in self._waiting_in(queue):
            other = self.jobs[other_id]
            theirs = self._place(other)
            if mine is not None and theirs is not None and not other.claimed:
                assert mine <= theirs, f"{job_id} starts, and {other_id} stands ahead of it"

    def _place(self, job: JobBook) -> tuple[float, ...] | None:
        """Its place in a strict line; None where that hangs on an estimate that it does not bring."""
        aged = self.policy.ageing_per_hour * job.submitted_at / 3_600.0
        first = float(-job.spec.priority) + aged
        if self._discipline(job.spec.queue) == "fifo":
            return first, job.queue_position
        estimate = job.spec.scheduling.estimate_s
        return None if estimate is None else (first, estimate, job.queue_position)

    def _check_nothing_idle(self, last: e.Recorded) -> None:
        """Without quotas, claims and fences: who may go past others and fits, does not wait."""
        if self._is_limited(last.at):
            return
        if any(q.parent or q.nominal is not None or q.flavors for q in self.queues.values()):
            return
        holders = [job for job in self.jobs.values() if job.holding]
        fenced = any(job.spec.scheduling.topology.exclusive for job in holders)
        if fenced or any(job.claimed for job in self.jobs.values()):
            return
        free = self._free_devices()
        held = self._held_by_queue()
        for name, job in self.jobs.items():
            queue = self.queues[job.spec.queue]
            if not job.waiting or self._discipline(queue.name) not in _LETS_PAST:
                continue
            if not _is_single(job.spec):
                continue
            gpus = job.spec.roles[0].gpus
            most = queue.gpus_max
            allowed = most is None or held[queue.name] + gpus * WHOLE <= most * WHOLE
            room = [node for node, count in free.items() if count >= gpus]
            assert not (allowed and room), (
                f"at {last.position} {name} waits for {gpus} GPUs, and {room} have them"
            )

    def _free_devices(self) -> dict[str, int]:
        """Node -> whole devices that are free, of the nodes that accept every job."""
        held = {
            (rank.slot.node, device)
            for job in self.jobs.values()
            for rank in job.holding
            for device in rank.slot.devices
        }
        return {
            name: sum((name, device) not in held for device in range(node.info.gpus))
            for name, node in self.nodes.items()
            if node.ready and not node.cordoned and not node.info.taints and not node.info.unusable
        }

    # -- evictions -----------------------------------------------------------------------------

    def _check_eviction(self, event: e.JobRestarting, job: JobBook, at: float) -> None:
        cause = event.restart.cause
        if cause not in (Cause.PREEMPTION, Cause.CONSOLIDATION):
            return
        assert job.spec.scheduling.preemptible, f"{event.job} was evicted, and is not preemptible"
        assert not event.restart.spends_budget or job.spec.restart.counts_platform
        if cause is Cause.CONSOLIDATION:
            assert self.policy.consolidate, f"{event.job} was moved, which the policy forbids"
            return
        safe = job.safe_until
        assert safe is None or safe <= at, f"{event.job} was evicted, and is safe until {safe}"
        assert self._evicts(), f"{event.job} was evicted, which the policy forbids"

    def _evicts(self) -> bool:
        if self.policy.model not in ("quota_classic", "progressive_filling"):
            return True
        by_step = any(self._discipline(q) == "tiresias" for q in self.queues)
        rules = [queue.preempt or self.policy.preempt for queue in self.queues.values()]
        return by_step or self.policy.consolidate or any(map(_may_evict, rules))


def _may_evict(rule: Preempt) -> bool:
    never = rule.within_queue is WithinQueue.NEVER and rule.reclaim is Reclaim.NEVER
    return not never or rule.borrow_below is not None


def _quota(queue: Queue, flavor: str) -> tuple[int | None, int | None, int | None]:
    """What the queue owns, may borrow and lends; of one flavour if one is given."""
    if not flavor:
        return queue.nominal, queue.borrow_max, queue.lend_max
    for quota in queue.flavors:
        if quota.name == flavor:
            return quota.nominal, quota.borrow_max, quota.lend_max
    return (0 if queue.flavors else None), None, None


def _is_single(spec: JobSpec) -> bool:
    """One rank with whole GPUs that asks for nothing else."""
    role, asks = spec.roles[0], spec.scheduling
    constrained = asks.selector or asks.flavors or asks.group or asks.topology.required
    constrained = constrained or asks.topology.slice_level or asks.members_missing or role.node
    alone = len(spec.roles) == 1 and role.replicas == 1
    return alone and role.gpus > 0 and not constrained and not spec.is_external


def _with_gpus(job: JobBook) -> list[RankBook]:
    return [rank for rank in job.holding if rank.milli]
