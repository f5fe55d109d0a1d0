"""The plainest form of a job: roles, replicas, command, GPUs, workload, queue.

It is the image of a JobSpec, so every manifest can be shown in it. What came from another kind says
so under `framework`, with what only that kind understands, and can be read back without loss.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, to_builtins

from controlplane.kinds import checking
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import About, Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import Metadata, written_metadata
from controlplane.kinds.pods import PodTemplate, check_template, plain_of
from controlplane.model import (
    PLAIN_SCHEDULING,
    CleanPods,
    DoneWhen,
    JobSpec,
    RestartPolicy,
    RestartRule,
    Role,
    Scheduling,
    StartPolicy,
    Workload,
)
from controlplane.supplies import NO_SUPPLIES, Supplies

NAME = "Job"
VERSION = "muster.dev/v1"
# Where ranks meet, unless the program says otherwise; it is PyTorch's own choice.
PORT = 29500
LABEL = "muster.dev/"
# What a template says already, and is not said beside it.
PLAIN = ("image", "command", "args", "env", "gpus")


class NativeRole(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One role: `replicas` ranks of it run `command` on `gpus` GPUs each.

    In place of image, command, args, env and gpus a whole pod template may be given; `container`
    then names the container whose exit code speaks for the rank.
    """

    name: str
    replicas: int = 1
    gpus: int | UnsetType = UNSET
    restart: RestartRule = RestartRule.ON_FAILURE
    image: str | UnsetType = UNSET
    command: tuple[str, ...] | UnsetType = UNSET
    args: tuple[str, ...] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    template: PodTemplate | UnsetType = UNSET
    container: str = ""
    serves: bool = False
    min_replicas: int | None = None
    max_replicas: int | None = None
    starts_after: str = ""
    expendable: bool = False
    oom_is_permanent: bool = False
    # A part of one device instead of whole ones, in thousandths or as memory.
    gpu_share: int = 0
    gpu_memory_mib: int = 0
    # The node, and its devices, on which this role must run.
    node: str = ""
    devices: tuple[int, ...] = ()


