"""The list style of 2018 (v1alpha1): `replicaSpecs` is a list, and only the chief decides.

The three operators of that year differ in spelling, so each kind gives its spelling as a `Listed`
and its own structs. Ranks of the other roles are replaced whatever they exit with.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from controlplane.kinds import checking, kubeflow
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Gang, Modern, Service, Submission, Told
from controlplane.kinds.kubeflow import Framework
from controlplane.kinds.manifest import Metadata, RunPolicy, written_metadata
from controlplane.kinds.pods import PodTemplate, ReplicaSpec, container_of, ports_of, role_of
from controlplane.model import CleanPods, DoneWhen, RestartRule, Role

VERSION = "kubeflow.org/v1alpha1"
PATH = "spec.replicaSpecs"
# Longer names of jobs are cut, so that what is added fits into a label of 63 characters.
NAME_CHARS_MAX = 40


class Listed(NamedTuple):
    """How one kind spells the list style."""

    framework: Framework
    # Fields of an entry: which type of replica it is, and the port of its ranks.
    type: str
    port: str
    # Fields of the spec: the default image, and who ends the job.
    image: str
    default_image: str
    chief: str
    place: str
    default_chief: str
    # The types of which there is exactly one replica, and the label with the job's name.
    single: str
    label: str
    # What is done with the pods in the end; "" where it cannot be said.
    clean: str = ""
    # Further fields of the spec that are only kept.
    own: tuple[str, ...] = ()
    # The types, as far as they were known then.
    roles: tuple[str, ...] = ("Master", "PS", "Worker")

    @property
    def types(self) -> dict[str, str]:
        return {role.upper(): role for role in self.roles}


def is_listed(gang: Gang) -> bool:
    return gang.spec.version == VERSION


# ------------------------------------------------------------------ reading


class Spec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the specs of all three have."""

    schedulerName: str = ""
    # Four characters that tell jobs of the same name apart; made up when none are given.
    RuntimeId: str = ""


class Entry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicas: int | None = None
    template: PodTemplate | None = None


def read(
    style: Listed, metadata: Metadata, spec: Any, findings: Findings, *, port: int | None = None
) -> Submission:
    """The job that a manifest in the list style means; `port` is for entries that name none."""
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


def _chief(style: Listed, spec: Any, findings: Findings) -> tuple[str, int]:
    where = f"spec.terminationPolicy.{style.chief}"
    policy = spec.terminationPolicy
    if policy is None:
        return style.default_chief, 0
    chief = getattr(policy, style.chief)
    if chief is None:
        findings.required(where, "whoever decides the job must be named")
        return style.default_chief, 0
    name = chief.replicaName or style.default_chief
    checking.check_choice(f"{where}.replicaName", name, style.types, findings)
    number = getattr(chief, style.place)
    if number != 0:
        told = f"{number} is not 0: the first replica of its type decides"
        findings.unsupported(f"{where}.{style.place}", told)
    return name, number


def _clean(style: Listed, spec: Any, findings: Findings) -> CleanPods:
    """Everything was deleted in the end, unless it could be said otherwise."""
    asked = getattr(spec, style.clean) if style.clean else ""
    if asked and checking.check_choice(f"spec.{style.clean}", asked, CleanPods, findings):
        return CleanPods(asked)
    return CleanPods.ALL


def _runtime_id(metadata: Metadata) -> str:
    """Four characters from the job's name, so that whoever asks again gets the same."""
    digest = hashlib.sha256(f"{metadata.namespace}/{metadata.name}".encode()).hexdigest()
    return digest[:4]


def _scheduled_by(scheduler: str, role: Role) -> Role:
    """The role with its job's scheduler in its template, unless that names one itself."""
    pod = role.template.get("spec", {})
    if pod.get("schedulerName"):
        return role
    return replace(role, template={**role.template, "spec": {**pod, "schedulerName": scheduler}})


