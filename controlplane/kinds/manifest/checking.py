"""Validation rules for jobs of every kind, and for changes to a job.

A kind calls them while it reads a manifest, with the paths of its own fields. Admission applies them
again, for jobs that reach the control plane in another way.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.kinds import hints
from controlplane.kinds.manifest import supplies_rules
from controlplane.kinds.manifest.scheduling_rules import scheduling_problems
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.dns_names import is_common_label, is_label
from controlplane.model.node_affinity import problems as affinity_problems
from controlplane.model.resources import SUPPLIES_ANNOTATION
from controlplane.model.spec import OUR_NAMES, JobSpec, Role
from controlplane.model.supplies import NO_SUPPLIES

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
# The controllers that a manifest may name in managedBy; Muster leaves jobs of the last one alone.
MANAGERS = (MUSTER, TRAINING_OPERATOR, MULTIKUEUE)


def is_external(managed_by: str | None) -> bool:
    """Return whether another controller runs the job, so that Muster leaves it alone.

    None means that the manifest has no such field. An empty name does not name Muster.
    """
    return managed_by is not None and managed_by not in OUR_NAMES - {""}


# ------------------------------------------------------------------ single values


def check_range(field: str, value: Any, least: Any, most: Any, findings: Findings) -> bool:
    """Return whether `value` is None or within the range; otherwise add a problem.

    It compares integers of any size, since an integer of a manifest may exceed the range of a float.
    """
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


def read_number(
    field: str,
    text: str,
    type: type[int] | type[float],
    limits: tuple[int, int],
    findings: Findings,
) -> float | None:
    """Return the number in the text of an annotation; otherwise add a problem and return None."""
    try:
        number = type(text)
    except ValueError:
        what = "a whole number" if type is int else "a number"
        findings.invalid(field, f"{shown(text)!r} is not {what}")
        return None
    return number if check_range(field, number, *limits, findings) else None


# ------------------------------------------------------------------ names


def check_names(namespace: str, name: str, roles: Sequence[Role], findings: Findings) -> None:
    """Check the job's name, its namespace, and the names of its ranks."""
    if not is_label(name):
        findings.invalid("metadata.name", _not_a_name(name))
    elif too_long := _longest_rank(name, roles):
        findings.invalid("metadata.name", too_long)
    if not is_common_label(namespace):
        findings.invalid("metadata.namespace", _not_a_name(namespace))


def is_name_part(text: str) -> bool:
    """Return whether `text` may be one part of a name, between hyphens."""
    return len(text) <= 10 and text.isascii() and text.isalnum() and text == text.lower()


def _not_a_name(text: str) -> str:
    return (
        f"{shown(text)!r} is not a name that Kubernetes takes: lower-case letters, digits and '-', "
        "beginning with a letter and not ending with '-', at most 63 of them"
    )


# The longest part of a rank's name besides the names of its job and its role.
_NUMBERED = len(f"--{RANKS_MAX}")


def _longest_rank(job: str, roles: Sequence[Role]) -> str:
    """Return a message on the longest name of a rank if it is too long, otherwise ""."""
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
    """Return every problem of a job by itself, as (field of the native form, message)."""
    roles, size = spec.roles, 0
    problems: list[Problem] = []
    _check_numbers(spec, problems)
    if not is_label(name):
        problems.append(("metadata.name", _not_a_name(name)))
    elif too_long := _longest_rank(name, roles):
        problems.append(("metadata.name", too_long))
    if not is_common_label(namespace):
        problems.append(("metadata.namespace", _not_a_name(namespace)))
    for role in roles:
        size += role.replicas
        _check_role(role, problems)
    if not roles:
        problems.append(("spec.roles", "a job needs at least one role"))
    if len(roles) > 1 and len({role.name.lower() for role in roles}) < len(roles):
        problems.append(("spec.roles", "two roles have the same name"))
    if len(roles) > ROLES_MAX:
        problems.append(("spec.roles", f"{len(roles)} are more than {ROLES_MAX} roles"))
    if size > RANKS_MAX:
        message = f"{size} ranks are more than the {RANKS_MAX} that a gang may have"
        problems.append(("spec.roles", message))
    if not any(role.name == spec.done_when.role and role.replicas > 0 for role in roles):
        message = f"{spec.done_when.role!r} is no role with replicas"
        problems.append(("spec.done_when.role", message))
    if spec.hints:
        problems += hints.problems(spec)
    problems += scheduling_problems(spec)
    if spec.supplies is not NO_SUPPLIES or SUPPLIES_ANNOTATION in spec.annotations:
        problems += supplies_rules.problems(spec)
    return problems


def _check_numbers(spec: JobSpec, problems: list[Problem]) -> None:
    """Check the numbers of a job besides those of its roles."""
    restart = spec.restart
    _check_count("priority", spec.priority, -BILLION, BILLION, problems)
    if spec.active_deadline_s is not None:
        _check_seconds("active_deadline_s", spec.active_deadline_s, problems)
    if spec.ttl_s is not None:
        _check_seconds("ttl_s", spec.ttl_s, problems)
    _check_seconds("start_timeout_s", spec.start_timeout_s, problems)
    _check_seconds("image_timeout_s", spec.image_timeout_s, problems)
    if spec.min_available is not None:
        _check_count("min_available", spec.min_available, 0, RANKS_MAX, problems)
    if restart.limit is not None:
        _check_count("restart.limit", restart.limit, 0, BILLION, problems)
    _check_seconds("restart.backoff_s_first", restart.backoff_s_first, problems)
    _check_seconds("restart.backoff_s_max", restart.backoff_s_max, problems)
    _check_seconds("restart.healthy_after_s", restart.healthy_after_s, problems)


def _check_count(field: str, value: int, least: int, most: int, problems: list[Problem]) -> None:
    if not least <= value <= most:
        problems.append((f"spec.{field}", f"{shown(value)} is not between {least} and {most}"))


def _check_seconds(field: str, value: float, problems: list[Problem]) -> None:
    if not 0 <= value <= SECONDS_MAX:
        problems.append((f"spec.{field}", f"{shown(value)} is not between 0 and {SECONDS_MAX}"))


def _check_role(role: Role, problems: list[Problem]) -> None:
    name, least, most = role.name, role.min_replicas, role.max_replicas
    if not is_common_label(name.lower()):
        message = "a role's name must be letters, digits and '-', beginning with a letter"
        problems.append((f"spec.roles[{name}]", message))
    if role.replicas < 0:
        problems.append((f"spec.roles[{name}].replicas", f"{shown(role.replicas)} is negative"))
    if role.template:
        where = f"spec.roles[{name}].template"
        problems += [(f"{where}.{path}", wrong) for path, wrong in affinity_problems(role.template)]
    if not 0 <= role.gpus <= GPUS_PER_RANK_MAX:
        message = f"{shown(role.gpus)} is not between 0 and {GPUS_PER_RANK_MAX}"
        problems.append((f"spec.roles[{name}].gpus", message))
    if (least is not None and least < 0) or (most is not None and most < (least or 0)):
        message = "it is negative, or more than max_replicas"
        problems.append((f"spec.roles[{name}].min_replicas", message))
