"""The list style of 2018 (v1alpha1): `replicaSpecs` is a list, and only the chief decides the job.

The three operators of that year have different field names, so each kind gives its names as a
`ListStyle` and has its own structs. Ranks of the other roles restart after any exit code.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from controlplane.kinds.kind import GangContext, Modern, RankEnvironment, Service, Submission
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.kubeflow.kubeflow import Framework
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.manifest import Metadata, RunPolicy, written_metadata
from controlplane.kinds.manifest.pods import (
    PodTemplate,
    ReplicaSpec,
    container_of,
    ports_of,
    role_of,
)
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import CleanPods, DoneWhen, RestartRule, Role

VERSION = "kubeflow.org/v1alpha1"
PATH = "spec.replicaSpecs"
# Longer job names are cut, so that a rank's name fits into a DNS label of 63 characters.
NAME_CHARS_MAX = 40


class ListStyle(NamedTuple):
    """The field names and defaults of one kind in the list style."""

    framework: Framework
    # Fields of an entry: its replica type, and the port of its ranks.
    type: str
    port: str
    # Fields of the spec: the default image, and the rank that decides the job.
    image: str
    default_image: str
    chief: str
    place: str
    default_chief: str
    # The type that has exactly one replica, and the label with the job's name.
    single: str
    label: str
    # The field with the clean-up policy; "" if there is none.
    clean: str = ""
    # Further fields of the spec that are only kept.
    own: tuple[str, ...] = ()
    # The replica types of that version.
    roles: tuple[str, ...] = ("Master", "PS", "Worker")

    @property
    def types(self) -> dict[str, str]:
        return {role.upper(): role for role in self.roles}


def is_listed(gang: GangContext) -> bool:
    return gang.spec.version == VERSION


# ------------------------------------------------------------------ reading


class Spec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields that the specs of all three kinds have."""

    schedulerName: str = ""
    # Four characters that distinguish jobs of the same name; derived if they are not given.
    RuntimeId: str = ""


class Chief(Struct, frozen=True, forbid_unknown_fields=True):
    replicaName: str = ""
    replicaIndex: int = 0


class ChiefPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """The replica whose end decides the job."""

    chief: Chief | None = None


class Entry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicas: int | None = None
    template: PodTemplate | None = None


def read(
    style: ListStyle, metadata: Metadata, spec: Any, findings: Findings, *, port: int | None = None
) -> Submission:
    """Return the submission of a manifest in the list style.

    `port` is the default for entries that have none.
    """
    chief, index = _chief(style, spec, findings)
    roles = _roles(style, spec.replicaSpecs, chief, findings, port)
    if spec.schedulerName:
        roles = tuple(_scheduled_by(spec.schedulerName, role) for role in roles)
    options = {
        style.image: getattr(spec, style.image) or style.default_image,
        "terminationPolicy": {style.chief: {"replicaName": chief, style.place: index}},
        "RuntimeId": spec.RuntimeId or _runtime_id(metadata),
        **{name: kept for name in ("schedulerName", *style.own) if (kept := getattr(spec, name))},
    }
    job = kubeflow.submission(
        style.framework,
        VERSION,
        metadata,
        RunPolicy(),
        roles,
        DoneWhen(style.types.get(chief, ""), first=True),
        findings,
        options,
        clean=_clean(style, spec, findings),
    )
    if spec.RuntimeId and not checking.is_name_part(spec.RuntimeId):
        findings.invalid("spec.RuntimeId", "only lower-case letters and digits, 10 at most")
    return job


def _chief(style: ListStyle, spec: Any, findings: Findings) -> tuple[str, int]:
    where = f"spec.terminationPolicy.{style.chief}"
    policy = spec.terminationPolicy
    if policy is None:
        return style.default_chief, 0
    chief = getattr(policy, style.chief)
    if chief is None:
        findings.required(where, "name the replica that decides how the job ends")
        return style.default_chief, 0
    name = chief.replicaName or style.default_chief
    checking.check_choice(f"{where}.replicaName", name, style.types, findings)
    number = getattr(chief, style.place)
    if number != 0:
        message = f"{number} is not 0: the first replica of its type decides"
        findings.unsupported(f"{where}.{style.place}", message)
    return name, number


def _clean(style: ListStyle, spec: Any, findings: Findings) -> CleanPods:
    """Return the clean-up policy; the default is to delete all pods."""
    asked = getattr(spec, style.clean) if style.clean else ""
    if asked and checking.check_choice(f"spec.{style.clean}", asked, CleanPods, findings):
        return CleanPods(asked)
    return CleanPods.ALL


def _runtime_id(metadata: Metadata) -> str:
    """Return four characters from a hash of the job's name, the same for every submission."""
    digest = hashlib.sha256(f"{metadata.namespace}/{metadata.name}".encode()).hexdigest()
    return digest[:4]


def _scheduled_by(scheduler: str, role: Role) -> Role:
    """Return the role with the job's scheduler in its template, unless the template names one."""
    pod = role.template.get("spec", {})
    if pod.get("schedulerName"):
        return role
    return replace(role, template={**role.template, "spec": {**pod, "schedulerName": scheduler}})


def _roles(
    style: ListStyle, entries: Sequence[Any], chief: str, findings: Findings, port: int | None
) -> tuple[Role, ...]:
    if not entries:
        findings.required(PATH, "at least one entry is needed")
        return ()
    roles: dict[str, Role] = {}
    for number, entry in enumerate(entries):
        path = f"{PATH}[{number}]"
        named = getattr(entry, style.type) or style.default_chief
        if named in roles:
            findings.duplicate(f"{path}.{style.type}", f"{named} is given twice")
        elif checking.check_choice(f"{path}.{style.type}", named, style.types, findings):
            roles[named] = _role(style, path, named, entry, chief, findings, port)
    if chief in style.types and chief not in roles:
        findings.required(PATH, f"{chief} decides the job and is not there")
    return tuple(roles[named] for named in style.types if named in roles)


