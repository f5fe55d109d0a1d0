"""Everything the log says, folded: jobs, nodes, queues, and the indexes that make them quick.

Only `apply` changes a world, and only the engine and replay call it. Every index can be computed
from the jobs, nodes and queues; `check` does so and compares.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from controlplane import attempt as a
from controlplane import events as e
from controlplane.attempt import HOLDING, Attempt
from controlplane.devices import FreeDevices, mask_of
from controlplane.job import Job, Phase, begin, deadline, evolve
from controlplane.model import NodeInfo, Queue, Value

DEFAULT_QUEUE = Queue("default")
# How many answers to people's commands are remembered for those who ask again.
RECEIPTS_MAX = 100_000


class Node(Value, frozen=True, kw_only=True):
    """A machine as the log knows it."""

    info: NodeInfo
    ordinal: int
    ready: bool = True
    cordoned: bool = False
    removed: bool = False
    message: str = ""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def devices(self) -> int:
        """The devices it has, as bits; one that vanished under a rank is nobody's to give."""
        return (1 << self.info.gpus) - 1

    @property
    def takes_work(self) -> bool:
        return self.ready and not self.cordoned and not self.removed


class Receipt(NamedTuple):
    """The first answer to a command: the position of its last event, and what it was about."""

    position: int
    stream: str


class Waiting(NamedTuple):
    """A queued job's place: higher priority first, then who came first."""

    minus_priority: int
    queued_as: int
    job: str


class Image(Value, frozen=True, kw_only=True):
    """A world without its indexes: what a snapshot holds and the state hash covers."""

    position: int
    at: float
    hash: bytes
    surveyed: bool
    jobs: list[Job]
    nodes: list[Node]
    queues: list[Queue]
    receipts: list[tuple[str, int, str]]


