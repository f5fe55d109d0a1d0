"""What is checked at the door, before anything is written.

Refusals name the field and say what would be accepted. What a manifest of some kind must look like
is its kind's business; here are the rules for every job, whatever it was submitted as.
"""

from controlplane.commands import SubmitJob
from controlplane.errors import Rejected
from controlplane.kinds.checking import problems
from controlplane.model import JobSpec
from controlplane.scheduling.placement import why_never_fits
from controlplane.scheduling.shortage import why_never_enough
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
    require_fit(world, command.spec)


def require_queue(world: World, queue: str) -> None:
    if queue not in world.queues:
        known = ", ".join(sorted(world.queues))
        raise Rejected(
            "unknown_queue",
            f"there is no queue {queue!r}; the queues are: {known}",
            field="spec.queue",
        )


def require_fit(world: World, spec: JobSpec) -> None:
    """A gang that no future of this cluster could hold is refused, rather than left to wait."""
    ceiling = world.queues[spec.queue].gpus_max
    if ceiling is not None and spec.gpus > ceiling:
        raise Rejected(
            "can_never_fit",
            f"the gang needs {spec.gpus} GPUs; queue {spec.queue} may hold at most {ceiling}",
        )
    # Until every node has been reported nothing can be ruled out. Where even as many ranks of the
    # largest kind find room as there are ranks at all, there is nothing to look for.
    if not world.surveyed:
        return
    size = largest = 0
    for role in spec.roles:
        size += role.replicas
        largest = max(largest, role.gpus)
    never = why_never_enough(world, spec)
    if not never and size > world.room_for(largest):
        never = why_never_fits(spec, world.nodes_by_size)
    if never:
        raise Rejected("can_never_fit", never)