def _roles(
    style: Listed, entries: Sequence[Any], chief: str, findings: Findings, port: int | None
) -> tuple[Role, ...]:
    if not entries:
        findings.required(PATH, "at least one entry is needed")
        return ()
    found: dict[str, Role] = {}
    for number, entry in enumerate(entries):
        path = f"{PATH}[{number}]"
        named = getattr(entry, style.type) or style.default_chief
        if named in found:
            findings.duplicate(f"{path}.{style.type}", f"{named} is given twice")
        elif checking.check_choice(f"{path}.{style.type}", named, style.types, findings):
            found[named] = _role(style, path, named, entry, chief, findings, port)
    if chief in style.types and chief not in found:
        findings.required(PATH, f"{chief} decides the job and is not there")
    return tuple(found[named] for named in style.types if named in found)


def _role(
    style: Listed,
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
        serves=style.types[type] in framework.serving,
    )
    if port is not None and kubeflow.port(framework, role) != port:
        findings.forbidden(f"{path}.{style.port}", "the container's own port says something else")
    if type == style.single and role.replicas != 1:
        findings.forbidden(f"{path}.replicas", f"there is one {type}, not {role.replicas}")
    if type == chief:
        return replace(role, oom_is_permanent=True)
    return replace(role, expendable=True, restart=RestartRule.ALWAYS)


# ------------------------------------------------------------------ and back


def write(style: Listed, job: Submission) -> dict[str, Any]:
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


def _written(style: Listed, role: Role) -> dict[str, Any]:
    return {
        "replicas": role.replicas,
        style.type: role.name.upper(),
        style.port: kubeflow.port(style.framework, role),
        "template": role.template,
    }


def modern(style: Listed) -> Callable[[Submission], Modern]:
    """How a job in the list style of this kind is said in the map style that came after it."""

    def said(job: Submission) -> Modern:
        spec, warnings = job.spec, []
        for name in style.own:
            if name in spec.options:
                told = (
                    f"{spec.options[name]!r} is the program's own business: pass it to the program"
                )
                warnings.append(f"spec.{name} is gone; {told}")
        if any(role.oom_is_permanent for role in spec.roles):
            warnings.append("a rank that runs out of memory starts again; before, the job failed")
        plain = {"oom_is_permanent": False, "expendable": False}
        roles = tuple(replace(role, **plain) for role in spec.roles if role.replicas)
        if any(role.expendable for role in spec.roles):
            warnings.append(
                "every restart counts towards backoffLimit; before, only the chief could fail the job"
            )
        # What it was called by, and by which image the parameter servers were started.
        own = (style.image, "terminationPolicy", "RuntimeId", "schedulerName", *style.own)
        options = {name: value for name, value in spec.options.items() if name not in own}
        changed = replace(spec, roles=roles, options=options)
        return Modern(replace(job, spec=changed), tuple(warnings))

    return said


# ------------------------------------------------------------------ what ranks are told


def name_of(gang: Gang, role: str, number: int) -> str:
    """The name of a rank's pod and of the service that leads to it."""
    runtime_id = gang.spec.options.get("RuntimeId", "")
    return f"{gang.name[:NAME_CHARS_MAX]}-{role.lower()}-{runtime_id}-{number}"


def labels(style: Listed, gang: Gang, role: str, number: int) -> dict[str, str]:
    return {
        "kubeflow.org": "",
        "job_type": role.upper(),
        "runtime_id": gang.spec.options.get("RuntimeId", ""),
        style.label: gang.name,
        "task_index": str(number),
    }


def telling(
    style: Listed,
    gang: Gang,
    env: Callable[[int], Mapping[str, str]],
    number: Callable[[int], int] | None = None,
    *,
    all_containers: bool = False,
) -> Callable[[int], Told]:
    """Tells ranks their environment; `number` is what a rank is called by, its index otherwise."""

    def told(rank: int) -> Told:
        role, index = gang.spec.role_of(rank)
        called = index if number is None else number(rank)
        return Told(
            name=name_of(gang, role.name, called),
            labels=labels(style, gang, role.name, called),
            env=dict(env(rank)),
            all_containers=all_containers,
        )

    return told


def services(
    style: Listed, gang: Gang, number: Callable[[int], int] | None = None
) -> Sequence[Service]:
    found = []
    for rank in range(gang.spec.size):
        role, index = gang.spec.role_of(rank)
        called = index if number is None else number(rank)
        found.append(
            Service(
                name=name_of(gang, role.name, called),
                selector=labels(style, gang, role.name, called),
                ports=ports_of(container_of(role)),
            )
        )
    return found
