"""Requests about arrays, and requests that members refuse because they belong to an array.

A request changes the array alone. Its members follow in the same step (`workflows/owners.py`).
"""

from typing import assert_never

from msgspec import UnsetType
from msgspec.structs import replace

from controlplane.decisions.admission import admit_array
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner, member_id
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.dependencies import Condition
from controlplane.model.errors import Rejected
from controlplane.model.owners import ArraySpec, parse_array
from controlplane.model.phases import OwnerPhase, Phase
from controlplane.state.world import World
from controlplane.workflows.dependencies import owner_named, resolve

JobRequest = c.CancelJob | c.SuspendJob | c.ResumeJob | c.DeleteJob | c.ScaleJob | c.AmendJob


def array_submitted(world: World, command: c.SubmitJob) -> list[e.Event]:
    """The events of the submission of an array. Raises Rejected."""
    spec = command.spec
    try:
        indices, limit = parse_array(spec.array)
    except ValueError as error:
        raise Rejected("invalid_job", f"spec.array: {error}", field="spec.array") from None
    member = replace(spec, array="", after=(), ttl_s=None)
    admit_array(world, replace(command, spec=member), indices)
    dependencies = resolve(world, command.namespace, command.name, spec.after, indices)
    array = ArraySpec(
        job=member,
        indices=indices,
        limit=limit,
        after=spec.after,
        each_after=tuple(d for d in dependencies if d.condition is Condition.CORRESPONDING),
        ttl_s=spec.ttl_s,
    )
    after = tuple(d for d in dependencies if d.condition is not Condition.CORRESPONDING)
    event = e.OwnerSubmitted(command.job, command.namespace, command.name, array, after)
    return [event, e.OwnerSuspended(command.job)] if command.suspended else [event]


def owner_changed(owner: Owner, command: JobRequest) -> list[e.Event]:
    """The events of a request about an existing array. Raises Rejected."""
    if command.job not in ("", owner.id):
        raise Rejected("no_such_job", f"{owner.full_name} is another array by now")
    if owner.finished and not isinstance(command, c.DeleteJob | c.ScaleJob | c.AmendJob):
        phase = owner.phase.value.lower()
        raise Rejected("already_finished", f"{owner.full_name} is finished: {phase}")
    match command:
        case c.DeleteJob():
            cancelled = [] if owner.finished else [e.OwnerCancelled(owner.id)]
            return [*cancelled, *([] if owner.deleting else [e.OwnerDeleteRequested(owner.id)])]
        case c.CancelJob():
            return [e.OwnerCancelled(owner.id)]
        case c.SuspendJob():
            is_asleep = owner.phase is OwnerPhase.SUSPENDED
            return [] if is_asleep else [e.OwnerSuspended(owner.id)]
        case c.ResumeJob():
            if owner.phase is not OwnerPhase.SUSPENDED:
                raise Rejected("not_suspended", f"{owner.full_name} is not suspended")
            return [e.OwnerResumed(owner.id)]
        case c.ScaleJob() | c.AmendJob():
            raise Rejected(
                "not_for_arrays",
                f"{owner.full_name} is an array; ask this of one index, as {owner.name}"
                f"-{owner.spec.indices[0]}",
            )
        case _:
            assert_never(command)


def members_retried(world: World, command: c.RetryMembers) -> list[e.Event]:
    """The events of a retry of indices; without indices, of all that failed. Raises Rejected."""
    owner = owner_named(world, command.namespace, command.name)
    if owner is None:
        if world.job(command.namespace, command.name) is None:
            name = f"{command.namespace}/{command.name}"
            raise Rejected("no_such_job", f"there is no job or array {name}")
        raise Rejected(
            "not_an_array",
            f"{command.namespace}/{command.name} is a job; indices of an array are retried, and a job "
            "is submitted again",
        )
    if owner.deleting or owner.phase is OwnerPhase.CANCELLED:
        phase = "being deleted" if owner.deleting else "cancelled"
        raise Rejected("already_finished", f"{owner.full_name} is {phase}; submit it again")
    indices = command.indices or _failed_indices(world, owner)
    for index in indices:
        _require_failed(world, owner, index)
    if not indices:
        raise Rejected("nothing_to_retry", f"no index of {owner.full_name} has failed")
    return [e.MembersRetried(owner.id, tuple(sorted(set(indices))))]


def _failed_indices(world: World, owner: Owner) -> tuple[int, ...]:
    places = (Phase.FAILED.value, Phase.CANCELLED.value)
    ids = world.workflows.members_of(owner.id).listed(places)
    owned = [world.jobs[job].owner for job in ids]
    return tuple(o.index for o in owned if o is not None and o.index not in owner.retrying)


def _require_failed(world: World, owner: Owner, index: int) -> None:
    if index not in owner.spec:
        raise Rejected("no_such_index", f"array {owner.full_name} has no index {index}")
    if index in owner.retrying:
        raise Rejected("nothing_to_retry", f"index {index} is being retried already")
    member = world.jobs.get(member_id(owner, index))
    if member is None or not member.finished or member.phase is Phase.SUCCEEDED:
        phase = "not submitted yet" if member is None else member.phase.value.lower()
        raise Rejected("nothing_to_retry", f"index {index} has not failed: it is {phase}")


def refuse_for_member(world: World, job: Job, command: JobRequest) -> None:
    """Raise Rejected if the request must be made of the job's owner instead."""
    assert job.owner is not None
    owner, name = world.owners[job.owner.id], f"{job.namespace}/{job.name}"
    if isinstance(command, c.DeleteJob):
        raise Rejected(
            "owned_job",
            f"{name} belongs to array {owner.full_name}: cancel it, or delete the whole array",
        )
    if isinstance(command, c.AmendJob) and not isinstance(command.ttl_s, UnsetType):
        raise Rejected(
            "owned_job",
            f"{name} is kept as long as its array {owner.full_name}; it has no ttl_s of its own",
            field="ttl_s",
        )
    if isinstance(command, c.ResumeJob) and owner.phase is OwnerPhase.SUSPENDED:
        raise Rejected("owner_suspended", f"array {owner.full_name} is suspended: resume the array")
