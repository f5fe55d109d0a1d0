"""The native Job: roles, replicas, command, GPUs, queue, hints.

Its manifest mirrors `JobSpec`, so a job of any kind can be written in it and read back without loss.
A job of another kind has a field `framework` with the kind, its version and its options.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, to_builtins

from controlplane.kinds import hints
from controlplane.kinds.kind import (
    About,
    Form,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    Submission,
)
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.manifest import Metadata, written_metadata
from controlplane.kinds.manifest.pods import PodTemplate, check_template, plain_of
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.dependencies import After, Condition, condition_of, parse_after
from controlplane.model.spec import (
    PLAIN_SCHEDULING,
    CleanPods,
    DoneWhen,
    JobSpec,
    RestartPolicy,
    RestartRule,
    Role,
    Scheduling,
    StartPolicy,
)
from controlplane.model.supplies import NO_SUPPLIES, Supplies

NAME = "Job"
VERSION = "muster.dev/v1"
# The default rendezvous port; it is PyTorch's default too.
PORT = 29500
LABEL = "muster.dev/"
# Fields of a role that a pod template has too; they are left out if the template has the same value.
PLAIN = ("image", "command", "args", "env", "gpus")


class NativeRole(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One role: `replicas` ranks, each of which runs `command` on `gpus` GPUs.

    A pod template may replace image, command, args, env and gpus; `container` then names the
    container whose exit code is the rank's.
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
    is_server: bool = msgspec.field(default=False, name="serves")
    min_replicas: int | None = None
    max_replicas: int | None = None
    starts_after: str = ""
    optional: bool = msgspec.field(default=False, name="expendable")
    oom_is_permanent: bool = False
    # A share of one device instead of whole devices, in thousandths or as memory.
    gpu_share: int = 0
    gpu_memory_mib: int = 0
    # The node that the role is pinned to, and its devices.
    node: str = ""
    devices: tuple[int, ...] = ()


class NativeAfter(Struct, frozen=True, forbid_unknown_fields=True):
    """A job or an array that must end first: succeeded, finished, failed or corresponding.

    Slurm's afterok, afterany, afternotok and aftercorr are synonyms.
    """

    job: str
    condition: str = Condition.SUCCEEDED.value


class Origin(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The kind that makes the rank environments, and the options that only it understands."""

    kind: str
    version: str = ""
    options: dict[str, Any] = {}


class NativeSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    roles: tuple[NativeRole, ...]
    # The ranks whose success makes the job succeed; None: those of the first role.
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
    scheduling: Scheduling = PLAIN_SCHEDULING
    start: StartPolicy | None = None
    # Code, data, configuration, shared memory, more resources, TensorBoard.
    supplies: Supplies = NO_SUPPLIES
    # Jobs and arrays that must end before this job queues; a bare name requires its success.
    after: tuple[str | NativeAfter, ...] = ()
    # Makes this an array: its indices, and the limit of unfinished ones, as in 0-99%10.
    array: str = ""
    # Hints for cluster adapters that are not installed here. A hint whose adapter is installed is a
    # field of its own (`with_hints`).
    hints: dict[str, Any] = {}


class NativeJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["muster.dev/v1"]
    kind: Literal["Job"]
    metadata: Metadata
    spec: NativeSpec
    status: Any = UNSET


# Fields with the same name in NativeSpec and JobSpec.
SAME = tuple(
    name for name in NativeSpec.__struct_fields__ if name in set(JobSpec.__struct_fields__) - {"roles", "done_when", "after", "hints"}
)  # fmt: skip


_same_of = attrgetter(*SAME)


# ------------------------------------------------------------------ reading


def read(job: NativeJob, findings: Findings) -> Submission:
    spec, metadata = job.spec, job.metadata
    origin = spec.framework or Origin(kind=NAME, version=VERSION)
    roles = tuple(_role(role, findings) for role in spec.roles[: checking.ROLES_MAX + 1])
    native = JobSpec(
        kind=origin.kind,
        version=origin.version,
        options=origin.options,
        roles=roles,
        done_when=spec.done_when or DoneWhen(roles[0].name if roles else ""),
        labels=metadata.labels,
        annotations=metadata.annotations,
        after=_after_of(spec.after, findings),
        hints=_hints_of(spec, findings),
        **dict(zip(SAME, _same_of(spec), strict=True)),
    )
    if spec.managed_by:
        managers = (*checking.MANAGERS, checking.MPI_OPERATOR)
        checking.check_choice("spec.managed_by", spec.managed_by, managers, findings)
    for field, message in checking.problems(metadata.namespace, metadata.name, native):
        findings.invalid(field, message)
    return Submission(metadata.namespace, metadata.name, native, spec.suspend)


def _hints_of(spec: NativeSpec, findings: Findings) -> dict[str, Any]:
    own = {schema.name: getattr(spec, schema.name) for schema in hints.schemas()}
    unknown = hints.unknown_hints(spec.hints, findings) if spec.hints else {}
    return {**hints.recorded(own), **unknown}


