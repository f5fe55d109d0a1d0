"""What the Kubeflow kinds have in common: replica specs by role, a run policy, names and labels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Gang, Service, Submission
from controlplane.kinds.manifest import Metadata, RunPolicy, policy_of, written_metadata
from controlplane.kinds.pods import ReplicaSpec, container_of, ports_of, role_of
from controlplane.model import DoneWhen, JobSpec, RestartRule, Role

# Labels that the operators put on pods and services, and that people's tools select by.
OPERATOR = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"


class Framework(NamedTuple):
    """The facts of one kind. Roles are in the order in which its ranks are counted."""

    kind: str
    # Where the replica specs are: spec.FIELD.
    field: str
    roles: tuple[str, ...]
    # The container that the framework runs in, and the port that its ranks meet on.
    container: str
    port_name: str
    port: int
    restart: RestartRule
    # Roles that serve the others until the job is over.
    serving: tuple[str, ...] = ()
    operator: str = ""
    # How many replicas a role has that does not say; all others have one.
    replicas: Mapping[str, int] = {}

    @property
    def path(self) -> str:
        return f"spec.{self.field}"


def read_roles(
    framework: Framework, given: Mapping[str, ReplicaSpec] | None, findings: Findings
) -> tuple[Role, ...]:
    """Roles from replica specs; keys may be spelt in any case, as the operators take them."""
    if not given:
        findings.required(framework.path, "at least one role is needed")
        return ()
    proper = {name.lower(): name for name in framework.roles}
    found: dict[str, ReplicaSpec] = {}
    for key, replica in given.items():
        name = proper.get(key.lower())
        if name is None:
            known = ", ".join(framework.roles)
            findings.unsupported(
                f"{framework.path}[{key}]", f"no such role; the roles are: {known}"
            )
        elif name in found:
            findings.duplicate(f"{framework.path}[{key}]", f"{name} is given twice")
        else:
            found[name] = replica
    return tuple(
        _read_role(framework, name, found[name], findings)
        for name in framework.roles
        if name in found
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
        serves=name in framework.serving,
    )


def submission(
    framework: Framework,
    version: str,
    metadata: Metadata,
    policy: RunPolicy,
    roles: tuple[Role, ...],
    done_when: DoneWhen,
    findings: Findings,
    options: Mapping[str, Any] | None = None,
) -> Submission:
    """A job of a Kubeflow kind as the control plane knows it.

    `options` is what only this kind understands, in its manifest's own spelling.
    """
    understood = policy_of(metadata, policy, findings)
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
    return Submission(metadata.namespace, metadata.name, spec, policy.suspend)


def write(framework: Framework, job: Submission) -> dict[str, Any]:
    """The manifest of a job in the map style, every default spelt out."""
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


def written_replica(role: Role) -> dict[str, Any]:
    return {
        "replicas": role.replicas,
        "restartPolicy": role.restart.value,
        "template": role.template,
    }


def written_policy(job: Submission) -> dict[str, Any]:
    """The run policy; what the person wrote in it that has no field of ours is kept in options."""
    spec = job.spec
    kept: Mapping[str, Any] = spec.options.get("runPolicy", {})
    policy: dict[str, Any] = {
        "cleanPodPolicy": spec.clean.value,
        "ttlSecondsAfterFinished": spec.ttl_s,
        "activeDeadlineSeconds": spec.active_deadline_s,
        "backoffLimit": spec.restart.limit,
        "managedBy": spec.managed_by or None,
        **kept,
        "suspend": job.suspended,
    }
    return {name: value for name, value in policy.items() if value is not None}


# ------------------------------------------------------------------ what ranks are told


def rank_name(gang: Gang, rank: int) -> str:
    """The name of a rank's pod, and of the service that leads to it."""
    return f"{gang.name}-{gang.spec.rank_name(rank)}".replace("/", "-")


def labels(framework: Framework, gang: Gang, rank: int, *, master: bool) -> dict[str, str]:
    role, index = gang.spec.role_of(rank)
    found = {
        OPERATOR: framework.operator,
        JOB_NAME: gang.name,
        REPLICA_TYPE: role.name.lower(),
        REPLICA_INDEX: str(index),
    }
    return {**found, JOB_ROLE: "master"} if master else found


def port(framework: Framework, role: Role | None) -> int:
    """The port that a role's ranks meet on: the one of the framework's name in its container."""
    if role is None:
        return framework.port
    return dict(ports_of(container_of(role))).get(framework.port_name, framework.port)


def one_service_each(
    gang: Gang, labels_of: Callable[[int], Mapping[str, str]]
) -> Sequence[Service]:
    """A headless service for every rank, by the rank's own name."""
    ports = {role.name: ports_of(container_of(role)) for role in gang.spec.roles}
    return [
        Service(
            name=rank_name(gang, rank),
            selector=dict(labels_of(rank)),
            ports=ports[gang.spec.role_of(rank)[0].name],
        )
        for rank in range(gang.spec.size)
    ]
