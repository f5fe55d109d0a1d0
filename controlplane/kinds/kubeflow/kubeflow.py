"""Parts that the Kubeflow kinds share: replica specs by role, run policy, names and labels."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.kinds import hints
from controlplane.kinds.kind import About, GangContext, Service, Submission
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.annotations import with_parts
from controlplane.kinds.manifest.manifest import (
    POLICY,
    FlatPolicy,
    Metadata,
    RunPolicy,
    policy_of,
    written_metadata,
    written_policy,
)
from controlplane.kinds.manifest.pods import ReplicaSpec, container_of, ports_of, role_of
from controlplane.kinds.manifest.scheduling_rules import scheduling_problems
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import CleanPods, DoneWhen, JobSpec, RestartRule, Role

# Labels that the operators put on pods and services; tools of users select by them.
OPERATOR = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"


# The fields of a run policy that older versions have in `spec` itself; the last one is only in
# XGBoostJob.
FLAT = FlatPolicy.__struct_fields__
# Newer fields that are not written to an older version if they have these values.
NEWER = {"suspend": False, "schedulingPolicy": {"queue": "default"}}


class Framework(NamedTuple):
    """The constants of one kind. Ranks are numbered in the order of `roles`."""

    kind: str
    # The field of `spec` with the replica specs.
    field: str
    roles: tuple[str, ...]
    # The container of the framework, and its rendezvous port.
    container: str
    port_name: str
    port: int
    restart: RestartRule
    # Roles that serve the other roles until the job ends.
    serving: tuple[str, ...] = ()
    operator: str = ""
    # Default replicas by role; a role that is not listed has 1.
    replicas: Mapping[str, int] = {}

    @property
    def path(self) -> str:
        return f"spec.{self.field}"

    def about(self, decides: str) -> About:
        """Return these constants for the table of kinds in the documentation."""
        return About(
            roles=self.roles,
            container=self.container,
            port=f"{self.port_name} {self.port}",
            restart=self.restart.value,
            decides=decides,
        )


def read_roles(
    framework: Framework,
    given: Mapping[str, ReplicaSpec] | None,
    findings: Findings,
) -> tuple[Role, ...]:
    """Return the roles of replica specs; keys are case-insensitive, as for the operators."""
    if not given:
        findings.required(framework.path, "at least one role is needed")
        return ()
    proper = {name.lower(): name for name in framework.roles}
    replicas: dict[str, ReplicaSpec] = {}
    for key, replica in given.items():
        name = proper.get(key.lower())
        if name is None:
            known = ", ".join(framework.roles)
            findings.unsupported(
                f"{framework.path}[{shown(key)}]", f"no such role; the roles are: {known}"
            )
        elif name in replicas:
            findings.duplicate(f"{framework.path}[{shown(key)}]", f"{name} is given twice")
        else:
            replicas[name] = replica
    return tuple(
        _read_role(framework, name, replicas[name], findings)
        for name in framework.roles
        if name in replicas
    )


def _read_role(framework: Framework, name: str, replica: ReplicaSpec, findings: Findings) -> Role:
    return role_of(
        f"{framework.path}[{name}]",
        name,
        replica,
        findings,
        container=framework.container,
        port=(framework.port_name, framework.port),
        replicas=framework.replicas.get(name, 1),
        restart=framework.restart,
        is_server=name in framework.serving,
    )


def run_policy(spec: Any, findings: Findings) -> tuple[RunPolicy, frozenset[str]]:
    """Return the run policy, merged from `runPolicy` and `spec`, and its fields given in `spec`."""
    policy: RunPolicy = spec.runPolicy
    given = {name: value for name in FLAT if (value := getattr(spec, name)) is not None}
    for name, value in given.items():
        if getattr(policy, name) not in (None, value):
            findings.forbidden(f"spec.{name}", f"{POLICY}.{name} has another value")
    flat = {name: value for name, value in given.items() if getattr(policy, name) is None}
    return replace(policy, **flat), frozenset(flat)


def submission(
    framework: Framework,
    version: str,
    metadata: Metadata,
    policy: RunPolicy,
    roles: tuple[Role, ...],
    done_when: DoneWhen,
    findings: Findings,
    options: Mapping[str, Any] | None = None,
    *,
    flat: Collection[str] = (),
    clean: CleanPods = CleanPods.NONE,
    managers: Collection[str] = checking.MANAGERS,
) -> Submission:
    """Return the submission of a Kubeflow job.

    `options` has the fields that only this kind understands, as in its manifest. The other keyword
    arguments are those of `policy_of`.
    """
    understood = policy_of(metadata, policy, findings, flat=flat, clean=clean, managers=managers)
    roles = with_parts(framework.path, roles, findings)
    spec = JobSpec(
        kind=framework.kind,
        version=version,
        roles=roles,
        done_when=done_when,
        labels=metadata.labels,
        annotations=metadata.annotations,
        options={**understood.options, **(options or {})},
        **understood.fields,
    )
    check_gang(framework.path, metadata, spec, findings)
    return Submission(metadata.namespace, metadata.name, spec, policy.suspend)


def check_gang(path: str, metadata: Metadata, spec: JobSpec, findings: Findings) -> None:
    """Check the rules that involve all roles together."""
    for field, message in scheduling_problems(spec):
        findings.invalid(field.replace("spec.roles", path), message)
    checking.check_names(metadata.namespace, metadata.name, spec.roles, findings)
    if spec.size > checking.RANKS_MAX:
        most = checking.RANKS_MAX
        findings.invalid(path, f"{spec.size} replicas are more than the {most} a gang may have")
    if spec.roles:
        for field, message in hints.annotation_problems(spec):
            findings.invalid(field, message)


def write(framework: Framework, job: Submission) -> dict[str, Any]:
    """Return the manifest of a job in the map style, with explicit defaults."""
    spec = job.spec
    own = {name: value for name, value in spec.options.items() if name != "runPolicy"}
    return {
        "apiVersion": spec.version,
        "kind": framework.kind,
        "metadata": written_metadata(job),
        "spec": {
            framework.field: {role.name: written_replica(role) for role in spec.roles},
            "runPolicy": written_policy(job),
            **own,
        },
    }


def write_flat(framework: Framework, job: Submission) -> dict[str, Any]:
    """Return the manifest of a version until 2020, with the run policy's fields in `spec` itself.

    Fields that those versions did not have yet stay in `runPolicy`.
    """
    manifest = write(framework, job)
    spec = manifest["spec"]
    policy = spec.pop("runPolicy")
    spec.update({name: policy.pop(name) for name in FLAT[:-1] if name in policy})
    newer = {name: value for name, value in policy.items() if value != NEWER.get(name)}
    return manifest if not newer else {**manifest, "spec": {**spec, "runPolicy": newer}}


def written_replica(role: Role) -> dict[str, Any]:
    return {
        "replicas": role.replicas,
        "restartPolicy": role.restart.value,
        "template": role.template,
    }


# ------------------------------------------------------------------ rank environments


def rank_name(gang: GangContext, rank: int) -> str:
    """Return the name of a rank's pod, which is also the name of its service."""
    return f"{gang.name}-{gang.spec.rank_name(rank)}".replace("/", "-")


