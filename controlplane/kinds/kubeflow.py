"""What the Kubeflow kinds have in common: replica specs by role, a run policy, names and labels."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from controlplane.kinds import checking
from controlplane.kinds.asked_by_annotation import with_parts
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import About, Gang, Service, Submission
from controlplane.kinds.manifest import (
    POLICY,
    WORKLOAD_PREFIX,
    FlatPolicy,
    Metadata,
    RunPolicy,
    policy_of,
    written_metadata,
    written_policy,
)
from controlplane.kinds.pods import ReplicaSpec, container_of, ports_of, role_of
from controlplane.kinds.structure import shown
from controlplane.kinds.wishes import wish_problems
from controlplane.model import CleanPods, DoneWhen, JobSpec, RestartRule, Role

# Labels that the operators put on pods and services, and that people's tools select by.
OPERATOR = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"


# The fields of a run policy that stood in `spec` itself; the last one only in XGBoostJob.
FLAT = FlatPolicy.__struct_fields__
# What is not worth writing in a version that did not know it.
NEWER = {"suspend": False, "schedulingPolicy": {"queue": "default"}}


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

    def about(self, decides: str) -> About:
        """These facts for the table of kinds in the documentation."""
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
                f"{framework.path}[{shown(key)}]", f"no such role; the roles are: {known}"
            )
        elif name in found:
            findings.duplicate(f"{framework.path}[{shown(key)}]", f"{name} is given twice")
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


def run_policy(spec: Any, findings: Findings) -> tuple[RunPolicy, frozenset[str]]:
    """A run policy from both places it may stand in, and which of its fields stood in `spec`."""
    policy: RunPolicy = spec.runPolicy
    given = {name: value for name in FLAT if (value := getattr(spec, name)) is not None}
    for name, value in given.items():
        if getattr(policy, name) not in (None, value):
            findings.forbidden(f"spec.{name}", f"{POLICY}.{name} says something else")
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
    """A job of a Kubeflow kind as the control plane knows it.

    `options` is what only this kind understands, in its manifest's own spelling. The rest is for
    the run policy, see `policy_of`.
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
    """What can be said only of all roles together."""
    for field, told in wish_problems(spec):
        findings.invalid(field.replace("spec.roles", path), told)
    checking.check_names(metadata.namespace, metadata.name, spec.roles, findings)
    if spec.size > checking.RANKS_MAX:
        most = checking.RANKS_MAX
        findings.invalid(path, f"{spec.size} replicas are more than the {most} a gang may have")
    if spec.roles and spec.workload.exit_rank >= max(spec.size, 1):
        where = f"metadata.annotations[{WORKLOAD_PREFIX}exit-rank]"
        findings.invalid(where, f"{spec.workload.exit_rank} is no rank of this gang")


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


def write_flat(framework: Framework, job: Submission) -> dict[str, Any]:
    """The same as until 2020, when a run policy stood in `spec` itself.

    What those versions did not know yet keeps its newer place.
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


# ------------------------------------------------------------------ what ranks are told


def rank_name(gang: Gang, rank: int) -> str:
    """The name of a rank's pod, and of the service that leads to it."""
    return f"{gang.name}-{gang.spec.rank_name(rank)}".replace("/", "-")


def require_one(
    framework: Framework, name: str, given: Mapping[str, ReplicaSpec] | None, findings: Findings
) -> None:
    """A role of which there is one, if there is any; it must be said, as the operators want it."""
    for key, replica in (given or {}).items():
        if key.lower() == name.lower() and replica.replicas != 1:
            told = "must be given" if replica.replicas is None else f"not {replica.replicas}"
            findings.forbidden(f"{framework.path}[{name}].replicas", f"it must be 1; {told}")


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
