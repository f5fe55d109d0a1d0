"""Index of the waiting jobs whose feasibility may have changed: whether they could start on an empty cluster.

The check itself belongs to the scheduler (`scheduling/explain/schedulability.py`). It is needed again for
every waiting job when nodes, queues or policy change, and for a single job when it begins to wait, its spec
changes, or a member of its group comes or goes. This index records the log position of each such change, so a
scheduler that remembers the position of its last review finds what changed since then.
"""

from controlplane.lifecycle.job import Job
from controlplane.model.phases import AWAKE, WAITING
from controlplane.model.spec import OUR_NAMES
from controlplane.state.queue_order import Need, is_waiting, need_of
from controlplane.state.state import State


class FeasibilityIndex:
    """Waiting jobs by what they need, groups of gangs, and when either changed."""

    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._state = state
        # What queued jobs need of a cluster -> the jobs that need exactly that.
        self.by_need: dict[Need, dict[str, None]] = {}
        self._need: dict[str, Need] = {}
        # Group -> its gangs that wait or run.
        self.groups: dict[str, dict[str, None]] = {}
        # The position at which something changed for every waiting job; and for single ones, in order.
        self.all_changed_at = state.position
        self._changed_at: dict[str, int] = {}
        for job in state.jobs.values():
            if is_waiting(job):
                self._add_need(job)
            if job.spec.scheduling.group and _is_awake(job):
                self.groups.setdefault(job.spec.scheduling.group, {})[job.id] = None

    def change_all(self) -> None:
        """Nodes, queues or policy changed."""
        self.all_changed_at = self._state.position

    def changed_since(self, position: int) -> list[str]:
        """The waiting jobs whose own chances changed after `position`, in the order of their change."""
        changed = []
        for job_id, at in reversed(self._changed_at.items()):
            if at <= position:
                break
            changed.append(job_id)
        return changed[::-1]

    def update(self, before: Job | None, after: Job | None) -> None:
        if (
            before
            and after
            and before.phase is after.phase
            and before.spec is after.spec
            and before.awaits == after.awaits
        ):
            return
        if before is not None and is_waiting(before):
            self._remove_need(before)
        if after is None:
            return
        if is_waiting(after):
            self._add_need(after)
        if not _waits(after):
            self._changed_at.pop(after.id, None)
        elif before is None or not _waits(before) or before.spec is not after.spec:
            self._note_change(after.id)
        if after.spec.scheduling.group:
            was_awake = before is not None and _is_awake(before)
            if was_awake is not _is_awake(after):
                self._update_group(after)

    def _note_change(self, job_id: str) -> None:
        self._changed_at.pop(job_id, None)
        self._changed_at[job_id] = self._state.position

    def _update_group(self, job: Job) -> None:
        """The job joins its group or leaves it, which changes the chances of the other members."""
        group = job.spec.scheduling.group
        members = self.groups.setdefault(group, {})
        if _is_awake(job):
            members[job.id] = None
        else:
            members.pop(job.id, None)
        for member in members:
            if _waits(self._state.jobs[member]):
                self._note_change(member)
        if not members:
            del self.groups[group]

    def _add_need(self, job: Job) -> None:
        need = self._need[job.id] = need_of(job.spec)
        self.by_need.setdefault(need, {})[job.id] = None

    def _remove_need(self, job: Job) -> None:
        need = self._need.pop(job.id)
        jobs = self.by_need[need]
        del jobs[job.id]
        if not jobs:
            del self.by_need[need]

    def check(self, state: State) -> None:
        fresh = FeasibilityIndex(state)
        assert self.by_need == fresh.by_need
        assert self.groups == fresh.groups
        assert list(self._changed_at.values()) == sorted(self._changed_at.values())
        assert all(_waits(state.jobs[job_id]) for job_id in self._changed_at)


def _waits(job: Job) -> bool:
    """Whether the job is queued or unschedulable. A job that another controller manages never is, and
    one that waits for other jobs is not yet."""
    return job.phase in WAITING and job.spec.managed_by in OUR_NAMES and not job.awaits


def _is_awake(job: Job) -> bool:
    """Whether the job's group can count on it."""
    return job.phase in AWAKE and job.spec.managed_by in OUR_NAMES and not job.awaits
