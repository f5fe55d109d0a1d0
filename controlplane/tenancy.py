"""A state that knows who holds which devices, and what the scheduler asks about holders.

Every index here can be computed from the state; `invariants.check` does so and compares.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from controlplane.attempt import HOLDING, LIVE, Attempt, AttemptState
from controlplane.attempt_life import leaving, missing, replaces_missing
from controlplane.devices import WHOLE, FreeDevices, mask_of
from controlplane.image import Node
from controlplane.job import Job
from controlplane.job_life import grows, ranks_wanted
from controlplane.lines import PLANS_AHEAD
from controlplane.model import JobSpec, Slot
from controlplane.requests import Amounts, of_rank, requests_of, says_nothing
from controlplane.run_lengths import Estimate, RunLengths, estimate
from controlplane.sharing import Discipline
from controlplane.state import State

# Looking a member up in its enum costs as much as a call.
_OVER, _STOPPING = AttemptState.OVER, AttemptState.STOPPING


class Tenancy(State):
    def _build_tenancy(self) -> None:
        self._build_lengths()
        # The jobs of which something is, or should be, in the cluster.
        self.live: dict[str, None] = {}
        # The jobs whose gangs were told to grow.
        self.growing: dict[str, None] = {}
        # Queue -> GPUs its jobs hold.
        self.used: dict[str, int] = {}
        # What they hold of shared devices, and by flavour, in thousandths of a GPU.
        self.used_parts: dict[str, int] = {}
        self.used_flavors: dict[tuple[str, str], int] = {}
        # Queue -> the jobs that have devices; those of them that are being stopped, that want a
        # domain for themselves, and that wait for ranks to be replaced.
        self.holders: dict[str, dict[str, None]] = {}
        self.stopping: dict[str, None] = {}
        # The jobs of which some ranks were let go and have not left yet.
        self.shrinking: dict[str, None] = {}
        self.exclusive: dict[str, None] = {}
        self.crippled: dict[str, None] = {}
        # When gangs are expected to end, in order; kept while some discipline plans ahead.
        self.plans_ahead = self._some_queue_plans_ahead()
        self.endings: list[tuple[float, str]] = []
        self._ends_at: dict[str, float] = {}
        # Node -> the jobs that hold something there, with the number of ranks that do.
        self.tenants: dict[str, dict[str, int]] = {name: {} for name in self.nodes}
        # Free devices, and the names of the nodes, both by ordinal.
        self.free = FreeDevices()
        self.node_names = [node.name for node in self.nodes.values()]
        # GPUs of a node -> how many nodes of the cluster have so many.
        self.nodes_by_size: dict[int, int] = {}
        self._room: dict[int, int] = {}
        # Whether nodes, queues or policy have changed since it was last asked which waiting jobs
        # could start at all. Of a world that was just read it is not known, and asking twice does
        # no harm. What other people's pods request of a node counts as no change.
        self.review_all = True
        # What others have worked out about nodes, to be forgotten when those change.
        self.about_nodes: dict[str, Any] = {}
        # What the ranks of each role request beside GPUs, of the jobs whose pods say anything, and
        # the spec that says so.
        self._requests: dict[str, tuple[JobSpec, tuple[Amounts, ...]]] = {}
        for node in self.nodes.values():
            self.free.set_node(node.ordinal, node.devices, is_open=node.takes_work)
            self.free.set_offers(node.ordinal, node.info.offers)
            self._count_node(node, 1)
        for job in self.jobs.values():
            attempt = job.attempt
            if attempt is not None and attempt.state is not _OVER:
                held = [i for i, rank in enumerate(attempt.ranks) if rank.state in HOLDING]
                self._take(job, attempt, held)
                self._note_holder(job, attempt)
                self._note_growth(job)

    def _build_lengths(self) -> None:
        """How long jobs ran that have succeeded, removed ones too; empty if no line looks at that."""
        self.learns = self.learns_now()
        self.run_lengths = RunLengths()
        if self.learns:
            self.run_lengths = self.lengths.copy()
            for job in self.jobs.values():
                self.run_lengths.add_job(job)

    # -- questions ---------------------------------------------------------------------------

    def estimate(self, job: Job) -> Estimate:
        """How long an attempt of the job is planned to run, and where that comes from."""
        return estimate(job.namespace, job.spec, self.policy, self.run_lengths)

    def discipline(self, queue: str) -> Discipline:
        """How the queue's line moves."""
        known = self.queues.get(queue)
        said = None if known is None else known.discipline
        return self.policy.discipline if said is None else said

    def room_for(self, gpus: int) -> int:
        """How many ranks with so many GPUs each the whole cluster could hold, were it empty."""
        room = self._room.get(gpus)
        if room is None:
            sizes = self.nodes_by_size.items()
            room = sum(count * (size // gpus) if gpus else count for size, count in sizes)
            self._room[gpus] = room
        return room

    def requests(self, job: Job) -> tuple[Amounts, ...]:
        """What one rank of each role requests beside GPUs; nothing if none requests anything."""
        spec = job.spec
        if says_nothing(spec):
            return ()
        known = self._requests.get(job.id)
        if known is not None and known[0] is spec:
            return known[1]
        found = requests_of(spec)
        if found:
            self._requests[job.id] = job.spec, found
        return found

    def ranks_on(self, node: str) -> Iterator[tuple[Job, list[int]]]:
        """The jobs that hold something on a node, each with the ranks it has there."""
        for job_id in sorted(self.tenants.get(node, ())):
            job = self.jobs[job_id]
            assert job.attempt is not None
            yield (
                job,
                [
                    i
                    for i, slot in enumerate(job.attempt.placement)
                    if slot.node == node and job.attempt.ranks[i].state in HOLDING
                ],
            )

    # -- jobs --------------------------------------------------------------------------------

    def _follow_attempt(self, old: Attempt | None, job: Job) -> None:
        """Takes and gives back what changed about who holds which device."""
        new = job.attempt
        assert new is not None, "an attempt never vanishes"
        if grows(job.spec):
            self._note_growth(job)
        if old is None or old.number != new.number:
            self._take(job, new, range(len(new.ranks)))
            self._note_holder(job, new)
            return
        changed = [] if old.ranks is new.ranks else _changed(old, new)
        if new.state is _OVER:
            self._forget_holder(job)
        elif new.state is not old.state and new.state is _STOPPING:
            self._note_holder(job, new)
        elif changed:
            if any(new.ranks[i].let_go for i in changed):
                self._note_leaving(job, new)
            if replaces_missing(job.spec):
                self._note_repair(job, new)
        if changed:
            self._move(job, old, new, changed)

    def _move(self, job: Job, old: Attempt, new: Attempt, changed: list[int]) -> None:
        """Ranks have let go of their devices, or have others than before."""
        before, after = old.ranks, new.ranks
        left, taken = [], []
        for i in changed:
            held = i < len(before) and before[i].state in HOLDING
            holds = after[i].state in HOLDING
            if held and holds and old.placement[i] is new.placement[i]:
                continue
            if held:
                left.append(i)
            if holds:
                taken.append(i)
        if left:
            self._give_back(job, old, left)
        if taken:
            self._take(job, new, taken)

    def _follow_requests(self, before: Job, after: Job) -> None:
        """A job has another spec: what its ranks hold is read off that from here on."""
        attempt = before.attempt
        asked, asks = self.requests(before), self.requests(after)
        if attempt is None or attempt.state is _OVER or not (asked or asks):
            return
        held = [i for i, rank in enumerate(attempt.ranks) if rank.state in HOLDING]
        if asked:
            self._release_amounts(before.spec, asked, attempt, held)
        if asks:
            self._hold_amounts(after.spec, asks, attempt, held)

    def _hold_amounts(
        self, spec: JobSpec, requests: tuple[Amounts, ...], attempt: Attempt, ranks: Iterable[int]
    ) -> None:
        size = len(attempt.ranks)
        for rank in ranks:
            if amounts := of_rank(spec, requests, rank, size):
                self.free.hold_amounts(self.nodes[attempt.placement[rank].node].ordinal, amounts)

    def _release_amounts(
        self, spec: JobSpec, requests: tuple[Amounts, ...], attempt: Attempt, ranks: Iterable[int]
    ) -> None:
        size = len(attempt.ranks)
        for rank in ranks:
            if amounts := of_rank(spec, requests, rank, size):
                self.free.release_amounts(self.nodes[attempt.placement[rank].node].ordinal, amounts)

    def _note_growth(self, job: Job) -> None:
        if grows(job.spec) and ranks_wanted(job):
            self.growing[job.id] = None
        else:
            self.growing.pop(job.id, None)

    def _note_holder(self, job: Job, attempt: Attempt) -> None:
        """A gang that has devices, and what the scheduler wants to know of it at every pass."""
        self.live[job.id] = None
        self.holders.setdefault(job.spec.queue, {})[job.id] = None
        if self.plans_ahead:
            self._note_end(job, attempt.placed_at + self.estimate(job).planned_s)
        if attempt.state is _STOPPING:
            self.stopping[job.id] = None
        self._note_leaving(job, attempt)
        asks = job.spec.scheduling
        if asks.topology.exclusive:
            self.exclusive[job.id] = None
        if replaces_missing(job.spec):
            self._note_repair(job, attempt)

    def _note_leaving(self, job: Job, attempt: Attempt) -> None:
        if attempt.state in LIVE and leaving(attempt):
            self.shrinking[job.id] = None
        else:
            self.shrinking.pop(job.id, None)

    def _note_repair(self, job: Job, attempt: Attempt) -> None:
        if attempt.state in LIVE and missing(attempt, job.spec.size):
            self.crippled[job.id] = None
        else:
            self.crippled.pop(job.id, None)

    def _forget_holder(self, job: Job) -> None:
        self.live.pop(job.id, None)
        self.holders.get(job.spec.queue, {}).pop(job.id, None)
        self.stopping.pop(job.id, None)
        self.shrinking.pop(job.id, None)
        self.exclusive.pop(job.id, None)
        self.crippled.pop(job.id, None)
        self._forget_end(job)

    def _note_end(self, job: Job, ends_at: float) -> None:
        if self._ends_at.get(job.id) != ends_at:
            self._forget_end(job)
            self._ends_at[job.id] = ends_at
            insort(self.endings, (ends_at, job.id))

    def _forget_end(self, job: Job) -> None:
        ends_at = self._ends_at.pop(job.id, None)
        if ends_at is not None:
            del self.endings[bisect_left(self.endings, (ends_at, job.id))]

    def _take(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        gpus, parts, shares = 0, 0, attempt.shares
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self.nodes[slot.node]
            if shares and attempt.share(rank):
                self.free.hold_share(node.ordinal, slot.devices[0], shares[rank])
                parts += shares[rank]
            else:
                self.free.hold(node.ordinal, _devices_there(slot, node))
                gpus += len(slot.devices)
            tenants = self.tenants[slot.node]
            tenants[job.id] = tenants.get(job.id, 0) + 1
        if requests := self.requests(job):
            self._hold_amounts(job.spec, requests, attempt, ranks)
        self._charge(job.spec.queue, attempt.flavor, gpus, parts)

    def _give_back(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        gpus, parts, shares = 0, 0, attempt.shares
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self.nodes[slot.node]
            if shares and attempt.share(rank):
                whole = node.devices
                self.free.release_share(node.ordinal, slot.devices[0], shares[rank], whole=whole)
                parts += shares[rank]
            else:
                self.free.release(node.ordinal, _devices_there(slot, node))
                gpus += len(slot.devices)
            tenants = self.tenants[slot.node]
            tenants[job.id] -= 1
            if not tenants[job.id]:
                del tenants[job.id]
        if self.free.held and (requests := self.requests(job)):
            self._release_amounts(job.spec, requests, attempt, ranks)
        self._charge(job.spec.queue, attempt.flavor, -gpus, -parts)

    def used_milli(self, queue: str) -> int:
        """What the jobs of one queue hold, in thousandths of GPUs."""
        return self.used.get(queue, 0) * WHOLE + self.used_parts.get(queue, 0)

    def _charge(self, queue: str, flavor: str, gpus: int, parts: int) -> None:
        self.used[queue] = self.used.get(queue, 0) + gpus
        if parts:
            self.used_parts[queue] = self.used_parts.get(queue, 0) + parts
        if flavor:
            key = queue, flavor
            self.used_flavors[key] = self.used_flavors.get(key, 0) + gpus * WHOLE + parts

    # -- nodes and policies ------------------------------------------------------------------

    def _follow_node(self, old: Node | None, node: Node) -> None:
        if old is None:
            self.node_names.append(node.name)
            self.tenants[node.name] = {}
        if old is None or not _differs_by_others_only(old, node):
            if old is not None:
                self._count_node(old, -1)
            self._count_node(node, 1)
        mask = node.devices
        for job_id in self.tenants[node.name]:
            mask &= ~_held_on(node.name, self.jobs[job_id])
        self.free.set_node(node.ordinal, mask, is_open=node.takes_work)
        self.free.set_offers(node.ordinal, node.info.offers)

    def _count_node(self, node: Node, change: int) -> None:
        self._room.clear()
        self.about_nodes.clear()
        self.review_all = True
        self.free.watch(None)
        if not node.removed:
            count = self.nodes_by_size.get(node.info.gpus, 0) + change
            self.nodes_by_size[node.info.gpus] = count
            if not count:
                del self.nodes_by_size[node.info.gpus]

    def _some_queue_plans_ahead(self) -> bool:
        return not PLANS_AHEAD.isdisjoint({self.discipline(name) for name in self.queues})

    def _follow_plans(self) -> None:
        """When gangs end is kept only as long as some discipline plans ahead."""
        self.plans_ahead = self._some_queue_plans_ahead()
        self._ends_at.clear()
        self.endings.clear()
        for queue in self.holders.values():
            for job_id in queue:
                job = self.jobs[job_id]
                assert job.attempt is not None
                self._note_holder(job, job.attempt)


def _differs_by_others_only(old: Node, new: Node) -> bool:
    """Whether nothing is new but what other people's pods request there, as happens all the time."""
    return replace(old, info=replace(old.info, used_by_others=new.info.used_by_others)) == new


def _changed(old: Attempt, new: Attempt) -> list[int]:
    """The ranks that are others than before, or are new."""
    before, after = old.ranks, new.ranks
    known = min(len(before), len(after))
    changed = [i for i in range(known) if before[i] is not after[i]]
    return changed if len(after) == known else [*changed, *range(known, len(after))]


def _held_on(node: str, job: Job) -> int:
    """The devices of a node that the job's ranks have for themselves, as bits."""
    attempt = job.attempt
    assert attempt is not None
    mask, shares = 0, attempt.shares
    for index, (slot, rank) in enumerate(zip(attempt.placement, attempt.ranks, strict=True)):
        if slot.node == node and rank.state in HOLDING and not (shares and attempt.share(index)):
            mask |= mask_of(slot.devices)
    return mask


def _devices_there(slot: Slot, node: Node) -> int:
    """A slot's devices as bits, without any that have vanished from the node since."""
    mask = mask_of(slot.devices)
    if not node.info.unusable and mask.bit_length() <= node.info.gpus:
        return mask
    return mask & node.devices
