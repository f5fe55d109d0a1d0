"""TFJob: a chief or master, workers, parameter servers and an evaluator."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from controlplane.kinds import conditions
from controlplane.kinds.kind import (
    Duty,
    Form,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    Submission,
    usual_duties,
)
from controlplane.kinds.kubeflow import kubeflow, legacy, legacy_status
from controlplane.kinds.manifest.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import CleanPods, DoneWhen, JobSpec, RestartRule, Role

TF = kubeflow.Framework(
    kind="TFJob",
    field="tfReplicaSpecs",
    roles=("Chief", "Master", "Worker", "PS", "Evaluator"),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart=RestartRule.NEVER,
    # Parameter servers and evaluators serve the other roles until the job ends.
    serving=("PS", "Evaluator"),
    operator="tfjob-controller",
)
# A job has at most one of these, and it decides the job.
CHIEFS = ("Chief", "Master")
V1 = "kubeflow.org/v1"
# Versions with the run policy's fields in `spec` itself.
OLDER = ("kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2")


class TFJobSpec(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tfReplicaSpecs: dict[str, ReplicaSpec] = {}
    runPolicy: RunPolicy = RunPolicy()
    successPolicy: Literal["", "AllWorkers"] = ""
    enableDynamicWorker: bool = False


class TFJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal[
        "kubeflow.org/v1", "kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2"
    ]
    kind: Literal["TFJob"]
    metadata: Metadata
    spec: TFJobSpec
    status: Any = UNSET


def read(job: TFJob, findings: Findings) -> Submission:
    spec = job.spec
    roles = kubeflow.read_roles(TF, spec.tfReplicaSpecs, findings)
    if spec.enableDynamicWorker:
        roles = _with_dynamic_workers(roles)
    policy, flat = kubeflow.run_policy(spec, findings)
    return kubeflow.submission(
        TF,
        job.apiVersion,
        job.metadata,
        policy,
        roles,
        done_when(roles, findings, all_workers=spec.successPolicy == "AllWorkers"),
        findings,
        {
            "successPolicy": spec.successPolicy,
            "enableDynamicWorker": spec.enableDynamicWorker,
        },
        flat=flat,
        # The older versions (until 2022) delete running pods by default.
        clean=CleanPods.NONE if job.apiVersion == V1 else CleanPods.RUNNING,
    )


def _with_dynamic_workers(roles: Sequence[Role]) -> tuple[Role, ...]:
    """Return the roles with optional workers at the end, so that no other rank is renumbered."""
    workers = [replace(role, optional=True) for role in roles if role.name == "Worker"]
    return (*(role for role in roles if role.name != "Worker"), *workers)


def done_when(roles: Sequence[Role], findings: Findings, *, all_workers: bool) -> DoneWhen:
    names = [role.name for role in roles]
    chiefs = [name for name in CHIEFS if name in names]
    if len(chiefs) > 1:
        findings.forbidden(TF.path, "Chief and Master are the same role; give one of them")
    elif names and not chiefs and "Worker" not in names:
        findings.required(TF.path, "a Chief, Master or Worker is needed to decide the job")
    if chiefs:
        return DoneWhen(chiefs[0])
    return DoneWhen("Worker", first=not all_workers)


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(TF, job)


def write_flat(job: Submission) -> dict[str, Any]:
    return kubeflow.write_flat(TF, job)


# ------------------------------------------------------------------ rank environments


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    if legacy.is_listed(gang):
        return legacy.environments(LISTED, gang, _config_of_2018(gang))
    config = _tf_config(gang) if gang.spec.size > 1 else None

    def environment(rank: int) -> RankEnvironment:
        return RankEnvironment(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env={} if config is None else {"TF_CONFIG": config(rank)},
            all_containers=False,
        )

    return environment


def _tf_config(gang: GangContext) -> Callable[[int], str]:
    """Return a function from a rank to its TF_CONFIG: the hosts by role, and the rank's own task.

    With dynamic workers it has only the hosts that never change.
    """
    spec = gang.spec
    hosts = {role.name: _hosts(gang, role) for role in spec.roles if role.replicas}

    def sparse(rank: int) -> str:
        role, index = spec.role_of(rank)
        servers = hosts.get("PS", [])
        cluster = {
            "worker": {str(index): hosts["Worker"][index]} if role.name == "Worker" else {},
            "ps": [servers[index]] if role.name == "PS" else servers,
        }
        return _json({"cluster": cluster, "task": _task(spec, rank)})

    return sparse if spec.options.get("enableDynamicWorker") else _dense(spec, hosts)


def _dense(spec: JobSpec, hosts: dict[str, list[str]]) -> Callable[[int], str]:
    # Encoded once for all ranks: for a gang of a thousand it has a thousand hosts.
    in_order = {name.lower(): hosts[name] for name in sorted(hosts, key=str.lower)}
    cluster = msgspec.Raw(msgspec.json.encode(in_order))
    return lambda rank: _json(
        {"cluster": cluster, "task": _task(spec, rank), "environment": "cloud"}
    )


def _task(spec: JobSpec, rank: int) -> dict[str, Any]:
    role, index = spec.role_of(rank)
    return {"type": role.name.lower(), "index": index}


def _hosts(gang: GangContext, role: Role) -> list[str]:
    port = kubeflow.port(TF, role)
    ranks = gang.spec.ranks_of(role.name)
    return [
        f"{gang.full_host(rank, kubeflow.rank_name(gang, rank))}:{gang.port(rank, port)}"
        for rank in ranks
    ]


def _config_of_2018(gang: GangContext) -> Callable[[int], dict[str, str]]:
    """Return a function from a rank to its variables in the list style.

    TF_CONFIG has the short names of services, and a job of one rank gets it too.
    """
    hosts = {
        role.name: [
            f"{legacy.host_of(gang, role.name, i)}:{kubeflow.port_of(TF, gang, role.name, i)}"
            for i in range(role.replicas)
        ]
        for role in gang.spec.roles
        if role.replicas
    }
    config = _dense(gang.spec, hosts)
    return lambda rank: {"TF_CONFIG": config(rank)}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _labels(gang: GangContext, rank: int) -> dict[str, str]:
    return kubeflow.labels(TF, gang, rank, master=_is_master(gang.spec, rank))


def _is_master(spec: JobSpec, rank: int) -> bool:
    """Return whether a rank has the label of the master: the chief, or else the first worker."""
    role, index = spec.role_of(rank)
    if any(spec.role(name) for name in CHIEFS):
        return role.name in CHIEFS
    return role.name == "Worker" and index == 0


def services(gang: GangContext) -> Sequence[Service]:
    if legacy.is_listed(gang):
        return legacy.services(LISTED, gang)
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


# ------------------------------------------------------------------ the list style of 2018

LISTED = legacy.ListStyle(
    framework=TF,
    type="tfReplicaType",
    port="tfPort",
    image="tfImage",
    default_image="tensorflow/tensorflow:1.3.0",
    chief="chief",
    place="replicaIndex",
    default_chief="MASTER",
    single="MASTER",
    label="tf_job_name",
)


class TFEntry(legacy.Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tfReplicaType: str = ""
    tfPort: int | None = None


class TFListSpec(legacy.Spec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicaSpecs: list[TFEntry] = []
    tfImage: str = ""
    terminationPolicy: legacy.ChiefPolicy | None = None


class TFJobV1Alpha1(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1alpha1"]
    kind: Literal["TFJob"]
    metadata: Metadata
    spec: TFListSpec
    status: Any = UNSET


def read_list(job: TFJobV1Alpha1, findings: Findings) -> Submission:
    return legacy.read(LISTED, job.metadata, job.spec, findings)


def write_list(job: Submission) -> dict[str, Any]:
    return legacy.write(LISTED, job)


def duties(spec: JobSpec) -> dict[str, Duty]:
    """Return the duties by role; an evaluator runs during the training but takes no part in it."""
    return {**usual_duties(spec), "Evaluator": Duty(0)}


# The operator examines the roles in this order, so the failure of one hides later ones that run.
status = conditions.styled(conditions.Style(order=("Chief", "Evaluator", "Master", "PS", "Worker")))

KIND = Kind(
    name="TFJob",
    forms=(
        Form(V1, TFJob, read, write, status),
        *(Form(version, TFJob, read, write_flat, status) for version in OLDER),
        Form(
            legacy.VERSION,
            TFJobV1Alpha1,
            read_list,
            write_list,
            legacy_status.styled("tf_replica_type"),
            legacy.modern(LISTED),
        ),
    ),
    environments=environments,
    services=services,
    about=TF.about(
        "the Chief or Master; where there is none, the first Worker, "
        "or all of them with successPolicy AllWorkers; in v1alpha1 the replica that terminationPolicy names"
    ),
    duties=duties,
)
