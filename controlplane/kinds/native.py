"""The plainest form of a job: roles, replicas, command, GPUs, workload, queue."""

from typing import Literal

from msgspec import Struct

from controlplane.kinds.manifest import Metadata, Submission, parse, refuse
from controlplane.model import (
    DoneWhen,
    JobSpec,
    RestartPolicy,
    RestartRule,
    Role,
    Workload,
)


class NativeRole(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One role: `replicas` ranks of it run `command` on `gpus` GPUs each."""

    name: str
    replicas: int = 1
    gpus: int = 0
    restart: RestartRule = RestartRule.ON_FAILURE
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    serves: bool = False


class NativeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    roles: tuple[NativeRole, ...]
    # Whose success is the job's; the first role's, unless said otherwise.
    done_when: DoneWhen | None = None
    queue: str = "default"
    priority: int = 0
    suspend: bool = False
    restart: RestartPolicy = RestartPolicy()
    active_deadline_s: float | None = None
    ttl_s: float | None = None
    start_timeout_s: float = 600.0
    workload: Workload = Workload()


class NativeJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["muster.dev/v1"]
    kind: Literal["Job"]
    metadata: Metadata
    spec: NativeSpec


def read(document: object) -> Submission:
    job = parse(document, NativeJob)
    spec = job.spec
    if not spec.roles:
        raise refuse("spec.roles", "a job needs at least one role")
    native = JobSpec(
        kind="Job",
        roles=tuple(
            Role(
                name=role.name,
                replicas=role.replicas,
                gpus=role.gpus,
                restart=role.restart,
                image=role.image,
                command=role.command,
                args=role.args,
                env=role.env,
                serves=role.serves,
            )
            for role in spec.roles
        ),
        done_when=spec.done_when or DoneWhen(spec.roles[0].name),
        queue=spec.queue,
        priority=spec.priority,
        restart=spec.restart,
        active_deadline_s=spec.active_deadline_s,
        ttl_s=spec.ttl_s,
        start_timeout_s=spec.start_timeout_s,
        workload=spec.workload,
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
    )
    return Submission(job.metadata.namespace, job.metadata.name, native, spec.suspend)
