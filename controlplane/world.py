"""A state with the indexes that make decisions quick: by name, by phase, by deadline, by room.

Every index can be computed from the state; `check` does so and compares.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from controlplane import events as e
from controlplane.deadlines import deadline
from controlplane.image import Image
from controlplane.invariants import check_indexes, check_job
from controlplane.job import AWAKE, CLAIMED, WAITING, Job, Phase
from controlplane.job_life import EVOLVE
from controlplane.lines import Line, Need, Waiting, need_of, place_in_line
from controlplane.model import OUR_NAMES
from controlplane.state import State
from controlplane.tenancy import Tenancy

_QUEUED, _SUCCEEDED = Phase.QUEUED, Phase.SUCCEEDED


class World(Tenancy):
    def __init__(self, image: Image | None = None) -> None:
        super().__init__(image)
        self._build_indexes()

    @classmethod
    def around(cls, state: State) -> "World":
        """A state with indexes. It is the world's from here on, and nobody else's."""
        world = cls()
        world._take_over(state)
        world._build_indexes()
        return world

    # -- change ------------------------------------------------------------------------------

    def apply(self, recorded: e.Recorded) -> None:
        """Takes one more event in, and brings the indexes after it."""
        self.apply_together((recorded,))

    def apply_together(self, batch: Sequence[e.Recorded], outcome: Job | None = None) -> None:
        """Takes in events that were decided together, and then brings the indexes after them.

        `outcome` is what they make of the one job that they are about, if whoever decided them
        has folded them already.
        """
        if outcome is not None:
            before = self.jobs[outcome.id]
            self.jobs[outcome.id] = outcome
            self._note_batch(batch)
            self._follow(before, outcome)
            return
        for recorded in batch:
            event = recorded.event
            if type(event) in EVOLVE:
                job_id: str = event.job  # type: ignore[attr-defined]
                before = self.jobs[job_id]
                super().apply(recorded)
                self._follow(before, self.jobs[job_id])
            else:
                self._apply_rarer_event(recorded, event)

    def _follow(self, before: Job, after: Job) -> None:
        """Brings the indexes from one state of a job to another."""
        old, new = before.phase, after.phase
        spec_changed = before.spec is not after.spec
        if spec_changed:
            self._follow_requests(before, after)
        if before.attempt is not after.attempt:
            self._follow_attempt(before.attempt, after)
        if spec_changed:
            self._follow_spec(after)
        if old is not new:
            del self.by_phase[old][after.id]
            self.by_phase[new][after.id] = None
        # Who neither stood nor stands in a line cannot have moved in it.
        if (old is _QUEUED or new is _QUEUED) and (
            old is not new or spec_changed or before.queued_as != after.queued_as
        ):
            if is_waiting(before):
                self._leave_line(before)
            if is_waiting(after):
                self._join_line(after)
        elif before.held != after.held and is_waiting(after):
            line = self.lines[after.spec.queue]
            line.told(self.place_in_line(after), after.spec, before.held, after.held)
        if before.held or after.held:
            self._note_claim(after)
        if after.quarantined:
            self.quarantined[after.id] = None
        if old is not new or spec_changed:
            self._follow_review(before, after)
        self._note_deadline(after)
        if new is _SUCCEEDED and old is not new and self.learns:
            self._learn(after)

    def _learn(self, job: Job) -> None:
        """A job has succeeded: how long it ran may change what others are planned with."""
        if self.run_lengths.add_job(job):
            self._follow_plans()
            self._line_up()

    def _follow_review(self, before: Job, after: Job) -> None:
        """Whether the job could start at all is to be looked at, and its group with it."""
        if not _waits(after):
            self.to_review.pop(after.id, None)
        elif before.phase not in WAITING or before.spec is not after.spec:
            self.to_review[after.id] = None
        if after.spec.scheduling.group and _is_awake(before) is not _is_awake(after):
            self._note_group(after)

    def _note_group(self, job: Job) -> None:
        """The job is one of its group from here on, or no longer; the others are looked at again."""
        group = job.spec.scheduling.group
        members = self.groups.setdefault(group, {})
        if _is_awake(job):
            members[job.id] = None
        else:
            members.pop(job.id, None)
        self.to_review.update(dict.fromkeys(i for i in members if _waits(self.jobs[i])))
        if not members:
            del self.groups[group]

    def _follow_spec(self, job: Job) -> None:
        self.gangs.pop(job.id, None)
        self._note_growth(job)
        if (attempt := job.live_attempt) is not None:
            self._note_holder(job, attempt)

    def _apply_rarer_event(self, recorded: e.Recorded, event: e.Event) -> None:
        match event:
            case e.JobSubmitted():
                super().apply(recorded)
                # Nothing holds a job that has just come, and nothing falls due for it.
                job = self.jobs[event.job]
                self._name(job)
                if is_waiting(job):
                    self._join_line(job)
                    self.to_review[job.id] = None
                    if job.spec.scheduling.group:
                        self._note_group(job)
            case e.JobRemoved():
                gone = self.jobs[event.job]
                groups = len(self.lengths.groups)
                super().apply(recorded)
                if len(self.lengths.groups) < groups:
                    # Groups were forgotten that jobs may be planned by.
                    self._follow_policy()
                del self.ids[gone.namespace, gone.name]
                del self.by_phase[gone.phase][gone.id]
                self._due_at.pop(gone.id, None)
                self.gangs.pop(gone.id, None)
                self._requests.pop(gone.id, None)
                self.claimed.pop(gone.id, None)
                self.quarantined.pop(gone.id, None)
            case e.NodeEvent():
                old = self.nodes.get(event.node)
                super().apply(recorded)
                self._follow_node(old, self.nodes[event.node])
            case _:
                super().apply(recorded)
                if isinstance(event, e.ClusterSurveyed | e.EngineStarted):
                    self.review_all = True
                sets_rules = isinstance(event, e.QueueDefined | e.QueueRemoved | e.PolicySet)
                if sets_rules or self.learns is not self.learns_now():
                    self._follow_policy()

    def _name(self, job: Job) -> None:
        if job.quarantined:
            self.quarantined[job.id] = None
        self.ids[job.namespace, job.name] = job.id
        self.by_phase[job.phase][job.id] = None

    def _index(self, job: Job) -> None:
        self._name(job)
        if is_waiting(job):
            self._join_line(job)
        if job.spec.scheduling.group and _is_awake(job):
            self.groups.setdefault(job.spec.scheduling.group, {})[job.id] = None
        if job.held:
            self._note_claim(job)
        self._note_deadline(job)

    def _note_claim(self, job: Job) -> None:
        if job.held == CLAIMED and is_waiting(job):
            self.claimed[job.id] = None
        else:
            self.claimed.pop(job.id, None)

    def _join_line(self, job: Job) -> None:
        queue = job.spec.queue
        line = self.lines.get(queue)
        if line is None:
            line = self.lines[queue] = Line(
                self.discipline(queue), self.policy, by_request=self.by_request
            )
            self.waiting[queue] = line.order
        planned_s = self.estimate(job).planned_s if line.plans else 0.0
        line.join(self.place_in_line(job), job.spec, job.held, planned_s)
        need = self._need[job.id] = need_of(job.spec)
        self.by_need.setdefault(need, {})[job.id] = None

    def _leave_line(self, job: Job) -> None:
        self.lines[job.spec.queue].leave(self.place_in_line(job), job.spec, job.held)
        need = self._need.pop(job.id)
        alike = self.by_need[need]
        del alike[job.id]
        if not alike:
            del self.by_need[need]

    def _note_deadline(self, job: Job) -> None:
        due_at = deadline(job)
        if due_at is None:
            self._due_at.pop(job.id, None)
        elif self._due_at.get(job.id) != due_at:
            self._due_at[job.id] = due_at
            heapq.heappush(self._deadlines, (due_at, job.id))

    def _follow_policy(self) -> None:
        """Lines are ordered as their disciplines say, and planned if one of them plans ahead."""
        self.about_queues.clear()
        self.about_nodes.clear()
        self.review_all = True
        self.free.watch(None)
        self._build_lengths()
        self._follow_plans()
        self._line_up()

    def _line_up(self) -> None:
        """Puts all who wait in line anew."""
        waiting = [self.jobs[place.job] for line in self.lines.values() for place in line.order]
        self.lines.clear()
        self.waiting.clear()
        self.by_need.clear()
        for job in waiting:
            self._join_line(job)

    # -- questions ---------------------------------------------------------------------------

    def job(self, namespace: str, name: str) -> Job | None:
        """The job that people know by this name."""
        job_id = self.ids.get((namespace, name))
        return None if job_id is None else self.jobs[job_id]

    @property
    def by_request(self) -> bool:
        """Whether some queue has a quota of what pods request beside GPUs."""
        found = self.about_queues.get("by_request")
        if found is None:
            found = any(queue.resources for queue in self.queues.values())
            self.about_queues["by_request"] = found
        return bool(found)

    def place_in_line(self, job: Job) -> Waiting:
        discipline = self.discipline(job.spec.queue)
        return place_in_line(job, discipline, self.policy, self.run_lengths)

    def next_deadline(self) -> float | None:
        """When the next thing falls due by itself."""
        due_at, cycle = self._next_deadline_of_jobs(), self.cycle
        if cycle is None or not cycle.limited:
            return due_at
        return cycle.ends_at if due_at is None else min(due_at, cycle.ends_at)

    def cycle_is_over(self, now: float) -> bool:
        """Whether the next scheduling cycle is due, for gangs that the present one left over."""
        return self.cycle is not None and self.cycle.limited and self.cycle.ends_at <= now

    def _next_deadline_of_jobs(self) -> float | None:
        deadlines = self._deadlines
        while deadlines:
            due_at, job_id = deadlines[0]
            if self._due_at.get(job_id) == due_at:
                return due_at
            heapq.heappop(deadlines)
        return None

    def next_due(self, now: float) -> Job | None:
        """A job for which something is due, the longest overdue first."""
        # Some job may no longer have the first deadline of all, but no job has an earlier one.
        if not self._deadlines or self._deadlines[0][0] > now:
            return None
        due_at = self._next_deadline_of_jobs()
        return None if due_at is None or due_at > now else self.jobs[self._deadlines[0][1]]

    # -- the whole ---------------------------------------------------------------------------

    def _build_indexes(self) -> None:
        self.ids: dict[tuple[str, str], str] = {}
        self.by_phase: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
        # The jobs that stopped an engine twice, for which nothing is decided any more.
        self.quarantined: dict[str, None] = {}
        # The jobs for which others are giving way.
        self.claimed: dict[str, None] = {}
        # Queue -> its queued jobs as a line, and their order alone.
        self.lines: dict[str, Line] = {}
        self.waiting: dict[str, list[Waiting]] = {}
        # What queued jobs need of a cluster -> those that need just that.
        self.by_need: dict[Need, dict[str, None]] = {}
        self._need: dict[str, Need] = {}
        # Group -> its gangs that wait or run.
        self.groups: dict[str, dict[str, None]] = {}
        # The waiting jobs whose chances have to be looked at again; see `review_all`.
        self.to_review: dict[str, None] = {}
        # What others have worked out about jobs and queues, to be forgotten when those change.
        self.gangs: dict[str, Any] = {}
        self.about_queues: dict[str, Any] = {}
        # When something falls due for a job; the heap may hold earlier deadlines that no job has.
        self._due_at: dict[str, float] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._build_tenancy()
        for job in self.jobs.values():
            if job.finished_at is None or job.spec.ttl_s is not None:
                self._index(job)
            else:
                # Most jobs of a long log: nothing will ever happen to them again.
                self._name(job)

    def check(self) -> None:
        """Asserts every invariant: the indexes, the counters, and that no device has two owners."""
        twin = World(self.image())
        check_indexes(self, twin)
        assert _alike(self) == _alike(twin)
        assert self.next_deadline() == twin.next_deadline()
        for job in self.jobs.values():
            check_job(job)


def _alike(world: World) -> dict[str, object]:
    return {queue: line.alike() for queue, line in world.lines.items() if line.order}


def _waits(job: Job) -> bool:
    """Whether it waits, in its line or set aside. One that another controller runs never does."""
    return job.phase in WAITING and job.spec.managed_by in OUR_NAMES


def _is_awake(job: Job) -> bool:
    """Whether its group can count on it."""
    return job.phase in AWAKE and job.spec.managed_by in OUR_NAMES


def is_waiting(job: Job) -> bool:
    """Whether the job stands in a line. One that another controller runs never does."""
    return job.phase is _QUEUED and job.spec.managed_by in OUR_NAMES