class World:
    def __init__(self) -> None:
        self.position = 0
        self.at = 0.0
        # Whether every node of the cluster has been reported.
        self.surveyed = False
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {DEFAULT_QUEUE.name: DEFAULT_QUEUE}
        self.receipts: dict[str, Receipt] = {}
        self._rebuild_indexes()

    # -- change ------------------------------------------------------------------------------

    def apply(self, recorded: e.Recorded) -> None:
        """Takes one more event in. The only door."""
        assert recorded.position == self.position + 1, (recorded.position, self.position)
        event = recorded.event
        if isinstance(event, e.JobEvent):
            self._apply_to_job(recorded, event)
        elif isinstance(event, e.NodeEvent):
            self._apply_to_node(event)
        elif isinstance(event, e.QueueDefined):
            self.queues[event.queue.name] = event.queue
        elif isinstance(event, e.ClusterSurveyed):
            self.surveyed = True
        self.position = recorded.position
        self.at = recorded.at
        if recorded.cause:
            self._remember(recorded)

    def _apply_to_job(self, recorded: e.Recorded, event: e.JobEvent) -> None:
        if isinstance(event, e.JobSubmitted):
            after = begin(recorded, event)
            self.ids[after.namespace, after.name] = after.id
            self._index(after)
        elif isinstance(event, e.JobRemoved):
            before = self.jobs.pop(event.job)
            del self.ids[before.namespace, before.name]
            del self.by_phase[before.phase][before.id]
        else:
            before = self.jobs[event.job]
            after = evolve(before, recorded)
            self._move_devices(before, after, event)
            self._reindex(before, after)

    def _index(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.by_phase[job.phase][job.id] = None
        if job.phase is Phase.QUEUED:
            insort(self.waiting.setdefault(job.spec.queue, []), place_in_line(job))
        due_at = deadline(job)
        if due_at is not None:
            heapq.heappush(self._deadlines, (due_at, job.id))

    def _reindex(self, before: Job, after: Job) -> None:
        self.jobs[after.id] = after
        if before.phase is not after.phase:
            del self.by_phase[before.phase][before.id]
            self.by_phase[after.phase][after.id] = None
            if before.phase is Phase.QUEUED:
                line = self.waiting[before.spec.queue]
                del line[bisect_left(line, place_in_line(before))]
            if after.phase is Phase.QUEUED:
                insort(self.waiting.setdefault(after.spec.queue, []), place_in_line(after))
        if after.live_attempt is None:
            self.live.pop(after.id, None)
        else:
            self.live[after.id] = None
        due_at = deadline(after)
        if due_at is not None and due_at != deadline(before):
            heapq.heappush(self._deadlines, (due_at, after.id))

    def _move_devices(self, before: Job, after: Job, event: e.JobEvent) -> None:
        """Takes and gives back what the event changed about who holds which device."""
        old, new = before.attempt, after.attempt
        if new is None or new is old:
            return
        if old is None or old.number != new.number:
            self._take(after, new, range(len(new.ranks)))
        elif old.holding != new.holding:
            was, now = old.ranks, new.ranks
            moved = [
                (i, now[i].state in HOLDING)
                for i in _touched(event, new)
                if (was[i].state in HOLDING) != (now[i].state in HOLDING)
            ]
            self._give_back(after, new, [i for i, holds in moved if not holds])
            self._take(after, new, [i for i, holds in moved if holds])

    def _take(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        gpus = 0
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self.nodes[slot.node]
            self.free.hold(node.ordinal, mask_of(slot.devices) & node.devices)
            tenants = self.tenants[slot.node]
            tenants[job.id] = tenants.get(job.id, 0) + 1
            gpus += len(slot.devices)
        self.used[job.spec.queue] = self.used.get(job.spec.queue, 0) + gpus

    def _give_back(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self.nodes[slot.node]
            self.free.release(node.ordinal, mask_of(slot.devices) & node.devices)
            tenants = self.tenants[slot.node]
            tenants[job.id] -= 1
            if not tenants[job.id]:
                del tenants[job.id]
            self.used[job.spec.queue] -= len(slot.devices)

    def _apply_to_node(self, event: e.NodeEvent) -> None:
        old = self.nodes.get(event.node)
        match event:
            case e.NodeReported():
                ordinal = len(self.nodes) if old is None else old.ordinal
                cordoned = old is not None and old.cordoned
                node = Node(info=event.info, ordinal=ordinal, cordoned=cordoned)
            case e.NodeLost():
                node = replace(_known(old), ready=False, message=event.message)
            case e.NodeRemoved():
                node = replace(_known(old), ready=False, removed=True)
            case e.NodeCordoned():
                node = replace(_known(old), cordoned=True)
            case e.NodeUncordoned():
                node = replace(_known(old), cordoned=False)
            case _:
                raise AssertionError(event)
        self._put_node(node)

    def _put_node(self, node: Node) -> None:
        old = self.nodes.get(node.name)
        if old is None:
            self.node_names.append(node.name)
        else:
            self._count_node(old, -1)
        self._count_node(node, 1)
        self.nodes[node.name] = node
        self.tenants.setdefault(node.name, {})
        mask = node.devices
        for job_id in self.tenants[node.name]:
            mask &= ~self._held_on(node.name, self.jobs[job_id])
        self.free.set_node(node.ordinal, mask, is_open=node.takes_work)

    def _count_node(self, node: Node, change: int) -> None:
        if not node.removed:
            count = self.nodes_by_size.get(node.info.gpus, 0) + change
            self.nodes_by_size[node.info.gpus] = count
            if not count:
                del self.nodes_by_size[node.info.gpus]

    def _held_on(self, node: str, job: Job) -> int:
        assert job.attempt is not None
        mask = 0
        for slot, rank in zip(job.attempt.placement, job.attempt.ranks, strict=True):
            if slot.node == node and rank.state in HOLDING:
                mask |= mask_of(slot.devices)
        return mask

    def _remember(self, recorded: e.Recorded) -> None:
        known = self.receipts.get(recorded.cause)
        stream = recorded.event.stream if known is None else known.stream
        self.receipts[recorded.cause] = Receipt(recorded.position, stream)
        if len(self.receipts) > RECEIPTS_MAX:
            del self.receipts[next(iter(self.receipts))]

    # -- questions ---------------------------------------------------------------------------

    def job(self, namespace: str, name: str) -> Job | None:
        """The job that people know by this name."""
        job_id = self.ids.get((namespace, name))
        return None if job_id is None else self.jobs[job_id]

    def next_deadline(self) -> float | None:
        """When the next thing falls due by itself."""
        deadlines = self._deadlines
        while deadlines:
            due_at, job_id = deadlines[0]
            job = self.jobs.get(job_id)
            if job is not None and deadline(job) == due_at:
                return due_at
            heapq.heappop(deadlines)
        return None

    def next_due(self, now: float) -> Job | None:
        """A job for which something is due, the longest overdue first."""
        due_at = self.next_deadline()
        return None if due_at is None or due_at > now else self.jobs[self._deadlines[0][1]]

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

    # -- the whole ---------------------------------------------------------------------------

    def image(self, hash: bytes = b"") -> Image:
        """The state without its indexes. `hash` is the chain's at this position."""
        return Image(
            position=self.position,
            at=self.at,
            hash=hash,
            surveyed=self.surveyed,
            jobs=list(self.jobs.values()),
            nodes=list(self.nodes.values()),
            queues=list(self.queues.values()),
            receipts=[(cause, *receipt) for cause, receipt in self.receipts.items()],
        )

    @classmethod
    def of(cls, image: Image) -> "World":
        """The world of an image, with its indexes made anew."""
        world = cls()
        world.position = image.position
        world.at = image.at
        world.surveyed = image.surveyed
        world.jobs = {job.id: job for job in image.jobs}
        world.nodes = {node.name: node for node in image.nodes}
        world.queues = {queue.name: queue for queue in image.queues}
        world.receipts = {cause: Receipt(position, s) for cause, position, s in image.receipts}
        world._rebuild_indexes()
        return world

    def _rebuild_indexes(self) -> None:
        self.ids: dict[tuple[str, str], str] = {}
        self.by_phase: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
        # The jobs of which something is, or should be, in the cluster.
        self.live: dict[str, None] = {}
        # Queue -> its queued jobs in order; queue -> GPUs its jobs hold.
        self.waiting: dict[str, list[Waiting]] = {}
        self.used: dict[str, int] = {}
        # Node -> the jobs that hold something there, with the number of ranks that do.
        self.tenants: dict[str, dict[str, int]] = {name: {} for name in self.nodes}
        # Free devices, and the names of the nodes, both by ordinal.
        self.free = FreeDevices()
        self.node_names = [node.name for node in self.nodes.values()]
        # GPUs of a node -> how many nodes of the cluster have so many.
        self.nodes_by_size: dict[int, int] = {}
        self._deadlines: list[tuple[float, str]] = []
        for node in self.nodes.values():
            self.free.set_node(node.ordinal, node.devices, is_open=node.takes_work)
            self._count_node(node, 1)
        for job in self.jobs.values():
            self.ids[job.namespace, job.name] = job.id
            self._index(job)
            if job.live_attempt is not None:
                self.live[job.id] = None
                attempt = job.live_attempt
                held = [i for i, rank in enumerate(attempt.ranks) if rank.state in HOLDING]
                self._take(job, attempt, held)

    def check(self) -> None:
        """Asserts every invariant: the indexes, the counters, and that no device has two owners."""
        twin = World.of(self.image())
        assert self.ids == twin.ids
        assert self.by_phase == twin.by_phase
        assert self.live == twin.live
        assert {q: line for q, line in self.waiting.items() if line} == {
            q: line for q, line in twin.waiting.items() if line
        }
        assert {q: n for q, n in self.used.items() if n} == {
            q: n for q, n in twin.used.items() if n
        }
        assert self.tenants == twin.tenants
        assert self.nodes_by_size == twin.nodes_by_size
        assert self.free.masks == twin.free.masks
        assert self.free.open == twin.free.open
        assert [x for x in self.free.by_count if x] == [x for x in twin.free.by_count if x]
        assert self.next_deadline() == twin.next_deadline()
        for job in self.jobs.values():
            _check_job(job)


def place_in_line(job: Job) -> Waiting:
    return Waiting(-job.spec.priority, job.queued_as, job.id)


def _touched(event: e.JobEvent, attempt: Attempt) -> Iterable[int]:
    """The ranks whose state an event may have changed."""
    match event:
        case e.RanksExited():
            return [x.rank for x in event.exits]
        case e.RanksGone():
            return event.ranks
        case e.RankRestarting():
            return (event.rank,)
        case _:
            return range(len(attempt.ranks))


def _known(node: Node | None) -> Node:
    assert node is not None, "an event about a node that was never reported"
    return node


def _check_job(job: Job) -> None:
    attempt = job.attempt
    assert job.finished == (job.finished_at is not None), job
    assert job.failures == sum(restart.spends_budget for restart in job.restarts), job
    limit = job.spec.restart.limit
    assert limit is None or job.failures <= limit, job
    if job.phase in (Phase.STARTING, Phase.RUNNING):
        assert attempt is not None, job
        assert attempt.state.value == job.phase.value, job
    if job.phase is Phase.QUEUED:
        assert job.live_attempt is None, job
    if attempt is not None:
        assert attempt.up == a.count_up(attempt), job
        assert attempt.holding == a.count_holding(attempt), job
        # Every rank or none: a placement covers the whole gang, on distinct devices.
        assert len(attempt.placement) == len(attempt.ranks), job
        if attempt.state is a.AttemptState.OVER:
            assert attempt.holding == 0, job