def _role(
    style: ListStyle,
    path: str,
    type: str,
    entry: Any,
    chief: str,
    findings: Findings,
    shared_port: int | None,
) -> Role:
    framework = style.framework
    if entry.template is None:
        findings.required(f"{path}.template", "a template is needed")
        return Role(name=style.types[type])
    port = getattr(entry, style.port)
    checking.check_range(f"{path}.{style.port}", port, 1, checking.PORT_MAX, findings)
    role = role_of(
        path,
        style.types[type],
        ReplicaSpec(template=entry.template, replicas=entry.replicas),
        findings,
        container=framework.container,
        port=(framework.port_name, port or shared_port or framework.port),
        restart=RestartRule.EXIT_CODE,
        is_server=style.types[type] in framework.serving,
    )
    if port is not None and kubeflow.port(framework, role) != port:
        findings.forbidden(f"{path}.{style.port}", "the container's own port is another one")
    if type == style.single and role.replicas != 1:
        findings.forbidden(f"{path}.replicas", f"there is one {type}, not {role.replicas}")
    if type == chief:
        return replace(role, oom_is_permanent=True)
    return replace(role, optional=True, restart=RestartRule.ALWAYS)


# ------------------------------------------------------------------ writing


def write(style: ListStyle, job: Submission) -> dict[str, Any]:
    spec = job.spec
    own = {name: value for name, value in spec.options.items() if name != "runPolicy"}
    clean = {style.clean: spec.clean.value} if style.clean else {}
    return {
        "apiVersion": VERSION,
        "kind": style.framework.kind,
        "metadata": written_metadata(job),
        "spec": {
            "replicaSpecs": [_written(style, role) for role in spec.roles],
            **own,
            **clean,
        },
    }


def _written(style: ListStyle, role: Role) -> dict[str, Any]:
    return {
        "replicas": role.replicas,
        style.type: role.name.upper(),
        style.port: kubeflow.port(style.framework, role),
        "template": role.template,
    }


def modern(style: ListStyle) -> Callable[[Submission], Modern]:
    """Return a function that converts a job of this kind from the list style to the map style."""

    def convert(job: Submission) -> Modern:
        spec, warnings = job.spec, []
        for name in style.own:
            if name in spec.options:
                message = (
                    f"{spec.options[name]!r} is the program's own business: pass it to the program"
                )
                warnings.append(f"spec.{name} is gone; {message}")
        if any(role.oom_is_permanent for role in spec.roles):
            warnings.append("a rank that runs out of memory starts again; before, the job failed")
        plain = {"oom_is_permanent": False, "optional": False}
        roles = tuple(replace(role, **plain) for role in spec.roles if role.replicas)
        if any(role.optional for role in spec.roles):
            warnings.append(
                "every restart counts towards backoffLimit; before, only the chief could fail the job"
            )
        # Fields that the map style does not have: image of the parameter servers, chief, names.
        own = (style.image, "terminationPolicy", "RuntimeId", "schedulerName", *style.own)
        options = {name: value for name, value in spec.options.items() if name not in own}
        changed = replace(spec, roles=roles, options=options)
        return Modern(replace(job, spec=changed), tuple(warnings))

    return convert


# ------------------------------------------------------------------ rank environments


def name_of(gang: GangContext, role: str, number: int) -> str:
    """Return the name of a rank's pod, which is also the name of its service."""
    runtime_id = gang.spec.options.get("RuntimeId", "")
    return f"{gang.name[:NAME_CHARS_MAX]}-{role.lower()}-{runtime_id}-{number}"


def host_of(gang: GangContext, role: str, index: int) -> str:
    """Return the host of a rank whose name has its index within the role."""
    return gang.host(gang.spec.ranks_of(role).start + index, name_of(gang, role, index))


def labels(style: ListStyle, gang: GangContext, role: str, number: int) -> dict[str, str]:
    return {
        "kubeflow.org": "",
        "job_type": role.upper(),
        "runtime_id": gang.spec.options.get("RuntimeId", ""),
        style.label: gang.name,
        "task_index": str(number),
    }


def environments(
    style: ListStyle,
    gang: GangContext,
    env: Callable[[int], Mapping[str, str]],
    number: Callable[[int], int] | None = None,
    *,
    all_containers: bool = False,
) -> Callable[[int], RankEnvironment]:
    """Return a function from a rank to its environment.

    `env` returns a rank's variables, and `number` the number in its name; the default is its index
    within the role.
    """

    def environment(rank: int) -> RankEnvironment:
        role, index = gang.spec.role_of(rank)
        called = index if number is None else number(rank)
        return RankEnvironment(
            name=name_of(gang, role.name, called),
            labels=labels(style, gang, role.name, called),
            env=dict(env(rank)),
            all_containers=all_containers,
        )

    return environment


def services(
    style: ListStyle, gang: GangContext, number: Callable[[int], int] | None = None
) -> Sequence[Service]:
    services = []
    for rank in range(gang.spec.size):
        role, index = gang.spec.role_of(rank)
        called = index if number is None else number(rank)
        services.append(
            Service(
                name=name_of(gang, role.name, called),
                selector=labels(style, gang, role.name, called),
                ports=ports_of(container_of(role)),
            )
        )
    return services