class Origin(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The kind that tells the ranks what they need to know, and what only it understands."""

    kind: str
    version: str = ""
    options: dict[str, Any] = {}


class NativeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    roles: tuple[NativeRole, ...]
    # Whose success is the job's; the first role's, unless said otherwise.
    done_when: DoneWhen | None = None
    framework: Origin | None = None
    queue: str = "default"
    priority: int = 0
    suspend: bool = False
    restart: RestartPolicy = RestartPolicy()
    active_deadline_s: float | None = None
    ttl_s: float | None = None
    start_timeout_s: float = 600.0
    image_timeout_s: float = 300.0
    min_available: int | None = None
    clean: CleanPods = CleanPods.NONE
    managed_by: str = ""
    workload: Workload = Workload()
    scheduling: Scheduling = PLAIN_SCHEDULING
    start: StartPolicy | None = None
    # Code, data, configuration, shared memory, more resources, TensorBoard.
    supplies: Supplies = NO_SUPPLIES


class NativeJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["muster.dev/v1"]
    kind: Literal["Job"]
    metadata: Metadata
    spec: NativeSpec
    status: Any = UNSET


# What is called the same here and in a JobSpec.
SAME = tuple(
    name for name in NativeSpec.__struct_fields__ if name in set(JobSpec.__struct_fields__) - {"roles", "done_when"}
)  # fmt: skip


_same_of = attrgetter(*SAME)


# ------------------------------------------------------------------ reading


def read(job: NativeJob, findings: Findings) -> Submission:
    spec, metadata = job.spec, job.metadata
    origin = spec.framework or Origin(kind=NAME, version=VERSION)
    roles = tuple([_role(role, findings) for role in spec.roles[: checking.ROLES_MAX + 1]])
    native = JobSpec(
        kind=origin.kind,
        version=origin.version,
        options=origin.options,
        roles=roles,
        done_when=spec.done_when or DoneWhen(roles[0].name if roles else ""),
        labels=metadata.labels,
        annotations=metadata.annotations,
        **dict(zip(SAME, _same_of(spec), strict=True)),
    )
    if spec.managed_by:
        managers = (*checking.MANAGERS, checking.MPI_OPERATOR)
        checking.check_choice("spec.managed_by", spec.managed_by, managers, findings)
    for field, told in checking.problems(metadata.namespace, metadata.name, native):
        findings.invalid(field, told)
    return Submission(metadata.namespace, metadata.name, native, spec.suspend)


def _role(role: NativeRole, findings: Findings) -> Role:
    given = {name: value for name in PLAIN if (value := getattr(role, name)) is not UNSET}
    template: dict[str, Any] = {}
    if role.template is not UNSET:
        path = f"spec.roles[{role.name}]"
        check_template(f"{path}.template", role.template, role.container, findings)
        plain = plain_of(f"{path}.template", role.template, role.container, findings)._asdict()
        for name in [name for name in given if given[name] != plain[name]]:
            findings.forbidden(f"{path}.{name}", "the template says something else")
        given, template = plain, to_builtins(role.template)
    return Role(
        name=role.name,
        replicas=role.replicas,
        restart=role.restart,
        template=template,
        container=role.container,
        serves=role.serves,
        min_replicas=role.min_replicas,
        max_replicas=role.max_replicas,
        starts_after=role.starts_after,
        expendable=role.expendable,
        oom_is_permanent=role.oom_is_permanent,
        gpu_share=role.gpu_share,
        gpu_memory_mib=role.gpu_memory_mib,
        node=role.node,
        devices=role.devices,
        **given,
    )


# ------------------------------------------------------------------ and back


def write(job: Submission) -> dict[str, Any]:
    spec = job.spec
    native = NativeSpec(
        roles=tuple(_native_role(role) for role in spec.roles),
        done_when=spec.done_when,
        framework=_origin(spec),
        suspend=job.suspended,
        **{name: getattr(spec, name) for name in SAME},
    )
    return {
        "apiVersion": VERSION,
        "kind": NAME,
        "metadata": written_metadata(job),
        "spec": {
            **to_builtins(native),
            # What people look for is there even where it is the default.
            "queue": spec.queue,
            "priority": spec.priority,
            "restart": {"limit": spec.restart.limit, **to_builtins(spec.restart)},
            "roles": [_written_role(role) for role in native.roles],
        },
    }


def _origin(spec: JobSpec) -> Origin | None:
    if spec.kind == NAME:
        return None
    return Origin(kind=spec.kind, version=spec.version, options=spec.options)


def _native_role(role: Role) -> NativeRole:
    fields = {name: getattr(role, name) for name in Role.__struct_fields__}
    template = fields.pop("template")
    if not template:
        return NativeRole(**fields)
    whole = msgspec.convert(template, PodTemplate)
    plain = plain_of("", whole, role.container, Findings())._asdict()
    unsaid = {name: UNSET for name in PLAIN if fields[name] == plain[name]}
    return NativeRole(**{**fields, **unsaid}, template=whole)


def _written_role(role: NativeRole) -> dict[str, Any]:
    first = {"name": role.name, "replicas": role.replicas, "restart": role.restart.value}
    found = {**first, **to_builtins(role)}
    return {name: value for name, value in found.items() if name not in PLAIN or value}


# ------------------------------------------------------------------ what ranks are told


def tell(gang: Gang) -> Callable[[int], Told]:
    """Enough for torchrun and its like, and a host name below the job's own service."""
    spec = gang.spec
    shared = {
        "MASTER_ADDR": f"{_name(gang, 0)}.{gang.name}" if spec.size else "",
        "MASTER_PORT": str(PORT),
        "WORLD_SIZE": str(spec.size),
    }

    def told(rank: int) -> Told:
        role, index = spec.role_of(rank)
        name = _name(gang, rank)
        return Told(
            name=name,
            labels={
                f"{LABEL}job": gang.name,
                f"{LABEL}role": role.name.lower(),
                f"{LABEL}index": str(index),
            },
            env_if_unset={
                **shared,
                "RANK": str(rank),
                "MUSTER_ROLE": role.name,
                "MUSTER_INDEX": str(index),
            },
            hostname=name,
            subdomain=gang.name,
        )

    return told


def _name(gang: Gang, rank: int) -> str:
    return f"{gang.name}-{gang.spec.rank_name(rank)}"


def services(gang: Gang) -> Sequence[Service]:
    """One for all ranks: their host names are below it."""
    return [Service(name=gang.name, selector={f"{LABEL}job": gang.name}, before_ready=True)]


KIND = Kind(
    name=NAME,
    forms=(Form(VERSION, NativeJob, read, write),),
    tell=tell,
    services=services,
    about=About(
        roles=("any",),
        container="the first, unless said",
        port=str(PORT),
        restart=RestartRule.ON_FAILURE.value,
        decides="the first role, unless done_when says otherwise",
    ),
)
