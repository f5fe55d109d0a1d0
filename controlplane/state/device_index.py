"""Index of devices: which are free, which job holds which, and how much each queue uses.

A rank holds the devices of its slot from its placement until the cluster reports that the rank is gone.
`update` compares a job before and after an event and moves only what changed: the ranks that released
their devices and the ranks that got some. Everything here can be computed from the state; `check` does so
and compares.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from controlplane.lifecycle.attempt import Attempt, leaving, missing, replaces_missing
from controlplane.lifecycle.job import Job, ranks_wanted
from controlplane.model.cluster import Slot
from controlplane.model.phases import LIVE, WITH_DEVICES, AttemptState
from controlplane.model.resources import Amounts, has_plain_pods, of_rank, requests_of
from controlplane.model.spec import JobSpec, grows
from controlplane.state.devices import WHOLE, FreeDevices, mask_of
from controlplane.state.image import Node
from controlplane.state.state import State

# The GPUs of a node, and the amounts of its other resources, sorted by name.
NodeShape = tuple[int, tuple[tuple[str, int], ...]]


class DeviceIndex:
    """Free devices by node, and the jobs that hold the others."""

    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._state = state
        # Free devices, and the names of the nodes, both by ordinal.
        self.free = FreeDevices()
        self.node_names: list[str] = []
        # How many nodes of the cluster have this number of GPUs; these GPUs and other resources; devices
        # with this much memory in MiB; GPUs of this flavour.
        self.nodes_by_size: dict[int, int] = {}
        self.nodes_by_shape: dict[NodeShape, int] = {}
        self.nodes_by_memory: dict[int, int] = {}
        self.nodes_by_flavor: dict[str, int] = {}
        # Node -> the jobs that hold devices there, with the number of their ranks that do.
        self.jobs_by_node: dict[str, dict[str, int]] = {}
        # Queue -> GPUs that its jobs hold; shared devices, and GPUs by flavour, in thousandths of a GPU.
        self.used: dict[str, int] = {}
        self.used_parts: dict[str, int] = {}
        self.used_flavors: dict[tuple[str, str], int] = {}
        # Jobs whose attempt is not over; and the same by queue.
        self.live: dict[str, None] = {}
        self.holders: dict[str, dict[str, None]] = {}
        # Of these: the jobs that are being stopped, that release some ranks, that have a topology domain
        # to themselves, that wait for lost ranks to be replaced, and that want more ranks than they have.
        self.stopping: dict[str, None] = {}
        self.shrinking: dict[str, None] = {}
        self.exclusive: dict[str, None] = {}
        self.degraded: dict[str, None] = {}
        self.growing: dict[str, None] = {}
        # What one rank of each role requests in addition to GPUs, of the jobs that request something.
        self.requests: dict[str, tuple[Amounts, ...]] = {}
        for node in state.nodes.values():
            self.update_node(None, node)
        for job in state.jobs.values():
            attempt = job.attempt
            if attempt is not None and attempt.state is not AttemptState.OVER:
                self._allocate(job, attempt, _holding(attempt))
                self._add_holder(job, attempt)
                self._note_growth(job)

    # -- queries -----------------------------------------------------------------------------

    def used_milli(self, queue: str) -> int:
        """What the jobs of a queue hold, in thousandths of GPUs."""
        return self.used.get(queue, 0) * WHOLE + self.used_parts.get(queue, 0)

    @property
    def memories_mib(self) -> tuple[int, ...]:
        """The sizes of memory that the devices of the cluster have, smallest first."""
        return tuple(sorted(self.nodes_by_memory))

    def capacity_for(self, gpus: int) -> int:
        """How many ranks with `gpus` GPUs each the whole cluster has room for when it is empty."""
        sizes = self.nodes_by_size.items()
        return sum(count * (size // gpus) if gpus else count for size, count in sizes)

    def ranks_on(self, node: str) -> Iterator[tuple[Job, list[int]]]:
        """The jobs that hold devices on a node, each with its ranks there."""
        for job_id in sorted(self.jobs_by_node.get(node, ())):
            job = self._state.jobs[job_id]
            attempt = job.attempt
            assert attempt is not None
            yield job, [i for i in _holding(attempt) if attempt.placement[i].node == node]

    # -- jobs --------------------------------------------------------------------------------

    def update(self, before: Job | None, after: Job | None) -> None:
        """Follow one job through an event; None stands for a job that does not exist."""
        if before is None or after is None or after.attempt is None:
            # A job comes without an attempt, and goes when its last one is over.
            return
        amended = before.spec is not after.spec
        if amended:
            self._update_requests(before, after)
        if before.attempt is not after.attempt:
            self._update_attempt(before.attempt, after)
        if amended:
            self._note_growth(after)
            if after.attempt.state is not AttemptState.OVER:
                self._add_holder(after, after.attempt)

    def _update_attempt(self, old: Attempt | None, job: Job) -> None:
        new = job.attempt
        assert new is not None, "an attempt never vanishes"
        if grows(job.spec):
            self._note_growth(job)
        if old is None or old.number != new.number:
            self._allocate(job, new, range(len(new.ranks)))
            self._add_holder(job, new)
            return
        changed = [] if old.ranks is new.ranks else _changed(old, new)
        if new.state is AttemptState.OVER:
            self._remove_holder(job)
        elif new.state is not old.state and new.state is AttemptState.STOPPING:
            self._add_holder(job, new)
        elif changed:
            if any(new.ranks[i].released for i in changed):
                self._note_leaving(job, new)
            if replaces_missing(job.spec):
                self._note_repair(job, new)
        if changed:
            self._move(job, old, new, changed)
        if new.state is AttemptState.OVER:
            self.requests.pop(job.id, None)

    def _move(self, job: Job, old: Attempt, new: Attempt, changed: list[int]) -> None:
        """Release what the changed ranks no longer hold, and allocate what they have got."""
        before, after = old.ranks, new.ranks
        released, allocated = [], []
        for i in changed:
            held = i < len(before) and before[i].state in WITH_DEVICES
            holds = after[i].state in WITH_DEVICES
            if held and holds and old.placement[i] is new.placement[i]:
                continue
            if held:
                released.append(i)
            if holds:
                allocated.append(i)
        if released:
            self._release(job, old, released)
        if allocated:
            self._allocate(job, new, allocated)

    def _allocate(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        gpus, parts, shares = 0, 0, attempt.shares
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self._state.nodes[slot.node]
            if shares and attempt.share(rank):
                self.free.allocate_share(node.ordinal, slot.devices[0], shares[rank])
                parts += shares[rank]
            else:
                self.free.allocate(node.ordinal, _devices_there(slot, node))
                gpus += len(slot.devices)
            jobs = self.jobs_by_node[slot.node]
            jobs[job.id] = jobs.get(job.id, 0) + 1
        if job.id not in self.requests and (requests := _requests(job.spec)):
            self.requests[job.id] = requests
        self._hold_amounts(job, attempt, ranks)
        self._charge(job.spec.queue, attempt.flavor, gpus, parts)

    def _release(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        gpus, parts, shares = 0, 0, attempt.shares
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self._state.nodes[slot.node]
            if shares and attempt.share(rank):
                whole = node.devices
                self.free.release_share(node.ordinal, slot.devices[0], shares[rank], whole=whole)
                parts += shares[rank]
            else:
                self.free.release(node.ordinal, _devices_there(slot, node))
                gpus += len(slot.devices)
            jobs = self.jobs_by_node[slot.node]
            jobs[job.id] -= 1
            if not jobs[job.id]:
                del jobs[job.id]
        self._release_amounts(job, attempt, ranks)
        self._charge(job.spec.queue, attempt.flavor, -gpus, -parts)

    def _charge(self, queue: str, flavor: str, gpus: int, parts: int) -> None:
        self.used[queue] = self.used.get(queue, 0) + gpus
        if parts:
            self.used_parts[queue] = self.used_parts.get(queue, 0) + parts
        if flavor:
            key = queue, flavor
            self.used_flavors[key] = self.used_flavors.get(key, 0) + gpus * WHOLE + parts

    def _update_requests(self, before: Job, after: Job) -> None:
        """An amended spec states anew what the ranks of the live attempt request."""
        attempt = before.attempt
        if attempt is None or attempt.state is AttemptState.OVER:
            return
        self._release_amounts(before, attempt, _holding(attempt))
        if requests := _requests(after.spec):
            self.requests[after.id] = requests
        else:
            self.requests.pop(after.id, None)
        self._hold_amounts(after, attempt, _holding(attempt))

    def _hold_amounts(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        for ordinal, amounts in self._amounts(job, attempt, ranks):
            self.free.allocate_amounts(ordinal, amounts)

    def _release_amounts(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        for ordinal, amounts in self._amounts(job, attempt, ranks):
            self.free.release_amounts(ordinal, amounts)

    def _amounts(
        self, job: Job, attempt: Attempt, ranks: Iterable[int]
    ) -> Iterator[tuple[int, Amounts]]:
        """The ordinal of its node and its request, of each rank that requests something."""
        requests = self.requests.get(job.id)
        if requests:
            for rank in ranks:
                if amounts := of_rank(job.spec, requests, rank, len(attempt.ranks)):
                    yield self._state.nodes[attempt.placement[rank].node].ordinal, amounts

    def _add_holder(self, job: Job, attempt: Attempt) -> None:
        self.live[job.id] = None
        self.holders.setdefault(job.spec.queue, {})[job.id] = None
        if attempt.state is AttemptState.STOPPING:
            self.stopping[job.id] = None
        self._note_leaving(job, attempt)
        if job.spec.scheduling.topology.exclusive:
            self.exclusive[job.id] = None
        if replaces_missing(job.spec):
            self._note_repair(job, attempt)

    def _remove_holder(self, job: Job) -> None:
        self.live.pop(job.id, None)
        self.holders.get(job.spec.queue, {}).pop(job.id, None)
        self.stopping.pop(job.id, None)
        self.shrinking.pop(job.id, None)
        self.exclusive.pop(job.id, None)
        self.degraded.pop(job.id, None)

    def _note_growth(self, job: Job) -> None:
        _put(self.growing, job.id, grows(job.spec) and bool(ranks_wanted(job)))

    def _note_leaving(self, job: Job, attempt: Attempt) -> None:
        _put(self.shrinking, job.id, attempt.state in LIVE and bool(leaving(attempt)))

    def _note_repair(self, job: Job, attempt: Attempt) -> None:
        lacks = attempt.state in LIVE and bool(missing(attempt, job.spec.size))
        _put(self.degraded, job.id, lacks)

    # -- nodes -------------------------------------------------------------------------------

    def update_node(self, before: Node | None, after: Node) -> bool:
        """Follow one node through an event; return whether anything but others' requests changed."""
        if before is None:
            self.node_names.append(after.name)
            self.jobs_by_node[after.name] = {}
        changed = before is None or not _differs_by_others_only(before, after)
        if changed:
            if before is not None:
                self._count_node(before, -1)
            self._count_node(after, 1)
        mask = after.devices
        for job_id in self.jobs_by_node[after.name]:
            mask &= ~_held_on(after.name, self._state.jobs[job_id])
        self.free.set_node(after.ordinal, mask, is_open=after.takes_work)
        self.free.set_offers(after.ordinal, after.info.offers)
        return changed

    def _count_node(self, node: Node, change: int) -> None:
        info = node.info
        if not node.removed:
            _count(self.nodes_by_size, info.gpus, change)
            _count(self.nodes_by_shape, (info.gpus, tuple(sorted(info.resources.items()))), change)
            if info.gpu_memory_mib:
                _count(self.nodes_by_memory, info.gpu_memory_mib, change)
            if info.flavor:
                _count(self.nodes_by_flavor, info.flavor, change)

    # -- invariants --------------------------------------------------------------------------

    def check(self, state: State) -> None:
        """Assert that this index is what `rebuild` makes of the state."""
        fresh = DeviceIndex(state)
        for name in ("live", "growing", "jobs_by_node", "node_names", "requests", *_NODE_COUNTS):
            assert getattr(self, name) == getattr(fresh, name), name
        for name in ("stopping", "shrinking", "exclusive", "degraded"):
            assert getattr(self, name).keys() == getattr(fresh, name).keys(), name
        for name in ("used", "used_parts", "used_flavors", "holders"):
            mine, theirs = getattr(self, name), getattr(fresh, name)
            assert {k: v for k, v in mine.items() if v} == {k: v for k, v in theirs.items() if v}, (
                name
            )
        for name in ("masks", "open", "shared", "by_count", "counts", "allocated", "offers"):
            assert getattr(self.free, name) == getattr(fresh.free, name), name
        assert self.free.counts == sorted(self.free.by_count)


