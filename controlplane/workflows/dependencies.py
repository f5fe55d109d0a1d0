"""Dependencies at submission: names become ids, and what can never be met is refused.

A job may depend only on jobs and arrays that exist, so dependencies cannot form a cycle, except for
a job that names itself, which is refused.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from controlplane.lifecycle.dependencies import Verdict, one_verdict
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.model.dependencies import AFTER_MAX, After, Condition, Dependency
from controlplane.model.errors import Rejected
from controlplane.state.world import World

_INDEXED = re.compile(r"(.+)\[(\d{1,9})\]").fullmatch
_NUMBERED = re.compile(r"(.+)-(\d{1,6})").fullmatch


class Addressed(NamedTuple):
    """The target of a name: a job, an array, or one index of an array, which may have no job yet."""

    job: Job | None = None
    owner: Owner | None = None
    member: int | None = None


def owner_named(world: World, namespace: str, name: str) -> Owner | None:
    """The array with this name, or None."""
    owner = world.workflows.ids.get((namespace, name))
    return None if owner is None else world.owners[owner]


def reserving(world: World, namespace: str, name: str) -> tuple[Owner, int] | None:
    """The array whose member has, or will have, this name, and the member's index; or None."""
    match = _NUMBERED(name)
    owner = None if match is None else owner_named(world, namespace, match[1])
    if match is None or owner is None or match[2] != str(int(match[2])):
        return None
    index = int(match[2])
    return (owner, index) if index in owner.spec else None


def plain_name(name: str) -> str:
    """The name of the job that NAME[INDEX] addresses; any other name is itself."""
    match = _INDEXED(name)
    return name if match is None else f"{match[1]}-{int(match[2])}"


def addressed(world: World, namespace: str, name: str) -> Addressed | None:
    """The target of a name or an id in a namespace; None if there is none."""
    name = plain_name(name)
    job = world.job(namespace, name) or world.jobs.get(name)
    if job is not None:
        return Addressed(job=job)
    owner = owner_named(world, namespace, name) or world.owners.get(name)
    if owner is not None:
        return Addressed(owner=owner)
    if (member := reserving(world, namespace, name)) is not None:
        return Addressed(owner=member[0], member=member[1])
    return None


def resolve(
    world: World,
    namespace: str,
    name: str,
    after: tuple[After, ...],
    indices: tuple[int, ...] = (),
) -> tuple[Dependency, ...]:
    """The dependencies of a new job, or of a new array with these indices. Raises Rejected."""
    if len(after) > AFTER_MAX:
        raise _refusal(
            "invalid_job", f"{len(after)} dependencies are more than {AFTER_MAX}", "spec.after"
        )
    return tuple(
        _resolve(world, namespace, name, written, f"spec.after[{place}]", indices)
        for place, written in enumerate(after)
    )


def without(after: tuple[After, ...], namespace: str, names: Collection[str]) -> tuple[After, ...]:
    """The dependencies on targets that are not in `names` (NAMESPACE/NAME).

    The targets in `names` are submitted before the job itself.
    """

    def target(written: After) -> str:
        name = written.job if "/" in written.job else f"{namespace}/{written.job}"
        return name.partition("[")[0]

    return tuple(written for written in after if target(written) not in names)


def _resolve(
    world: World, own_namespace: str, own: str, after: After, field: str, indices: tuple[int, ...]
) -> Dependency:
    first, slash, rest = after.job.partition("/")
    namespace, name = (first, rest) if slash else (own_namespace, after.job)
    if (namespace, plain_name(name)) == (own_namespace, own):
        raise _refusal("dependency_cycle", f"{own} cannot wait for itself", field)
    target = addressed(world, namespace, name)
    if target is None:
        raise _refusal(
            "unknown_dependency",
            f"there is no job or array {namespace}/{name}; submit it first, or put it first in the "
            "same file",
            field,
        )
    dependency = _dependency(target, after.condition)
    if after.condition is Condition.CORRESPONDING:
        _check_corresponding(target, indices, field)
    elif one_verdict(dependency, world.jobs, world.owners) is Verdict.NEVER:
        raise _refusal(
            "dependency_failed",
            f"{dependency.name} has already ended, and not as the condition "
            f"{after.condition.value} says",
            field,
        )
    return dependency


def _dependency(target: Addressed, condition: Condition) -> Dependency:
    if target.job is not None:
        job, owned = target.job, target.job.owner
        name = f"{job.namespace}/{job.name}"
        if owned is None:
            return Dependency(target=job.id, name=name, condition=condition)
        # By index, so that a retry of the member counts.
        return Dependency(target=owned.id, name=name, condition=condition, index=owned.index)
    assert target.owner is not None
    name, index = target.owner.full_name, target.member
    if index is not None:
        name = f"{name}-{index}"
    return Dependency(target=target.owner.id, name=name, condition=condition, index=index)


def _check_corresponding(target: Addressed, indices: tuple[int, ...], field: str) -> None:
    if not indices or target.owner is None or target.member is not None:
        raise _refusal(
            "invalid_job",
            "the condition corresponding (aftercorr) is between two arrays, index by index",
            field,
        )
    missing = [index for index in indices if index not in target.owner.spec]
    if missing:
        raise _refusal(
            "unknown_dependency",
            f"array {target.owner.full_name} has no index {missing[0]}, which this array has",
            field,
        )


def _refusal(code: str, message: str, field: str) -> Rejected:
    return Rejected(code, f"{field}: {message}", field=field)
