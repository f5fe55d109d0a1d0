"""A state with the indexes that make decisions quick: by name, by phase, by deadline, by room.

Every index can be computed from the state; `check` does so and compares.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

from controlplane import attempt as a
from controlplane import events as e
from controlplane.attempt import HOLDING, Attempt, AttemptState
from controlplane.devices import WHOLE, FreeDevices, mask_of
from controlplane.job import CLAIMED, EVOLVE, Job, Phase, deadline, ranks_wanted
from controlplane.lines import PLANS_AHEAD, Line, Waiting, expected_s, place_in_line
from controlplane.model import Discipline, Repair
from controlplane.state import Image, Node, State

# Looking a member up in its enum costs as much as a call.
_RANKS_END = frozenset({e.RanksLost, e.RanksGone, e.RanksExited, e.RanksReplaced})
_OVER, _STOPPING, _REPLACE = AttemptState.OVER, AttemptState.STOPPING, Repair.REPLACE


class World(State):
    free: FreeDevices
    plans_ahead: bool

    def __init__(self, image: Image | None = None) -> None:
        super().__init__(image)
        self._build_indexes()

    @classmethod
    def around(cls, state: State) -> "World":
        """A state with indexes. It is the world's from here on, and nobody else's."""
        world = cls.__new__(cls)
        vars(world).update(vars(state))
        world._build_indexes()
        return world

    # -- change ------------------------------------------------------------------------------

    def apply(self, recorded: e.Recorded) -> None:
        """Takes one more event in, and then brings the indexes after it.

        Nearly every event changes one job; `State.apply` is written out once more for those.
        """
        event, position = recorded.event, recorded.position
        evolve = EVOLVE.get(type(event))
        if evolve is None:
            self._apply_rarer_event(recorded, event)
            return
        assert position == self.position + 1, (position, self.position)
        job_id: str = event.job  # type: ignore[attr-defined]
        before = self.jobs[job_id]
        after = self.jobs[job_id] = evolve(before, event, recorded.at, position)
        self.position = position
        self.at = recorded.at
        if recorded.cause:
            self._remember(recorded)
        if before.attempt is not after.attempt:
            self._follow_attempt(before.attempt, after, event)
        if before.spec is not after.spec or before.attempt is not after.attempt:
            self._note_growth(after)
        if before.spec is not after.spec and after.live_attempt is not None:
            self._note_holder(after)
        if before.phase is not after.phase:
            self._follow_phase(before, after)
        elif before.spec is not after.spec and is_waiting(before):
            self._leave_line(before)
            self._join_line(after)
        if before.spec is not after.spec:
            self.gangs.pop(job_id, None)
        if before.held != after.held or (before.held and before.phase is not after.phase):
            self._note_claim(after)
            if before.phase is after.phase and before.spec is after.spec and is_waiting(after):
                line = self.lines[after.spec.queue]
                line.told(self.place_in_line(after), after.spec, before.held, after.held)
        self._note_deadline(after)

    def _apply_rarer_event(self, recorded: e.Recorded, event: e.Event) -> None:
        match event:
            case e.JobSubmitted():
                super().apply(recorded)
                self.ids[event.namespace, event.name] = event.job
                self._index(self.jobs[event.job])
            case e.JobRemoved():
                gone = self.jobs[event.job]
                super().apply(recorded)
                del self.ids[gone.namespace, gone.name]
                del self.by_phase[gone.phase][gone.id]
                self._due_at.pop(gone.id, None)
                self.gangs.pop(gone.id, None)
                self.claimed.pop(gone.id, None)
            case e.NodeEvent():
                old = self.nodes.get(event.node)
                super().apply(recorded)
                self._follow_node(old, self.nodes[event.node])
            case _:
                super().apply(recorded)
                if isinstance(event, e.QueueDefined | e.QueueRemoved | e.PolicySet):
                    self._follow_policy()

    def _index(self, job: Job) -> None:
        self._note_claim(job)
        self.by_phase[job.phase][job.id] = None
        if is_waiting(job):
            self._join_line(job)
        self._note_deadline(job)

    def _follow_phase(self, before: Job, after: Job) -> None:
        del self.by_phase[before.phase][before.id]
        self.by_phase[after.phase][after.id] = None
        if is_waiting(before):
            self._leave_line(before)
        if is_waiting(after):
            self._join_line(after)

    def _note_claim(self, job: Job) -> None:
        if job.held == CLAIMED and is_waiting(job):
            self.claimed[job.id] = None
        else:
            self.claimed.pop(job.id, None)

    def _note_growth(self, job: Job) -> None:
        if job.spec.grows and ranks_wanted(job):
            self.growing[job.id] = None
        else:
            self.growing.pop(job.id, None)

    def _note_holder(self, job: Job) -> None:
        """A gang that has devices, and what the scheduler wants to know of it at every pass."""
        attempt = job.attempt
        assert attempt is not None
        self.holders.setdefault(job.spec.queue, {})[job.id] = None
        if self.plans_ahead and job.id not in self._ends_at:
            ends_at = attempt.placed_at + expected_s(job.spec, self.policy)
            self._ends_at[job.id] = ends_at
            insort(self.endings, (ends_at, job.id))
        if attempt.state is _STOPPING:
            self.stopping[job.id] = None
        self._note_leaving(job, attempt)
        asks = job.spec.scheduling
        if asks.topology.exclusive:
            self.exclusive[job.id] = None
        if asks.repair is _REPLACE:
            self._note_repair(job, attempt)

    def _note_leaving(self, job: Job, attempt: Attempt) -> None:
        if attempt.state in a.LIVE and a.leaving(attempt):
            self.shrinking[job.id] = None
        else:
            self.shrinking.pop(job.id, None)

    def _note_repair(self, job: Job, attempt: Attempt) -> None:
        if attempt.state in a.LIVE and a.missing(attempt, job.spec.size):
            self.crippled[job.id] = None
        else:
            self.crippled.pop(job.id, None)

    def _forget_holder(self, job: Job) -> None:
        self.holders.get(job.spec.queue, {}).pop(job.id, None)
        self.stopping.pop(job.id, None)
        self.shrinking.pop(job.id, None)
        self.exclusive.pop(job.id, None)
        self.crippled.pop(job.id, None)
        ends_at = self._ends_at.pop(job.id, None)
        if ends_at is not None:
            del self.endings[bisect_left(self.endings, (ends_at, job.id))]

    def _join_line(self, job: Job) -> None:
        queue = job.spec.queue
        line = self.lines.get(queue)
        if line is None:
            line = self.lines[queue] = Line(self.discipline(queue), self.policy)
            self.waiting[queue] = line.order
        line.join(self.place_in_line(job), job.spec, job.held)

    def _leave_line(self, job: Job) -> None:
        self.lines[job.spec.queue].leave(self.place_in_line(job), job.spec, job.held)

    def _note_deadline(self, job: Job) -> None:
        due_at = deadline(job)
        if due_at is None:
            self._due_at.pop(job.id, None)
        elif self._due_at.get(job.id) != due_at:
            self._due_at[job.id] = due_at
            heapq.heappush(self._deadlines, (due_at, job.id))

    def _follow_attempt(self, old: Attempt | None, after: Job, event: e.Event) -> None:
        """Takes and gives back what the event changed about who holds which device."""
        new = after.attempt
        if new is None or new.state is _OVER:
            self.live.pop(after.id, None)
            self._forget_holder(after)
        elif old is None or old.number != new.number:
            self.live[after.id] = None
            self._note_holder(after)
        elif new.state is _STOPPING:
            if old.state is not _STOPPING:
                self._note_holder(after)
        elif type(event) in _RANKS_END:
            self._note_leaving(after, new)
            if after.spec.scheduling.repair is _REPLACE:
                self._note_repair(after, new)
        if new is None:
            return
        if isinstance(event, e.RanksAdded):
            self._take(after, new, range(event.first, len(new.ranks)))
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
            if taken := [i for i, holds in moved if holds]:
                self._take(after, new, taken)

    def _take(self, job: Job, attempt: Attempt, ranks: Iterable[int]) -> None:
        gpus, parts, shares = 0, 0, attempt.shares
        for rank in ranks:
            slot = attempt.placement[rank]
            node = self.nodes[slot.node]
            if shares and attempt.share(rank):
                self.free.hold_share(node.ordinal, slot.devices[0], shares[rank])
                parts += shares[rank]
            else:
                self.free.hold(node.ordinal, mask_of(slot.devices) & node.devices)
                gpus += len(slot.devices)
            tenants = self.tenants[slot.node]
            tenants[job.id] = tenants.get(job.id, 0) + 1
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
                self.free.release(node.ordinal, mask_of(slot.devices) & node.devices)
                gpus += len(slot.devices)
            tenants = self.tenants[slot.node]
            tenants[job.id] -= 1
            if not tenants[job.id]:
                del tenants[job.id]
        self._charge(job.spec.queue, attempt.flavor, -gpus, -parts)

    def _charge(self, queue: str, flavor: str, gpus: int, parts: int) -> None:
        self.used[queue] = self.used.get(queue, 0) + gpus
        if parts:
            self.used_parts[queue] = self.used_parts.get(queue, 0) + parts
        if flavor:
            key = queue, flavor
            self.used_flavors[key] = self.used_flavors.get(key, 0) + gpus * WHOLE + parts

    def _follow_node(self, old: Node | None, node: Node) -> None:
        if old is None:
            self.node_names.append(node.name)
            self.tenants[node.name] = {}
        else:
            self._count_node(old, -1)
        self._count_node(node, 1)
        mask = node.devices
        for job_id in self.tenants[node.name]:
            mask &= ~self._held_on(node.name, self.jobs[job_id])
        self.free.set_node(node.ordinal, mask, is_open=node.takes_work)

    def _follow_policy(self) -> None:
        """Lines are ordered as their disciplines say, and planned if one of them plans ahead."""
        self.about_queues.clear()
        self.about_nodes.clear()
        self.free.watch(None)
        ways = {self.discipline(name) for name in self.queues}
        self.plans_ahead = not PLANS_AHEAD.isdisjoint(ways)
        self._ends_at.clear()
        self.endings.clear()
        for queue in self.holders.values():
            for job_id in queue:
                self._note_holder(self.jobs[job_id])
        waiting = [self.jobs[place[3]] for line in self.lines.values() for place in line.order]
        self.lines.clear()
        self.waiting.clear()
        for job in waiting:
            self._join_line(job)

    def _count_node(self, node: Node, change: int) -> None:
        self._room.clear()
        self.about_nodes.clear()
        self.free.watch(None)
        if not node.removed:
            count = self.nodes_by_size.get(node.info.gpus, 0) + change
            self.nodes_by_size[node.info.gpus] = count
            if not count:
                del self.nodes_by_size[node.info.gpus]

    def _held_on(self, node: str, job: Job) -> int:
        attempt = job.attempt
        assert attempt is not None
        mask, shares = 0, attempt.shares
        for index, (slot, rank) in enumerate(zip(attempt.placement, attempt.ranks, strict=True)):
            if (
                slot.node == node
                and rank.state in HOLDING
                and not (shares and attempt.share(index))
            ):
                mask |= mask_of(slot.devices)
        return mask

    # -- questions ---------------------------------------------------------------------------

    def job(self, namespace: str, name: str) -> Job | None:
        """The job that people know by this name."""
        job_id = self.ids.get((namespace, name))
        return None if job_id is None else self.jobs[job_id]

    def discipline(self, queue: str) -> Discipline:
        """How the queue's line moves."""
        known = self.queues.get(queue)
        said = None if known is None else known.discipline
        return self.policy.discipline if said is None else said

    def place_in_line(self, job: Job) -> Waiting:
        return place_in_line(job, self.discipline(job.spec.queue), self.policy)

    def room_for(self, gpus: int) -> int:
        """How many ranks with so many GPUs each the whole cluster could hold, were it empty."""
        room = self._room.get(gpus)
        if room is None:
            sizes = self.nodes_by_size.items()
            room = sum(count * (size // gpus) if gpus else count for size, count in sizes)
            self._room[gpus] = room
        return room

    def next_deadline(self) -> float | None:
        """When the next thing falls due by itself."""
        deadlines = self._deadlines
        while deadlines:
            due_at, job_id = deadlines[0]
            if self._due_at.get(job_id) == due_at:
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

    def _build_indexes(self) -> None:
        self.ids: dict[tuple[str, str], str] = {}
        self.by_phase: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
        # The jobs of which something is, or should be, in the cluster.
        self.live: dict[str, None] = {}
        # The jobs for which others are giving way.
        self.claimed: dict[str, None] = {}
        # The jobs whose gangs were told to grow.
        self.growing: dict[str, None] = {}
        # Queue -> its queued jobs as a line, and their order alone; queue -> GPUs its jobs hold.
        self.lines: dict[str, Line] = {}
        self.waiting: dict[str, list[Waiting]] = {}
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
        self.endings: list[tuple[float, str]] = []
        self._ends_at: dict[str, float] = {}
        # What others have worked out about jobs, nodes and queues, to be forgotten when those change.
        self.gangs: dict[str, Any] = {}
        self.about_nodes: dict[str, Any] = {}
        self.about_queues: dict[str, Any] = {}
        ways = {self.discipline(name) for name in self.queues}
        self.plans_ahead = not PLANS_AHEAD.isdisjoint(ways)
        # Node -> the jobs that hold something there, with the number of ranks that do.
        self.tenants: dict[str, dict[str, int]] = {name: {} for name in self.nodes}
        # Free devices, and the names of the nodes, both by ordinal.
        self.free = FreeDevices()
        self.node_names = [node.name for node in self.nodes.values()]
        # GPUs of a node -> how many nodes of the cluster have so many.
        self.nodes_by_size: dict[int, int] = {}
        self._room: dict[int, int] = {}
        # When something falls due for a job; the heap may hold earlier deadlines that no job has.
        self._due_at: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        for node in self.nodes.values():
            self.free.set_node(node.ordinal, node.devices, is_open=node.takes_work)
            self._count_node(node, 1)
        for job in self.jobs.values():
            self.ids[job.namespace, job.name] = job.id
            self._index(job)
            attempt = job.live_attempt
            self._note_growth(job)
            if attempt is not None:
                self.live[job.id] = None
                held = [i for i, rank in enumerate(attempt.ranks) if rank.state in HOLDING]
                self._take(job, attempt, held)
                self._note_holder(job)

    def check(self) -> None:
        """Asserts every invariant: the indexes, the counters, and that no device has two owners."""
        twin = World(self.image())
        assert self.ids == twin.ids
        assert self.by_phase == twin.by_phase
        assert self.live == twin.live
        assert self.growing == twin.growing
        assert {q: line for q, line in self.waiting.items() if line} == {
            q: line for q, line in twin.waiting.items() if line
        }
        assert {q: line.alike() for q, line in self.lines.items() if line.order} == {
            q: line.alike() for q, line in twin.lines.items() if line.order
        }
        assert {q: n for q, n in self.used.items() if n} == {
            q: n for q, n in twin.used.items() if n
        }
        assert _nonzero(self.used_parts) == _nonzero(twin.used_parts)
        assert _nonzero(self.used_flavors) == _nonzero(twin.used_flavors)
        assert {q: set(jobs) for q, jobs in self.holders.items() if jobs} == {
            q: set(jobs) for q, jobs in twin.holders.items() if jobs
        }
        assert self.claimed.keys() == twin.claimed.keys()
        assert self.stopping.keys() == twin.stopping.keys()
        assert self.shrinking.keys() == twin.shrinking.keys()
        assert self.exclusive.keys() == twin.exclusive.keys()
        assert self.crippled.keys() == twin.crippled.keys()
        assert self.endings == twin.endings
        assert self.tenants == twin.tenants
        assert self.nodes_by_size == twin.nodes_by_size
        assert self.free.masks == twin.free.masks
        assert self.free.open == twin.free.open
        assert self.free.shared == twin.free.shared
        assert self.free.by_count == twin.free.by_count
        assert self.free.counts == twin.free.counts == sorted(self.free.by_count)
        assert self._due_at == twin._due_at
        assert self.next_deadline() == twin.next_deadline()
        for job in self.jobs.values():
            _check_job(job)


def is_waiting(job: Job) -> bool:
    """Whether the job stands in a line. One that another controller runs never does."""
    return job.phase is Phase.QUEUED and not job.spec.is_external


def _nonzero(counts: dict[Any, int]) -> dict[Any, int]:
    return {key: count for key, count in counts.items() if count}


def _touched(event: e.Event, attempt: Attempt) -> Iterable[int]:
    """The ranks whose state an event may have changed."""
    match event:
        case e.RanksExited():
            return [x.rank for x in event.exits]
        case e.RanksGone():
            return event.ranks
        case e.RankRestarting():
            return (event.rank,)
        case e.RanksReplaced():
            return event.ranks
        case _:
            return range(len(attempt.ranks))


def _check_job(job: Job) -> None:
    attempt = job.attempt
    assert job.finished == (job.finished_at is not None), job
    assert job.failures == sum(restart.spends_budget for restart in job.restarts), job
    limit = job.spec.restart.limit
    # Restarts in place are counted after they have happened, so the last ones may be too many.
    in_place = attempt is not None and any(rank.restarted for rank in attempt.ranks)
    assert limit is None or job.failures <= limit or in_place, job
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
