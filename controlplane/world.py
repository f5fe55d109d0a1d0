"""A state with the indexes that make decisions quick: by name, by phase, by deadline, by room.

Every index can be computed from the state; `check` does so and compares.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from controlplane import attempt as a
from controlplane import events as e
from controlplane.attempt import HOLDING, Attempt, AttemptState
from controlplane.devices import FreeDevices, mask_of
from controlplane.job import EVOLVE, Job, Phase, deadline, ranks_wanted
from controlplane.state import Image, Node, State

# A queued job's place: minus its priority, the position at which it was queued, and its id. So the
# higher priority comes first, and then who came first.
Waiting = tuple[int, int, str]

# Looking a member up in its enum costs as much as a call.
_OVER = AttemptState.OVER


class World(State):
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
        if before.phase is not after.phase:
            self._follow_phase(before, after)
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
            case e.NodeEvent():
                old = self.nodes.get(event.node)
                super().apply(recorded)
                self._follow_node(old, self.nodes[event.node])
            case _:
                super().apply(recorded)

    def _index(self, job: Job) -> None:
        self.by_phase[job.phase][job.id] = None
        if is_waiting(job):
            self._join_line(job)
        self._note_deadline(job)

    def _follow_phase(self, before: Job, after: Job) -> None:
        del self.by_phase[before.phase][before.id]
        self.by_phase[after.phase][after.id] = None
        if is_waiting(before):
            line = self.waiting[before.spec.queue]
            place = place_in_line(before)
            # Most who leave stood first.
            del line[0 if line[0] == place else bisect_left(line, place)]
        if is_waiting(after):
            self._join_line(after)

    def _note_growth(self, job: Job) -> None:
        if job.spec.roles[-1].is_elastic and ranks_wanted(job):
            self.growing[job.id] = None
        else:
            self.growing.pop(job.id, None)

    def _join_line(self, job: Job) -> None:
        line, place = self.waiting.setdefault(job.spec.queue, []), place_in_line(job)
        # Most who come go to the end.
        if line and place < line[-1]:
            insort(line, place)
        else:
            line.append(place)

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
        else:
            self.live[after.id] = None
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

    def _count_node(self, node: Node, change: int) -> None:
        self._room.clear()
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

    # -- questions ---------------------------------------------------------------------------

    def job(self, namespace: str, name: str) -> Job | None:
        """The job that people know by this name."""
        job_id = self.ids.get((namespace, name))
        return None if job_id is None else self.jobs[job_id]

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
        # The jobs whose gangs were told to grow.
        self.growing: dict[str, None] = {}
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
        assert {q: n for q, n in self.used.items() if n} == {
            q: n for q, n in twin.used.items() if n
        }
        assert self.tenants == twin.tenants
        assert self.nodes_by_size == twin.nodes_by_size
        assert self.free.masks == twin.free.masks
        assert self.free.open == twin.free.open
        assert [x for x in self.free.by_count if x] == [x for x in twin.free.by_count if x]
        assert self._due_at == twin._due_at
        assert self.next_deadline() == twin.next_deadline()
        for job in self.jobs.values():
            _check_job(job)


def is_waiting(job: Job) -> bool:
    """Whether the job stands in a line. One that another controller runs never does."""
    return job.phase is Phase.QUEUED and not job.spec.is_external


def place_in_line(job: Job) -> Waiting:
    return -job.spec.priority, job.queued_as, job.id


def _touched(event: e.Event, attempt: Attempt) -> Iterable[int]:
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
