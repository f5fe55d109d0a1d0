"""The rules that hold for every job, whatever it was submitted as, and for changes to one.

Kinds call these while they read, with the paths of their own fields; admission asks once more for
whatever reaches the control plane by another way.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.kinds import supplying
from controlplane.kinds.findings import Findings
from controlplane.kinds.structure import shown
from controlplane.kinds.wishes import wish_problems
from controlplane.labels import is_common_label, is_label
from controlplane.model import OUR_NAMES, JobSpec, Role
from controlplane.node_affinity import problems as affinity_problems
from controlplane.requests import SUPPLIES_ANNOTATION
from controlplane.supplies import NO_SUPPLIES

RANKS_MAX = 10_000
ROLES_MAX = 100
GPUS_PER_RANK_MAX = 1_024
NAME_LENGTH_MAX = 63
SECONDS_MAX = 10 * 365 * 86_400
PORT_MAX = 65_535
BILLION = 1_000_000_000
PRIORITIES = (-BILLION, BILLION)

MUSTER = "muster.dev/muster"
TRAINING_OPERATOR = "kubeflow.org/training-operator"
MPI_OPERATOR = "kubeflow.org/mpi-operator"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
# Who a manifest may say runs it; jobs of the last one are left alone.
MANAGERS = (MUSTER, TRAINING_OPERATOR, MULTIKUEUE)


def is_external(managed_by: str | None) -> bool:
    """Whether another controller runs the job, so that Muster leaves it alone.

    None means that the manifest does not say. An empty name is no name of ours.
    """
    return managed_by is not None and managed_by not in OUR_NAMES - {""}


# ------------------------------------------------------------------ single values


def check_range(field: str, value: Any, least: Any, most: Any, findings: Findings) -> bool:
    """Numbers of any size: one from a manifest may be an integer that is no float."""
    if value is None or least <= value <= most:
        return True
    findings.invalid(field, f"{shown(value)} is not between {least} and {most}")
    return False


def check_choice(field: str, value: str, allowed: Iterable[str], findings: Findings) -> bool:
    known = tuple(allowed)
    if value in known:
        return True
    findings.unsupported(field, f"{shown(value)!r} is not one of {', '.join(known)}")
    return False


# ------------------------------------------------------------------ names


def check_names(namespace: str, name: str, roles: Sequence[Role], findings: Findings) -> None:
    """The job's name, and the names that its ranks get from it."""
    if not is_label(name):
        findings.invalid("metadata.name", _not_a_name(name))
    elif too_long := _longest_rank(name, roles):
        findings.invalid("metadata.name", too_long)
    if not is_common_label(namespace):
        findings.invalid("metadata.namespace", _not_a_name(namespace))


def is_name_part(text: str) -> bool:
    """Whether this may stand between the hyphens of a name."""
    return len(text) <= 10 and text.isascii() and text.isalnum() and text == text.lower()


def _not_a_name(text: str) -> str:
    return (
        f"{shown(text)!r} is not a name that Kubernetes takes: lower-case letters, digits and '-', "
        "beginning with a letter and not ending with '-', at most 63 of them"
    )


# What a rank's name has at most beside its job's and its role's.
_NUMBERED = len(f"--{RANKS_MAX}")


def _longest_rank(job: str, roles: Sequence[Role]) -> str:
    """What is wrong with the longest name of a rank, or nothing."""
    room = NAME_LENGTH_MAX - len(job) - _NUMBERED
    for role in roles:
        if len(role.name) > room:
            break
    else:
        return ""
    names = [f"{job}-{role.name.lower()}-{max(role.replicas, 1) - 1}" for role in roles]
    longest = max(names, key=len, default="")
    if len(longest) <= NAME_LENGTH_MAX:
        return ""
    return f"its rank would be called {longest}: longer than {NAME_LENGTH_MAX} characters"


# ------------------------------------------------------------------ whole jobs

Problem = tuple[str, str]