def require_one(
    framework: Framework, name: str, given: Mapping[str, ReplicaSpec] | None, findings: Findings
) -> None:
    """Require that the role, if it is given, has `replicas: 1`; the operators require it too."""
    for key, replica in (given or {}).items():
        if key.lower() == name.lower() and replica.replicas != 1:
            message = "must be given" if replica.replicas is None else f"not {replica.replicas}"
            findings.forbidden(f"{framework.path}[{name}].replicas", f"it must be 1; {message}")


def labels(framework: Framework, gang: GangContext, rank: int, *, master: bool) -> dict[str, str]:
    role, index = gang.spec.role_of(rank)
    shared = {
        OPERATOR: framework.operator,
        JOB_NAME: gang.name,
        REPLICA_TYPE: role.name.lower(),
        REPLICA_INDEX: str(index),
    }
    return {**shared, JOB_ROLE: "master"} if master else shared


def port(framework: Framework, role: Role | None) -> int:
    """Return a role's rendezvous port: its container's port with the framework's port name.

    The framework's default is returned if there is no such role or port.
    """
    if role is None:
        return framework.port
    return dict(ports_of(container_of(role))).get(framework.port_name, framework.port)


def host_of(gang: GangContext, role: str, index: int = 0) -> str:
    """Return the host of a rank of a role."""
    rank = gang.spec.ranks_of(role).start + index
    return gang.host(rank, f"{gang.name}-{role.lower()}-{index}")


def port_of(framework: Framework, gang: GangContext, role: str, index: int = 0) -> int:
    """Return the rendezvous port on which a rank of a role listens."""
    rank = gang.spec.ranks_of(role).start + index
    return gang.port(rank, port(framework, gang.spec.role(role)))


def one_service_each(
    gang: GangContext, labels_of: Callable[[int], Mapping[str, str]]
) -> Sequence[Service]:
    """Return a headless service for each rank, with the rank's name."""
    ports = {role.name: ports_of(container_of(role)) for role in gang.spec.roles}
    return [
        Service(
            name=rank_name(gang, rank),
            selector=dict(labels_of(rank)),
            ports=ports[gang.spec.role_of(rank)[0].name],
        )
        for rank in range(gang.spec.size)
    ]
