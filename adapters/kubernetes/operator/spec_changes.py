"""Changes of a resource whose job exists, as commands, and those that cannot be applied. Pure.

Suspension, numbers of replicas and the limits of the run policy are applied to the job. Everything
else is fixed at submission; a change of it is reported in the status and as an event.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.kinds.kind import Submission
from controlplane.kinds.registry import form_of
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.phases import Phase
from controlplane.model.spec import JobSpec, Role

ACTOR = "kubernetes"
PATHS_MAX = 10


class SpecChanges(NamedTuple):
    """The commands that apply changes, and the changes that cannot be applied."""

    commands: tuple[c.Request, ...] = ()
    # The paths of changed fields that are fixed at submission, at most `PATHS_MAX`.
    in_vain: tuple[str, ...] = ()


def edits(job: Job, wanted: Submission, generation: int) -> SpecChanges:
    """Return the changes that make the job match its resource.

    The ids of the commands contain `generation`, so that sending them again is harmless.
    """
    return SpecChanges(tuple(_commands(job, wanted, generation)), tuple(_in_vain(job, wanted)))


def _commands(job: Job, wanted: Submission, generation: int) -> Iterator[c.Request]:
    def signed(verb: str) -> dict[str, Any]:
        return {
            "id": f"{job.id}/{generation}/{verb}",
            "actor": ACTOR,
            "namespace": job.namespace,
            "name": job.name,
            "job": job.id,
        }

    new, old = wanted.spec, job.spec
    if _limits(new) != _limits(old):
        amendment = c.AmendJob(**signed("amend"), ttl_s=new.ttl_s)
        # Of a finished job only the time to live can change.
        yield (
            amendment
            if job.finished
            else replace(
                amendment,
                active_deadline_s=new.active_deadline_s,
                restart_limit=new.restart.limit,
                clean=new.clean,
            )
        )
    if job.finished:
        return
    if wanted.suspended and job.phase is not Phase.SUSPENDED:
        yield c.SuspendJob(**signed("suspend"))
    # A suspended job is scaled before it is resumed, so that it starts with its new size.
    for role in old.roles:
        asked = new.role(role.name)
        if asked is not None and asked.replicas != role.replicas:
            yield c.ScaleJob(
                **signed(f"scale-{role.name}"), role=role.name, replicas=asked.replicas
            )
    if not wanted.suspended and job.phase is Phase.SUSPENDED:
        yield c.ResumeJob(**signed("resume"))


def _limits(spec: JobSpec) -> tuple[object, ...]:
    return spec.ttl_s, spec.active_deadline_s, spec.restart.limit, spec.clean


def _in_vain(job: Job, wanted: Submission) -> list[str]:
    """Return the paths in the job's manifest that would still differ after the commands."""
    old, new = job.spec, _with_mutable_parts_of(job.spec, wanted.spec)
    if old == new:
        return []
    write = form_of(old).write
    before = write(Submission(job.namespace, job.name, old)).get("spec")
    after = write(Submission(job.namespace, job.name, new)).get("spec")
    paths = list(differences(before, after, "spec"))
    named = [f"spec.{name}" for name in _differing(old, new)]
    return (paths or named)[:PATHS_MAX]


def _with_mutable_parts_of(old: JobSpec, new: JobSpec) -> JobSpec:
    """Return the new spec with the old values of fields that commands change or that do not count.

    Labels, annotations, version and hints do not count as changes.
    """
    roles = tuple(_same_size(role, old.role(role.name)) for role in new.roles)
    return replace(
        new,
        version=old.version,
        roles=roles,
        ttl_s=old.ttl_s,
        active_deadline_s=old.active_deadline_s,
        restart=replace(new.restart, limit=old.restart.limit),
        clean=old.clean,
        labels=old.labels,
        annotations=old.annotations,
        hints=old.hints,
    )


def _same_size(role: Role, known: Role | None) -> Role:
    return role if known is None else replace(role, replicas=known.replicas)


def _differing(old: JobSpec, new: JobSpec) -> Iterator[str]:
    for name in old.__struct_fields__:
        if getattr(old, name) != getattr(new, name):
            yield name


def differences(before: Any, after: Any, path: str) -> Iterator[str]:
    """Yield the paths at which two documents differ, in the notation of Kubernetes."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}")
    elif _is_list(before) and _is_list(after) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif before != after:
        yield path


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
