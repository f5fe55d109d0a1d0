"""Decisions about owners and dependencies within an engine step.

The engine calls `next_decision` after every command and before timers, until it is empty:

1. Jobs and owners whose dependencies are decided are queued, or fail.
2. An owner that must act does so, the oldest first: it changes members to what its phase demands
   (cancel, suspend, resume, delete), submits the next members, ends, or is removed.
3. An owner whose time to live is over is deleted.

Every decision is derived from the state and ordered by submission, so deciding a log again gives
the same decisions.
"""

from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from controlplane.lifecycle.dependencies import Verdict, verdict
from controlplane.lifecycle.draft import Decision, Draft
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import (
    Owner,
    is_done,
    member_id,
    member_name,
    next_indices,
    places_to_leave,
    retries_of,
)
from controlplane.lifecycle.settle import settle
from controlplane.model import events as e
from controlplane.model.dependencies import Dependency
from controlplane.model.errors import Rejected, concerning
from controlplane.model.owners import OwnedBy, OwnerFailure, array_env
from controlplane.model.phases import OwnerPhase, Phase
from controlplane.model.reasons import (
    DependencyUnmet,
    FailureReason,
    JobRemovalReason,
    OwnerRemovalReason,
)
from controlplane.state.world import World

# Raises Rejected unless this job may be submitted within a step.
Admit = Callable[[World, e.JobSubmitted], None]


def next_subject(world: World, now: float) -> str:
    """The id of the job or owner of the next decision, for the record of an error; or empty."""
    index = world.workflows
    if index.resolved:
        return _oldest(world, index.resolved)
    if index.acting:
        return _oldest(world, index.acting)
    return next(index.expired(now), "")


def next_decision(world: World, now: float, admit: Admit) -> Decision:
    """The next decision about dependencies and owners; empty if there is none."""
    index = world.workflows
    if index.resolved:
        return Decision(_resolve(world, now))
    if index.acting:
        owner = world.owners[_oldest(world, index.acting)]
        decided = _act(world, owner, now, admit)
        assert decided, f"{owner} must act, but nothing came of it"
        return Decision(decided)
    for owner_id in sorted(index.expired(now)):
        return Decision([e.OwnerDeleteRequested(owner_id)])
    return Decision([])


def _oldest(world: World, ids: Iterable[str]) -> str:
    return min(ids, key=partial(_submitted_position, world))


def _submitted_position(world: World, subject: str) -> int:
    return (world.jobs.get(subject) or world.owners[subject]).submitted_position


# ------------------------------------------------------------------ dependencies


def _resolve(world: World, now: float) -> list[e.Event]:
    """The events of all jobs and owners with decided dependencies, in the order of submission."""
    decided: list[e.Event] = []
    waiting = sorted(world.workflows.resolved, key=partial(_submitted_position, world))
    for subject in waiting:
        item = world.jobs.get(subject) or world.owners[subject]
        overall, dependency = verdict(item.awaits, world.jobs, world.owners)
        assert overall is not Verdict.OPEN, item
        if isinstance(item, Owner):
            decided.append(_owner_resolved(item, dependency))
            continue
        with concerning(subject):
            draft = Draft(item, now, world.position + len(decided))
            if dependency is None:
                draft.add(e.DependenciesMet(subject))
            else:
                facts = DependencyUnmet(dependency.name, dependency.condition)
                draft.add(e.JobFailed(subject, FailureReason.DEPENDENCY_FAILED, facts=facts))
                settle(draft)
            decided += draft.events
    return decided


def _owner_resolved(owner: Owner, failed: Dependency | None) -> e.Event:
    if failed is None:
        return e.OwnerReady(owner.id)
    return e.OwnerFailed(owner.id, OwnerFailure.DEPENDENCY_FAILED, job=failed.name)


# ------------------------------------------------------------------ owners


def _act(world: World, owner: Owner, now: float, admit: Admit) -> list[e.Event]:
    members = world.workflows.members_of(owner.id)
    if members.any_in(places := places_to_leave(owner)):
        moved = sorted(members.listed(places), key=partial(_submitted_position, world))
        return _move(world, owner, [world.jobs[job] for job in moved], now)
    if owner.deleting:
        return [e.OwnerRemoved(owner.id, OwnerRemovalReason.DELETED)]
    if indices := next_indices(owner, members, world.jobs):
        return _submit(world, owner, indices, admit)
    assert is_done(owner, members), owner
    if members.counted((Phase.SUCCEEDED.value,)) == members.count:
        return [e.OwnerSucceeded(owner.id)]
    return [e.OwnerFailed(owner.id, OwnerFailure.MEMBERS_FAILED)]


def _move(world: World, owner: Owner, members: list[Job], now: float) -> list[e.Event]:
    """Cancel, suspend, resume or delete members, as the owner's state demands."""
    decided: list[e.Event] = []
    for member in members:
        with concerning(member.id):
            draft = Draft(member, now, world.position + len(decided))
            if owner.finished and not member.finished:
                draft.add(e.JobCancelled(member.id))
            if owner.deleting:
                draft.add(e.JobDeleteRequested(member.id))
            elif owner.phase is OwnerPhase.SUSPENDED:
                draft.add(e.JobSuspended(member.id, FailureReason.OWNER_SUSPENDED))
            elif owner.phase is OwnerPhase.ACTIVE:
                draft.add(e.JobResumed(member.id))
            decided += settle(draft).events
    return decided


def _submit(world: World, owner: Owner, indices: tuple[int, ...], admit: Admit) -> list[e.Event]:
    """The submissions of the members of these indices. A refused member fails its owner."""
    decided: list[e.Event] = []
    for index in indices:
        if index in owner.retrying:
            replaced = member_id(owner, index, retries_of(owner, index) - 1)
            if replaced in world.jobs:
                decided.append(e.JobRemoved(replaced, JobRemovalReason.RETRIED))
        submitted = member_of(owner, index)
        try:
            admit(world, submitted)
        except Rejected as refusal:
            name = f"{submitted.namespace}/{submitted.name}"
            why = OwnerFailure.MEMBER_REFUSED
            return [*decided, e.OwnerFailed(owner.id, why, job=name, error=refusal.code)]
        decided.append(submitted)
    return decided


def member_of(owner: Owner, index: int) -> e.JobSubmitted:
    """The submission of one index of an array."""
    array = owner.spec
    return e.JobSubmitted(
        member_id(owner, index),
        owner.namespace,
        member_name(owner, index),
        array.job,
        after=tuple(replace(dependency, index=index) for dependency in array.each_after),
        owner=OwnedBy(id=owner.id, name=owner.full_name, index=index, env=array_env(array, index)),
    )
