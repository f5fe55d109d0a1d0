"""The index of owners, their members, and of what waits for other jobs.

`resolved` holds the jobs and owners whose dependencies are decided, `acting` the owners whose rules call for
an event (`lifecycle.owner.must_act`): about these a decision follows from the state alone. The index is computed from the jobs and the owners, and is brought from one state to the next by
`update` and `update_owner`.
"""

from collections.abc import Iterator

from controlplane.lifecycle.dependencies import Verdict, verdict
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Members, Owner, expires_at, must_act, place_of
from controlplane.state.state import State

# Nothing is known of an owner that has no members yet.
_NO_MEMBERS = Members()


class WorkflowIndex:
    def __init__(self, state: State) -> None:
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._jobs = state.jobs
        self._owners = state.owners
        self.ids: dict[tuple[str, str], str] = {}
        # Owner -> its members.
        self.members: dict[str, Members] = {}
        # Target of a dependency -> index of it, or None for all of it -> what waits for that.
        self.dependents: dict[str, dict[int | None, dict[str, None]]] = {}
        # Jobs and owners whose dependencies are decided, and owners that must act.
        self.resolved: dict[str, None] = {}
        self.acting: dict[str, None] = {}
        # When the time to live of an owner is over.
        self.expires: dict[str, float] = {}
        for owner in state.owners.values():
            self.update_owner(None, owner)
        for job in state.jobs.values():
            self.update(None, job)

    # -- change ------------------------------------------------------------------------------

    def update(self, before: Job | None, after: Job | None) -> None:
        """Follow a job from one state to the next; None is a job that does not exist."""
        job = after or before
        assert job is not None
        if job.owner is None and not job.awaits and not self.dependents:
            # Nearly all jobs: they neither belong to anything nor wait for anything.
            return
        self._update_awaits(job.id, before, after)
        if job.owner is not None:
            self._update_member(before, after)
        has_ended = after is None or (after.finished and (before is None or not before.finished))
        if has_ended:
            self._judge_dependents(job.id, None)
            if job.owner is not None:
                self._judge_dependents(job.owner.id, job.owner.index)

    def update_owner(self, before: Owner | None, after: Owner | None) -> None:
        """Follow an owner from one state to the next; None is an owner that does not exist."""
        owner = after or before
        assert owner is not None
        if after is None:
            del self.ids[owner.namespace, owner.name]
        elif before is None:
            self.ids[owner.namespace, owner.name] = owner.id
        self._update_awaits(owner.id, before, after)
        expiry = None if after is None else expires_at(after)
        if expiry is None:
            self.expires.pop(owner.id, None)
        else:
            self.expires[owner.id] = expiry
        self._update_acting(owner.id)
        if after is None or after.finished:
            for index in list(self.dependents.get(owner.id, ())):
                self._judge_dependents(owner.id, index)

    def _update_member(self, before: Job | None, after: Job | None) -> None:
        job = after or before
        assert job is not None
        assert job.owner is not None
        owner = job.owner.id
        members = self.members.setdefault(owner, Members())
        old = None if before is None else place_of(before)
        new = None if after is None else place_of(after)
        if old != new:
            if old is not None:
                members.discard(old, job.id)
            if new is not None:
                members.add(new, job.id)
            if not members.count:
                del self.members[owner]
        self._update_acting(owner)

    def _update_acting(self, owner_id: str) -> None:
        owner = self._owners.get(owner_id)
        if owner is not None and must_act(owner, self.members_of(owner_id), self._jobs):
            self.acting[owner_id] = None
        else:
            self.acting.pop(owner_id, None)

    def _update_awaits(
        self, waiting: str, before: Job | Owner | None, after: Job | Owner | None
    ) -> None:
        old = () if before is None else before.awaits
        new = () if after is None else after.awaits
        if old == new:
            return
        for dependency in old:
            by_index = self.dependents[dependency.target]
            if (of_index := by_index.get(dependency.index)) is not None:
                of_index.pop(waiting, None)
                if not of_index:
                    del by_index[dependency.index]
            if not by_index:
                del self.dependents[dependency.target]
        for dependency in new:
            by_index = self.dependents.setdefault(dependency.target, {})
            by_index.setdefault(dependency.index, {})[waiting] = None
        self._judge(waiting)

    def _judge_dependents(self, target: str, index: int | None) -> None:
        for waiting in list(self.dependents.get(target, {}).get(index, ())):
            self._judge(waiting)

    def _judge(self, waiting: str) -> None:
        item = self._jobs.get(waiting) or self._owners.get(waiting)
        awaits = () if item is None else item.awaits
        if awaits and verdict(awaits, self._jobs, self._owners)[0] is not Verdict.OPEN:
            self.resolved[waiting] = None
        else:
            self.resolved.pop(waiting, None)

    # -- questions ---------------------------------------------------------------------------

    def members_of(self, owner: str) -> Members:
        return self.members.get(owner, _NO_MEMBERS)

    @property
    def is_pending(self) -> bool:
        """Whether a decision follows from the state alone, whatever the time is."""
        return bool(self.resolved or self.acting)

    def next_expiry(self) -> float | None:
        """When the time to live of the next owner is over."""
        return min(self.expires.values(), default=None)

    def expired(self, now: float) -> Iterator[str]:
        return (owner for owner, at in self.expires.items() if at <= now)

    # -- the whole ---------------------------------------------------------------------------

    def check(self, state: State) -> None:
        """Assert that this index equals one that is computed anew."""
        twin = WorkflowIndex(state)
        assert self.ids == twin.ids
        assert self.dependents == twin.dependents
        assert self.resolved.keys() == twin.resolved.keys()
        assert self.acting.keys() == twin.acting.keys()
        assert self.expires == twin.expires
        assert _by_place(self) == _by_place(twin)


def _by_place(index: WorkflowIndex) -> dict[str, dict[str, set[str]]]:
    return {
        owner: {place: set(jobs) for place, jobs in members.by_place.items()}
        for owner, members in index.members.items()
    }
