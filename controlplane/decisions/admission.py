"""What is checked before a job is accepted and anything is written.

Refusals name the field and what would be accepted. Each kind checks the form of its manifests; the
rules here hold for every job, whatever its kind.
"""

from controlplane.kinds.manifest.checking import problems
from controlplane.lifecycle.attempt import asked_gpus
from controlplane.lifecycle.job import scaled
from controlplane.messages import never_fits_text
from controlplane.model.commands import SubmitJob
from controlplane.model.errors import Rejected
from controlplane.model.events import JobSubmitted
from controlplane.model.spec import JobSpec
from controlplane.scheduling.explain.schedulability import flavors_of
from controlplane.scheduling.explain.shortage import why_never_enough
from controlplane.scheduling.gang import elastic_role
from controlplane.scheduling.placement.packing import why_never_fits
from controlplane.scheduling.placement.topology import NODE
from controlplane.state.world import World
from controlplane.workflows.dependencies import owner_named, reserving


def admit(world: World, command: SubmitJob) -> None:
    """Raise Rejected unless the job may be submitted."""
    for field, problem in problems(command.namespace, command.name, command.spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    _require_free_id(world, command.job)
    require_free_name(world, command.namespace, command.name)
    _require_possible(world, command.spec)


def admit_array(world: World, command: SubmitJob, indices: tuple[int, ...]) -> None:
    """Raise Rejected unless the array, and each of its members, may be submitted."""
    for index in (indices[0], indices[-1]):
        name = f"{command.name}-{index}"
        for field, problem in problems(command.namespace, name, command.spec):
            raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    _require_free_id(world, command.job)
    require_free_name(world, command.namespace, command.name)
    for index in indices:
        require_free_name(world, command.namespace, f"{command.name}-{index}")
    _require_possible(world, command.spec)


def admit_member(world: World, submitted: JobSubmitted) -> None:
    """Raise Rejected unless a job that its owner submits in a step is acceptable.

    Whether it fits is not checked: the cluster may have changed since its owner was submitted, and
    a job that no longer fits becomes unschedulable like any other.
    """
    assert submitted.owner is not None
    for field, problem in problems(submitted.namespace, submitted.name, submitted.spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    known = world.job(submitted.namespace, submitted.name)
    if known is not None and (known.owner is None or known.owner.id != submitted.owner.id):
        raise _name_taken(submitted.namespace, submitted.name, "a job")
    require_queue(world, submitted.spec.queue)


def require_free_name(world: World, namespace: str, name: str) -> None:
    """Raise Rejected if a job or an array has this name, or an array will give it to a member."""
    known = world.job(namespace, name)
    if known is not None:
        going = ", which is being deleted" if known.deleting else ""
        raise _name_taken(namespace, name, f"a job{going}")
    array = owner_named(world, namespace, name)
    if array is not None:
        going = ", which is being deleted" if array.deleting else ""
        raise _name_taken(namespace, name, f"an array{going}")
    if (member := reserving(world, namespace, name)) is not None:
        raise _name_taken(namespace, name, f"index {member[1]} of array {member[0].full_name}")


def _require_free_id(world: World, job: str) -> None:
    if job in world.jobs or job in world.owners:
        raise Rejected("id_taken", f"the id {job} already belongs to a job")


def _name_taken(namespace: str, name: str, whose: str) -> Rejected:
    message = f"{namespace}/{name} is already the name of {whose}"
    return Rejected("name_taken", message, field="metadata.name")


def _require_possible(world: World, spec: JobSpec) -> None:
    require_queue(world, spec.queue)
    require_known(world, spec)
    require_fit(world, spec)


def require_queue(world: World, queue: str) -> None:
    """Raise Rejected unless the queue exists."""
    if queue not in world.queues:
        known = ", ".join(sorted(world.queues))
        raise Rejected(
            "unknown_queue",
            f"there is no queue {queue!r}; the queues are: {known}",
            field="spec.queue",
        )


def require_known(world: World, spec: JobSpec) -> None:
    """Raise Rejected if a job names something that does not exist, where that is known.

    A node that it names may be added later; a level that the policy does not have, a flavour that
    neither node nor quota has, and a device that a present node does not have are mistakes.
    """
    ask, levels = spec.scheduling.topology, (*world.policy.levels, NODE)
    for field in ("required", "preferred", "slice_level"):
        level = getattr(ask, field)
        if level and level not in levels:
            raise Rejected(
                "unknown_topology_level",
                f"there is no topology level {level!r}; the levels are: {', '.join(levels)}",
                field=f"spec.scheduling.topology.{field}",
            )
    if not world.surveyed or not world.devices.nodes_by_size:
        return
    _require_known_flavors(world, spec)
    for role in spec.roles:
        node = world.nodes.get(role.node)
        if node is None or node.removed:
            continue
        for device in role.devices:
            if device >= node.info.gpus:
                have = f"0 to {node.info.gpus - 1}" if node.info.gpus else "none"
                raise Rejected(
                    "no_such_device",
                    f"node {node.name} has no device {device}; its devices are: {have}",
                    field=f"spec.roles[{role.name}].devices",
                )


def _require_known_flavors(world: World, spec: JobSpec) -> None:
    if world.policy.autoscaled:
        # New nodes may have another flavour.
        return
    if unknown := [
        name
        for name in spec.scheduling.flavors
        if name not in flavors_of(world.devices.nodes_by_flavor, world.queues)
    ]:
        known = (
            ", ".join(flavors_of(world.devices.nodes_by_flavor, world.queues))
            or "none, because no node reports what its GPUs are"
        )
        raise Rejected(
            "unknown_flavor",
            f"there are no GPUs of flavour {unknown[0]!r}; the flavours are: {known}",
            field="spec.scheduling.flavors",
        )


def require_fit(world: World, spec: JobSpec) -> None:
    """Raise Rejected for a gang that this cluster could never hold, instead of letting it wait."""
    # An elastic gang may start with its minimum of ranks.
    if elastic := elastic_role(spec):
        spec = scaled(spec, *elastic)
    ceiling = world.queues[spec.queue].gpus_max
    memories = world.devices.memories_mib
    needed = asked_gpus(spec)
    if ceiling is not None and needed > ceiling:
        raise Rejected(
            "can_never_fit",
            f"the gang needs {needed:g} GPUs; queue {spec.queue} may hold at most {ceiling}",
        )
    # Nodes that hold it may be added: until then the job is unschedulable.
    if world.policy.autoscaled:
        return
    # Until every node has been reported, or while there is none, nothing can be ruled out. If there
    # is room even for as many ranks of the largest role as there are ranks in total, the gang fits.
    if not world.surveyed or not world.devices.nodes_by_size:
        return
    size = largest = 0
    for role in spec.roles:
        size += role.replicas
        largest = max(largest, role.devices_of_rank)
    never = why_never_enough(spec, world.devices.nodes_by_shape)
    if never is None and size > world.devices.capacity_for(largest):
        never = why_never_fits(spec, world.devices.nodes_by_size, memories[-1] if memories else 0)
    if never is not None:
        raise Rejected("can_never_fit", never_fits_text(never))
