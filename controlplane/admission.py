"""What is checked at the door, before anything is written.

Refusals name the field and say what would be accepted. What a manifest of some kind must look like
is its kind's business; here are the rules for every job, whatever it was submitted as.
"""

from controlplane.attempt import asked_gpus
from controlplane.commands import SubmitJob
from controlplane.errors import Rejected
from controlplane.events import SETS_ASIDE
from controlplane.job_life import scaled
from controlplane.kinds.checking import problems
from controlplane.model import JobSpec
from controlplane.scheduling.gangs import elastic_role, memories_of
from controlplane.scheduling.placement import why_never_fits
from controlplane.scheduling.schedulability import flavors_of
from controlplane.scheduling.shortage import why_never_enough
from controlplane.scheduling.topology import NODE
from controlplane.world import World


def admit(world: World, command: SubmitJob) -> None:
    """Raises Rejected unless the job may come in."""
    for field, problem in problems(command.namespace, command.name, command.spec):
        raise Rejected("invalid_job", f"{field}: {problem}", field=field)
    if command.job in world.jobs:
        raise Rejected("id_taken", f"the id {command.job} already belongs to a job")
    known = world.job(command.namespace, command.name)
    if known is not None:
        going = ", which is being deleted" if known.deleting else ""
        raise Rejected(
            "name_taken",
            f"{command.namespace}/{command.name} is already the name of a job{going}",
            field="metadata.name",
        )
    require_queue(world, command.spec.queue)
    if world.rules >= SETS_ASIDE:
        require_known(world, command.spec)
    require_fit(world, command.spec)


def require_queue(world: World, queue: str) -> None:
    if queue not in world.queues:
        known = ", ".join(sorted(world.queues))
        raise Rejected(
            "unknown_queue",
            f"there is no queue {queue!r}; the queues are: {known}",
            field="spec.queue",
        )


def require_known(world: World, spec: JobSpec) -> None:
    """What a job names must be something that there is, where that is known.

    A node that it names may come one day; a level that the policy does not have, a flavour that
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
    if not world.surveyed or not world.nodes_by_size:
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
        # Another flavour may come with new nodes.
        return
    if unknown := [name for name in spec.scheduling.flavors if name not in flavors_of(world)]:
        known = ", ".join(flavors_of(world)) or "none, because no node says what its GPUs are"
        raise Rejected(
            "unknown_flavor",
            f"there are no GPUs of flavour {unknown[0]!r}; the flavours are: {known}",
            field="spec.scheduling.flavors",
        )


def require_fit(world: World, spec: JobSpec) -> None:
    """A gang that no future of this cluster could hold is refused, rather than left to wait."""
    # An elastic gang starts with as few ranks as it can do with.
    if elastic := elastic_role(spec):
        spec = scaled(spec, *elastic)
    ceiling = world.queues[spec.queue].gpus_max
    memories = memories_of(world)
    needed = asked_gpus(spec)
    if ceiling is not None and needed > ceiling:
        raise Rejected(
            "can_never_fit",
            f"the gang needs {needed:g} GPUs; queue {spec.queue} may hold at most {ceiling}",
        )
    # Nodes may be added that hold it: it is set aside until they are.
    if world.policy.autoscaled:
        return
    # Until every node has been reported, or while there is none, nothing can be ruled out. Where even as many ranks of the
    # largest kind find room as there are ranks at all, there is nothing to look for.
    if not world.surveyed or not world.nodes_by_size:
        return
    size = largest = 0
    for role in spec.roles:
        size += role.replicas
        largest = max(largest, role.devices_of_rank)
    never = why_never_enough(world, spec)
    if not never and size > world.room_for(largest):
        never = why_never_fits(spec, world.nodes_by_size, memories[-1] if memories else 0)
    if never:
        raise Rejected("can_never_fit", never)