_Key = TypeVar("_Key", int, str, NodeShape)
_NODE_COUNTS = ("nodes_by_size", "nodes_by_shape", "nodes_by_memory", "nodes_by_flavor")


def _count(counts: dict[_Key, int], key: _Key, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]


def _put(jobs: dict[str, None], job_id: str, belongs: bool) -> None:
    if belongs:
        jobs[job_id] = None
    else:
        jobs.pop(job_id, None)


def _holding(attempt: Attempt) -> list[int]:
    return [i for i, rank in enumerate(attempt.ranks) if rank.state in WITH_DEVICES]


def _requests(spec: JobSpec) -> tuple[Amounts, ...]:
    return () if has_plain_pods(spec) else requests_of(spec)


def _differs_by_others_only(old: Node, new: Node) -> bool:
    """Whether only the requests of other programs' pods changed, as they do all the time."""
    return replace(old, info=replace(old.info, used_by_others=new.info.used_by_others)) == new


def _changed(old: Attempt, new: Attempt) -> list[int]:
    """The ranks that are not the same values as before, or are new."""
    before, after = old.ranks, new.ranks
    known = min(len(before), len(after))
    changed = [i for i in range(known) if before[i] is not after[i]]
    return changed if len(after) == known else [*changed, *range(known, len(after))]


def _held_on(node: str, job: Job) -> int:
    """The whole devices of a node that the job's ranks hold, as bits."""
    attempt = job.attempt
    assert attempt is not None
    mask = 0
    for i in _holding(attempt):
        slot = attempt.placement[i]
        if slot.node == node and not attempt.share(i):
            mask |= mask_of(slot.devices)
    return mask


def _devices_there(slot: Slot, node: Node) -> int:
    """A slot's devices as bits, without those that have vanished from the node since."""
    mask = mask_of(slot.devices)
    if not node.info.unusable and mask.bit_length() <= node.info.gpus:
        return mask
    return mask & node.devices
