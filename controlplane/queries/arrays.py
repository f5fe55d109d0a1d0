"""Read-only answers about arrays: a row with counts, its indices, why it waits or how it ended."""

from collections.abc import Iterator

from controlplane.lifecycle.attempt import asked_gpus
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import PAUSED, Members, Owner
from controlplane.messages import Reason, array_summary, owner_failure_text
from controlplane.model.owners import indices_text, written_spec
from controlplane.model.phases import ACTIVE, AWAKE, WAITING, OwnerPhase, Phase
from controlplane.queries.queries import job_view, why_dependent
from controlplane.queries.views import ArrayView, JobDetail, JobView, Why
from controlplane.state.world import World

# The state of a member as users see it, and the places of `lifecycle.owner` that it covers.
_GROUPS: dict[str, tuple[str, ...]] = {
    "queued": (*(phase.value for phase in WAITING), Phase.RESTARTING.value),
    "running": tuple(phase.value for phase in ACTIVE),
    "suspended": (Phase.SUSPENDED.value, PAUSED),
    "succeeded": (Phase.SUCCEEDED.value,),
    "failed": (Phase.FAILED.value,),
    "cancelled": (Phase.CANCELLED.value,),
}


def array_phase(owner: Owner, members: Members) -> Phase:
    """The phase of an array as a whole, as a job's phase."""
    if owner.phase is not OwnerPhase.ACTIVE:
        return Phase(owner.phase.value)
    if members.any_in(_GROUPS["running"]):
        return Phase.RUNNING
    return Phase.RESTARTING if members.any_in((Phase.RESTARTING.value,)) else Phase.QUEUED


def array_view(world: World, owner: Owner) -> JobView:
    """The array in one row, with counts of its indices."""
    members, spec, array = world.workflows.members_of(owner.id), owner.spec.job, owner.spec
    awake = [job_view(world.jobs[job]) for job in members.listed(phase.value for phase in AWAKE)]
    return JobView(
        namespace=owner.namespace,
        name=owner.name,
        id=owner.id,
        kind=spec.kind,
        queue=spec.queue,
        priority=spec.priority,
        phase=array_phase(owner, members),
        reason="" if owner.failure is None else owner.failure.value,
        message=owner_failure_text(owner),
        gpus=asked_gpus(spec),
        ranks=spec.size * len(array.indices),
        ranks_running=sum(job.ranks_running for job in awake),
        attempt=0,
        restarts=sum(job.restarts for job in awake),
        failures=0,
        failures_max=spec.restart.limit,
        submitted_at=owner.submitted_at,
        queued_at=owner.submitted_at,
        placed_at=None,
        running_at=None,
        finished_at=owner.finished_at,
        retry_at=None,
        gpus_held=sum(job.gpus_held for job in awake),
        deleting=owner.deleting,
        gpu_memory_mib=sum(role.replicas * role.gpu_memory_mib for role in spec.roles),
        waits_for=tuple(dependency.name for dependency in owner.awaits),
        array=_counts(owner, members),
    )


def _counts(owner: Owner, members: Members) -> ArrayView:
    counts = {name: members.counted(places) for name, places in _GROUPS.items()}
    total = len(owner.spec.indices)
    return ArrayView(
        indices=indices_text(owner.spec.indices),
        limit=owner.spec.limit,
        total=total,
        pending=total - members.count,
        **counts,
    )


def array_detail(world: World, owner: Owner) -> JobDetail:
    """The array with its spec, and its indices by state."""
    members = world.workflows.members_of(owner.id)
    by_state = {name: _indices(world, members, places) for name, places in _GROUPS.items()}
    by_state["pending"] = owner.spec.indices[owner.submitted :]
    return JobDetail(
        job=array_view(world, owner),
        failure=None,
        spec=written_spec(owner.spec),
        attempt=None,
        restarts=(),
        indices={name: indices_text(indices) for name, indices in by_state.items() if indices},
    )


def _indices(world: World, members: Members, places: tuple[str, ...]) -> tuple[int, ...]:
    jobs = map(world.jobs.__getitem__, members.listed(places))
    return tuple(sorted(job.owner.index for job in jobs if job.owner is not None))


def members_of(world: World, owner: Owner) -> Iterator[Job]:
    """The jobs of an array, by index."""
    places = world.workflows.members_of(owner.id).by_place
    jobs = [world.jobs[job] for place in places.values() for job in place]
    return iter(sorted(jobs, key=lambda job: 0 if job.owner is None else job.owner.index))


def why_array(world: World, owner: Owner) -> Why:
    """Why an array waits, or ended as it did."""
    if owner.awaits and owner.phase is OwnerPhase.ACTIVE:
        return why_dependent(world, owner)
    view = array_view(world, owner)
    assert view.array is not None
    counts = {name: getattr(view.array, name) for name in ("pending", *_GROUPS)}
    return Why(
        namespace=owner.namespace,
        name=owner.name,
        phase=view.phase,
        summary=array_summary(owner, counts, view.message),
        reasons=[Reason(code=view.reason, message=view.message)] if view.reason else [],
    )
