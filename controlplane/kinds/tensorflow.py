"""TFJob: chief or master, workers, parameter servers, evaluator."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from controlplane.kinds import kubeflow
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, JobSpec, RestartRule, Role

TF = kubeflow.Framework(
    kind="TFJob",
    field="tfReplicaSpecs",
    roles=("Chief", "Master", "Worker", "PS", "Evaluator"),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart=RestartRule.NEVER,
    # Parameter servers and evaluators serve the others until the job is over.
    serving=("PS", "Evaluator"),
    operator="tfjob-controller",
)
# A job has one of these at most, and it decides.
CHIEFS = ("Chief", "Master")


class TFJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    tfReplicaSpecs: dict[str, ReplicaSpec] = {}
    runPolicy: RunPolicy = RunPolicy()
    successPolicy: Literal["", "AllWorkers"] = ""
    enableDynamicWorker: bool = False


class TFJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1"]
    kind: Literal["TFJob"]
    metadata: Metadata
    spec: TFJobSpec
    status: Any = UNSET


def read(job: TFJob, findings: Findings) -> Submission:
    spec = job.spec
    roles = kubeflow.read_roles(TF, spec.tfReplicaSpecs, findings)
    if spec.enableDynamicWorker:
        roles = tuple(_expendable(role) if role.name == "Worker" else role for role in roles)
    options = {
        "successPolicy": spec.successPolicy,
        "enableDynamicWorker": spec.enableDynamicWorker,
    }
    return kubeflow.submission(
        TF,
        job.apiVersion,
        job.metadata,
        spec.runPolicy,
        roles,
        done_when(roles, findings, all_workers=spec.successPolicy == "AllWorkers"),
        findings,
        options,
    )


def _expendable(role: Role) -> Role:
    return msgspec.structs.replace(role, expendable=True)


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


def tell(gang: Gang) -> Callable[[int], Told]:
    config = _tf_config(gang) if gang.spec.size > 1 else None

    def told(rank: int) -> Told:
        return Told(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env={} if config is None else {"TF_CONFIG": config(rank)},
            all_containers=False,
        )

    return told


def _tf_config(gang: Gang) -> Callable[[int], str]:
    """Who the others are, and who this one is. With dynamic workers, only what never changes."""
    spec = gang.spec
    hosts = {role.name: _hosts(gang, role) for role in spec.roles if role.replicas}

    def task(rank: int) -> dict[str, Any]:
        role, index = spec.role_of(rank)
        return {"type": role.name.lower(), "index": index}

    def sparse(rank: int) -> str:
        role, index = spec.role_of(rank)
        servers = hosts.get("PS", [])
        cluster = {
            "worker": {str(index): hosts["Worker"][index]} if role.name == "Worker" else {},
            "ps": [servers[index]] if role.name == "PS" else servers,
        }
        return _json({"sparseCluster": cluster, "task": task(rank)})

    if spec.options.get("enableDynamicWorker"):
        return sparse
    # Written once for all ranks: a gang of a thousand has a thousand hosts in it.
    in_order = {name.lower(): hosts[name] for name in sorted(hosts, key=str.lower)}
    cluster = msgspec.Raw(msgspec.json.encode(in_order))
    return lambda rank: _json({"cluster": cluster, "task": task(rank), "environment": "cloud"})


def _hosts(gang: Gang, role: Role) -> list[str]:
    port = kubeflow.port(TF, role)
    names = (f"{gang.name}-{role.name.lower()}-{i}" for i in range(role.replicas))
    return [f"{gang.service_host(name)}:{port}" for name in names]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _labels(gang: Gang, rank: int) -> dict[str, str]:
    return kubeflow.labels(TF, gang, rank, master=_is_master(gang.spec, rank))


def _is_master(spec: JobSpec, rank: int) -> bool:
    """The chief leads; where there is none, the first worker does."""
    role, index = spec.role_of(rank)
    if any(spec.role(name) for name in CHIEFS):
        return role.name in CHIEFS
    return role.name == "Worker" and index == 0


def services(gang: Gang) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(TF, job)


KIND = Kind(
    name="TFJob",
    forms=(Form("kubeflow.org/v1", TFJob, read, write),),
    tell=tell,
    services=services,
)
