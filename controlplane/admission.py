"""What is checked at the door, before anything is written.

Refusals name the field and say what would be accepted. What a manifest of some kind must look like
is its kind's business; here are the rules for every job, whatever it was submitted as.
"""

from functools import lru_cache
from operator import attrgetter

from controlplane.commands import SubmitJob
from controlplane.errors import Rejected
from controlplane.model import JobSpec, Role, is_label
from controlplane.scheduling.placement import why_never_fits
from controlplane.world import World

RANKS_MAX = 10_000
GPUS_PER_RANK_MAX = 1_024
NAME_LENGTH_MAX = 63
TEN_YEARS_S = 10 * 365 * 86_400
BILLION = 1_000_000_000

# Every number that a job may carry beside its roles: where it is, its least and its most.
RANGES = {
    "priority": (-BILLION, BILLION),
    "active_deadline_s": (0, TEN_YEARS_S),
    "ttl_s": (0, TEN_YEARS_S),
    "start_timeout_s": (0, TEN_YEARS_S),
    "restart.limit": (0, BILLION),
    "restart.backoff_s_first": (0, TEN_YEARS_S),
    "restart.backoff_s_max": (0, TEN_YEARS_S),
    "restart.healthy_after_s": (0, TEN_YEARS_S),
    "workload.duration_s": (0, TEN_YEARS_S),
    "workload.exit_code": (0, 255),
    "workload.failing_attempts": (0, BILLION),
}
_numbers_of = attrgetter(*RANGES)


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


Problem = tuple[str, str]


def problems(namespace: str, name: str, spec: JobSpec) -> list[Problem]:
    """Everything wrong with a job by itself, as (field, what is wrong)."""
    roles, size = spec.roles, 0
    found = list(_number_problems(_numbers_of(spec)))
    if not is_label(name):
        found.append(("metadata.name", _not_a_name(name)))
    if not _is_known_label(namespace):
        found.append(("metadata.namespace", _not_a_name(namespace)))
    for role in roles:
        size += role.replicas
        found += _role_problems(name, role)
    if not roles:
        found.append(("spec.roles", "a job needs at least one role"))
    if len(roles) > 1 and len({role.name.lower() for role in roles}) < len(roles):
        found.append(("spec.roles", "two roles have the same name"))
    if size > RANKS_MAX:
        told = f"{size} ranks are more than the {RANKS_MAX} that a gang may have"
        found.append(("spec.roles", told))
    if not spec.ranks_of(spec.done_when.role):
        told = f"{spec.done_when.role!r} is no role with replicas"
        found.append(("spec.done_when.role", told))
    if not 0 <= spec.workload.exit_rank < max(size, 1):
        told = f"{spec.workload.exit_rank} is no rank of this gang"
        found.append(("spec.workload.exit_rank", told))
    return found


# Most jobs carry the same few numbers.
@lru_cache(maxsize=1024)
def _number_problems(numbers: tuple[float | None, ...]) -> tuple[Problem, ...]:
    return tuple(
        (f"spec.{field}", f"{number} is not between {least} and {most}")
        for number, (field, (least, most)) in zip(numbers, RANGES.items(), strict=True)
        if number is not None and not least <= number <= most
    )


# Namespaces and the names of roles are few, and are asked about for every job.
_is_known_label = lru_cache(maxsize=1024)(is_label)


def _not_a_name(text: str) -> str:
    return (
        f"{text!r} is not a name that Kubernetes takes: lower-case letters, digits and '-', "
        "beginning with a letter and not ending with '-', at most 63 of them"
    )


def _role_problems(job: str, role: Role) -> list[Problem]:
    name, replicas = role.name, role.replicas
    found = []
    if not _is_known_label(name.lower()):
        told = "a role's name must be letters, digits and '-', beginning with a letter"
        found.append((f"spec.roles[{name}]", told))
    if replicas < 0:
        found.append((f"spec.roles[{name}].replicas", f"{replicas} is negative"))
    if not 0 <= role.gpus <= GPUS_PER_RANK_MAX:
        told = f"{role.gpus} is not between 0 and {GPUS_PER_RANK_MAX}"
        found.append((f"spec.roles[{name}].gpus", told))
    longest = f"{job}-{name}-{replicas - 1}"
    if len(longest) > NAME_LENGTH_MAX:
        told = f"its rank would be called {longest}: longer than {NAME_LENGTH_MAX} characters"
        found.append(("metadata.name", told))
    return found


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
    largest = max([role.gpus for role in spec.roles])
    if not world.surveyed or spec.size <= world.room_for(largest):
        return
    never = why_never_fits(spec, world.nodes_by_size)
    if never:
        raise Rejected("can_never_fit", never)
