"""Indexes that backfill plans with: how long jobs run, and when the running gangs are planned to end.

Both are kept only while some queue has a discipline that uses them.
"""

from bisect import bisect_left, insort

from controlplane.disciplines.discipline import OnBlocked
from controlplane.lifecycle.job import Job
from controlplane.model.phases import AttemptState, Phase
from controlplane.state.run_lengths import Estimate, RunLengths, estimate
from controlplane.state.state import State


class RunLengthIndex:
    """The run lengths of all jobs that have succeeded; empty if no queue's discipline uses them."""

    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._state = state
        self.learns = state.learns_now()
        self._groups_of_removed = len(state.lengths.groups)
        self.known = RunLengths()
        if self.learns:
            self.known = state.lengths.copy()
            for job in state.jobs.values():
                self.known.add_job(job)

    def estimate(self, job: Job) -> Estimate:
        """How long an attempt of the job is planned to run, and where the number comes from."""
        return estimate(job.namespace, job.spec, self._state.policy, self.known)

    def update(self, before: Job | None, after: Job | None) -> bool:
        """Follow one job through an event; return whether some job's estimate may have changed."""
        if after is None:
            return self._forgot_groups()
        succeeded = after.phase is Phase.SUCCEEDED
        if not self.learns or not succeeded or (before and before.phase is after.phase):
            return False
        return self.known.add_job(after)

    def _forgot_groups(self) -> bool:
        """The state bounds what it keeps of removed jobs; see `RunLengths.forget`."""
        before, self._groups_of_removed = self._groups_of_removed, len(self._state.lengths.groups)
        if self._groups_of_removed >= before:
            return False
        self.rebuild(self._state)
        return True

    def check(self, state: State) -> None:
        fresh = RunLengthIndex(state)
        assert self.learns == fresh.learns
        assert self.known == fresh.known


class PlannedEnds:
    """When the gangs that hold devices are planned to end, the earliest first."""

    def __init__(self, state: State, lengths: RunLengthIndex) -> None:
        self._lengths = lengths
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._state = state
        self.is_kept = any(
            state.discipline(name).on_blocked is OnBlocked.BACKFILL for name in state.queues
        )
        self.order: list[tuple[float, str]] = []
        self._ends_at: dict[str, float] = {}
        if self.is_kept:
            for job in state.jobs.values():
                if job.live_attempt is not None:
                    self._add(job)

    def replan(self) -> None:
        """Learned run lengths changed."""
        for job_id in list(self._ends_at):
            self._add(self._state.jobs[job_id])

    def update(self, before: Job | None, after: Job | None) -> None:
        if not self.is_kept or before is None or after is None or after.attempt is None:
            return
        if after.attempt.state is AttemptState.OVER:
            self._remove(after.id)
        elif before.spec is not after.spec or after.id not in self._ends_at:
            self._add(after)

    def _add(self, job: Job) -> None:
        assert job.attempt is not None, job
        ends_at = job.attempt.placed_at + self._lengths.estimate(job).planned_s
        if self._ends_at.get(job.id) != ends_at:
            self._remove(job.id)
            self._ends_at[job.id] = ends_at
            insort(self.order, (ends_at, job.id))

    def _remove(self, job_id: str) -> None:
        ends_at = self._ends_at.pop(job_id, None)
        if ends_at is not None:
            del self.order[bisect_left(self.order, (ends_at, job_id))]

    def check(self, state: State) -> None:
        fresh = PlannedEnds(state, self._lengths)
        assert self.is_kept == fresh.is_kept
        assert self.order == fresh.order