def problems(namespace: str, name: str, spec: JobSpec) -> list[Problem]:
    """Everything wrong with a job by itself, as (field of the native form, what is wrong)."""
    roles, size = spec.roles, 0
    found: list[Problem] = []
    _check_numbers(spec, found)
    if not is_label(name):
        found.append(("metadata.name", _not_a_name(name)))
    elif too_long := _longest_rank(name, roles):
        found.append(("metadata.name", too_long))
    if not is_common_label(namespace):
        found.append(("metadata.namespace", _not_a_name(namespace)))
    for role in roles:
        size += role.replicas
        _check_role(role, found)
    if not roles:
        found.append(("spec.roles", "a job needs at least one role"))
    if len(roles) > 1 and len({role.name.lower() for role in roles}) < len(roles):
        found.append(("spec.roles", "two roles have the same name"))
    if len(roles) > ROLES_MAX:
        found.append(("spec.roles", f"{len(roles)} are more than {ROLES_MAX} roles"))
    if size > RANKS_MAX:
        told = f"{size} ranks are more than the {RANKS_MAX} that a gang may have"
        found.append(("spec.roles", told))
    if not any(role.name == spec.done_when.role and role.replicas > 0 for role in roles):
        told = f"{spec.done_when.role!r} is no role with replicas"
        found.append(("spec.done_when.role", told))
    if not 0 <= spec.workload.exit_rank < max(size, 1):
        told = f"{spec.workload.exit_rank} is no rank of this gang"
        found.append(("spec.workload.exit_rank", told))
    found += wish_problems(spec)
    if spec.supplies is not NO_SUPPLIES or SUPPLIES_ANNOTATION in spec.annotations:
        found += supplying.problems(spec)
    return found


def _check_numbers(spec: JobSpec, found: list[Problem]) -> None:
    """The numbers that a job may carry beside its roles."""
    restart, workload = spec.restart, spec.workload
    _check_count("priority", spec.priority, -BILLION, BILLION, found)
    if spec.active_deadline_s is not None:
        _check_seconds("active_deadline_s", spec.active_deadline_s, found)
    if spec.ttl_s is not None:
        _check_seconds("ttl_s", spec.ttl_s, found)
    _check_seconds("start_timeout_s", spec.start_timeout_s, found)
    _check_seconds("image_timeout_s", spec.image_timeout_s, found)
    if spec.min_available is not None:
        _check_count("min_available", spec.min_available, 0, RANKS_MAX, found)
    if restart.limit is not None:
        _check_count("restart.limit", restart.limit, 0, BILLION, found)
    _check_seconds("restart.backoff_s_first", restart.backoff_s_first, found)
    _check_seconds("restart.backoff_s_max", restart.backoff_s_max, found)
    _check_seconds("restart.healthy_after_s", restart.healthy_after_s, found)
    _check_count("workload.exit_code", workload.exit_code, 0, 255, found)
    if workload.failing_attempts is not None:
        _check_count("workload.failing_attempts", workload.failing_attempts, 0, BILLION, found)
    _check_seconds("workload.duration_s", workload.duration_s, found)


def _check_count(field: str, value: int, least: int, most: int, found: list[Problem]) -> None:
    if not least <= value <= most:
        found.append((f"spec.{field}", f"{shown(value)} is not between {least} and {most}"))


def _check_seconds(field: str, value: float, found: list[Problem]) -> None:
    if not 0 <= value <= SECONDS_MAX:
        found.append((f"spec.{field}", f"{shown(value)} is not between 0 and {SECONDS_MAX}"))


def _check_role(role: Role, found: list[Problem]) -> None:
    name, least, most = role.name, role.min_replicas, role.max_replicas
    if not is_common_label(name.lower()):
        told = "a role's name must be letters, digits and '-', beginning with a letter"
        found.append((f"spec.roles[{name}]", told))
    if role.replicas < 0:
        found.append((f"spec.roles[{name}].replicas", f"{shown(role.replicas)} is negative"))
    if role.template:
        where = f"spec.roles[{name}].template"
        found += [(f"{where}.{path}", wrong) for path, wrong in affinity_problems(role.template)]
    if not 0 <= role.gpus <= GPUS_PER_RANK_MAX:
        told = f"{shown(role.gpus)} is not between 0 and {GPUS_PER_RANK_MAX}"
        found.append((f"spec.roles[{name}].gpus", told))
    if (least is not None and least < 0) or (most is not None and most < (least or 0)):
        told = "it is negative, or more than max_replicas"
        found.append((f"spec.roles[{name}].min_replicas", told))


# ------------------------------------------------------------------ changes


def check_change(old: JobSpec, new: JobSpec, findings: Findings) -> None:
    """What may not change in the life of a job: who runs it, and where it waits."""
    if old.managed_by != new.managed_by:
        findings.invalid("spec.runPolicy.managedBy", "who runs a job cannot be changed")
    if old.queue != new.queue:
        findings.invalid(
            "spec.runPolicy.schedulingPolicy.queue", "a job cannot change to another queue"
        )