def _after_of(written: tuple[str | NativeAfter, ...], findings: Findings) -> tuple[After, ...]:
    dependencies: list[After] = []
    for place, each in enumerate(written):
        try:
            if isinstance(each, str):
                dependencies.append(parse_after(each))
            else:
                dependencies.append(After(each.job, condition_of(each.condition)))
        except ValueError as error:
            findings.invalid(f"spec.after[{place}]", str(error))
    return tuple(dependencies)


def _role(role: NativeRole, findings: Findings) -> Role:
    given = {name: value for name in PLAIN if (value := getattr(role, name)) is not UNSET}
    template: dict[str, Any] = {}
    if role.template is not UNSET:
        path = f"spec.roles[{role.name}]"
        check_template(f"{path}.template", role.template, role.container, findings)
        plain = plain_of(f"{path}.template", role.template, role.container, findings)._asdict()
        for name in [name for name in given if given[name] != plain[name]]:
            findings.forbidden(f"{path}.{name}", "the template has another value")
        given, template = plain, to_builtins(role.template)
    return Role(
        name=role.name,
        replicas=role.replicas,
        restart=role.restart,
        template=template,
        container=role.container,
        is_server=role.is_server,
        min_replicas=role.min_replicas,
        max_replicas=role.max_replicas,
        starts_after=role.starts_after,
        optional=role.optional,
        oom_is_permanent=role.oom_is_permanent,
        gpu_share=role.gpu_share,
        gpu_memory_mib=role.gpu_memory_mib,
        node=role.node,
        devices=role.devices,
        **given,
    )


# ------------------------------------------------------------------ writing


def write(job: Submission) -> dict[str, Any]:
    spec = job.spec
    native = NativeSpec(
        roles=tuple(_native_role(role) for role in spec.roles),
        done_when=spec.done_when,
        framework=_origin(spec),
        suspend=job.suspended,
        after=tuple(_native_after(after) for after in spec.after),
        **{name: getattr(spec, name) for name in SAME},
    )
    known = {schema.name for schema in hints.schemas()}
    unknown = {name: value for name, value in spec.hints.items() if name not in known}
    return {
        "apiVersion": VERSION,
        "kind": NAME,
        "metadata": written_metadata(job),
        "spec": {
            **to_builtins(native),
            # These are written even if they have their defaults, because people look for them.
            "queue": spec.queue,
            "priority": spec.priority,
            "restart": {"limit": spec.restart.limit, **to_builtins(spec.restart)},
            "roles": [_written_role(role) for role in native.roles],
            **{name: value for name, value in spec.hints.items() if name in known},
            **({"hints": unknown} if unknown else {}),
        },
    }


def _native_after(after: After) -> str | NativeAfter:
    if after.condition is Condition.SUCCEEDED:
        return after.job
    return NativeAfter(after.job, after.condition.value)


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
    fields = {**first, **to_builtins(role)}
    return {name: value for name, value in fields.items() if name not in PLAIN or value}


# ------------------------------------------------------------------ rank environments


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    """Return a function from a rank to its environment.

    It has the variables of torchrun and similar launchers, and a host name below the job's service.
    """
    spec = gang.spec
    shared = {
        "MASTER_ADDR": gang.host(0, f"{_name(gang, 0)}.{gang.name}") if spec.size else "",
        "MASTER_PORT": str(gang.port(0, PORT)),
        "WORLD_SIZE": str(spec.size),
    }

    def environment(rank: int) -> RankEnvironment:
        role, index = spec.role_of(rank)
        name = _name(gang, rank)
        return RankEnvironment(
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

    return environment


def _name(gang: GangContext, rank: int) -> str:
    return f"{gang.name}-{gang.spec.rank_name(rank)}"


def services(gang: GangContext) -> Sequence[Service]:
    """Return one headless service for all ranks, whose host names are below it."""
    return [Service(name=gang.name, selector={f"{LABEL}job": gang.name}, before_ready=True)]


def with_hints(schemas: Sequence[hints.HintSchema]) -> Kind:
    """Return the native kind with a field for each of these hints in its manifest.

    Raises HintTaken if a hint has the name of a field that every job has.
    """
    fields = [(schema.name, schema.type, schema.type()) for schema in schemas]
    taken = [name for name, _, _ in fields if name in NativeSpec.__struct_fields__]
    if taken:
        raise hints.HintTaken(f"{taken[0]} is a field of every job; choose another name")
    spec = msgspec.defstruct("NativeSpec", fields, bases=(NativeSpec,), kw_only=True)
    manifest = msgspec.defstruct("NativeJob", [("spec", spec)], bases=(NativeJob,), kw_only=True)
    return KIND._replace(forms=(Form(VERSION, manifest, read, write),))


KIND = Kind(
    name=NAME,
    forms=(Form(VERSION, NativeJob, read, write),),
    environments=environments,
    services=services,
    about=About(
        roles=("any",),
        container="the first, unless `container` names another",
        port=str(PORT),
        restart=RestartRule.ON_FAILURE.value,
        decides="the first role, unless `done_when` names another",
    ),
)
