"""Jobs by name, by phase and by deadline. Each index can be computed from the state; `check` does so."""

import heapq

from controlplane.lifecycle.job import Job
from controlplane.lifecycle.timers import deadline
from controlplane.model.phases import Phase
from controlplane.state.state import State


class NameIndex:
    """Namespace and name -> job id."""

    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self.ids = {(job.namespace, job.name): job.id for job in state.jobs.values()}

    def update(self, before: Job | None, after: Job | None) -> None:
        """Follow one job through an event; a job keeps its name as long as it exists."""
        if before is None and after is not None:
            self.ids[after.namespace, after.name] = after.id
        elif after is None and before is not None:
            del self.ids[before.namespace, before.name]

    def check(self, state: State) -> None:
        assert self.ids == NameIndex(state).ids


class PhaseIndex:
    """Phase -> job ids; and the jobs in quarantine."""

    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self.by_phase: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
        # Jobs that stopped an engine twice; nothing is decided about them any more.
        self.quarantined: dict[str, None] = {}
        for job in state.jobs.values():
            self.update(None, job)

    def update(self, before: Job | None, after: Job | None) -> None:
        if before is not None and (after is None or before.phase is not after.phase):
            del self.by_phase[before.phase][before.id]
        if after is None:
            if before is not None:
                self.quarantined.pop(before.id, None)
            return
        if before is None or before.phase is not after.phase:
            self.by_phase[after.phase][after.id] = None
        if after.quarantined:
            self.quarantined[after.id] = None

    def check(self, state: State) -> None:
        fresh = PhaseIndex(state)
        assert self.by_phase == fresh.by_phase
        assert self.quarantined.keys() == fresh.quarantined.keys()


class TimerIndex:
    """The deadlines of jobs as a heap. It may hold old deadlines; those are dropped when they surface."""

    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._due_at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        for job in state.jobs.values():
            self.update(None, job)

    def update(self, before: Job | None, after: Job | None) -> None:
        job = after or before
        assert job is not None
        due_at = None if after is None else deadline(after)
        if due_at is None:
            self._due_at.pop(job.id, None)
        elif self._due_at.get(job.id) != due_at:
            self._due_at[job.id] = due_at
            heapq.heappush(self._heap, (due_at, job.id))

    def next_deadline(self) -> float | None:
        """The earliest deadline of all jobs, or None."""
        first = self._first()
        return None if first is None else first[0]

    def next_due(self, now: float) -> str | None:
        """The job whose deadline passed longest ago, or None."""
        # The heap's first entry may be an old deadline, but no job has an earlier one.
        if not self._heap or self._heap[0][0] > now:
            return None
        first = self._first()
        return None if first is None or first[0] > now else first[1]

    def _first(self) -> tuple[float, str] | None:
        while self._heap:
            due_at, job_id = self._heap[0]
            if self._due_at.get(job_id) == due_at:
                return self._heap[0]
            heapq.heappop(self._heap)
        return None

    def check(self, state: State) -> None:
        fresh = TimerIndex(state)
        assert self._due_at == fresh._due_at
        assert self.next_deadline() == fresh.next_deadline()
