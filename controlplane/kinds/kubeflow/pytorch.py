"""PyTorchJob: a master and workers, or only workers; elastic with an `elasticPolicy`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.kinds.kind import Form, GangContext, Kind, RankEnvironment, Service, Submission
from controlplane.kinds.kubeflow import kubeflow, legacy, legacy_status
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import DoneWhen, JobSpec, RestartRule, Role

TORCH = kubeflow.Framework(
    kind="PyTorchJob",
    field="pytorchReplicaSpecs",
    roles=("Master", "Worker"),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    restart=RestartRule.ON_FAILURE,
    operator="pytorchjob-controller",
)
V1 = "kubeflow.org/v1"
# Versions with the run policy's fields in `spec` itself.
OLDER = ("kubeflow.org/v1beta2", "kubeflow.org/v1beta1")
ELASTIC = "spec.elasticPolicy"
PROCESSES = ("auto", "cpu", "gpu")


class KeyValue(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    value: str = ""


class ElasticPolicy(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    minReplicas: int | None = None
    maxReplicas: int | None = None
    rdzvBackend: Literal["c10d", "etcd", "etcd-v2"] | None = None
    rdzvPort: int | None = None
    rdzvHost: str | None = None
    rdzvId: str | None = None
    rdzvConf: list[KeyValue] = []
    standalone: bool = False
    nProcPerNode: int | None = None
    maxRestarts: int | None = None
    metrics: list[dict[str, Any]] = []


class PyTorchJobSpec(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pytorchReplicaSpecs: dict[str, ReplicaSpec] = {}
    runPolicy: RunPolicy = RunPolicy()
    nprocPerNode: str | int | None = None
    elasticPolicy: ElasticPolicy | None = None


class PyTorchJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1", "kubeflow.org/v1beta2", "kubeflow.org/v1beta1"]
    kind: Literal["PyTorchJob"]
    metadata: Metadata
    spec: PyTorchJobSpec
    status: Any = UNSET


# ------------------------------------------------------------------ reading


def read(job: PyTorchJob, findings: Findings) -> Submission:
    spec = job.spec
    roles = kubeflow.read_roles(TORCH, spec.pytorchReplicaSpecs, findings)
    _check_roles(roles, spec, findings)
    elastic = spec.elasticPolicy
    workers = next((role for role in roles if role.name == "Worker"), None)
    if elastic is not None and workers is not None:
        elastic = _with_limits(elastic, workers)
        roles = tuple(_elastic(role, elastic) if role is workers else role for role in roles)
    policy, flat = kubeflow.run_policy(spec, findings)
    return kubeflow.submission(
        TORCH,
        job.apiVersion,
        job.metadata,
        policy,
        roles,
        _done_when(roles, elastic),
        findings,
        _options(spec, elastic, findings),
        flat=flat,
    )


def _check_roles(roles: Sequence[Role], spec: PyTorchJobSpec, findings: Findings) -> None:
    kubeflow.require_one(TORCH, "Master", spec.pytorchReplicaSpecs, findings)
    workers = next((role for role in roles if role.name == "Worker"), None)
    if workers is not None and workers.replicas == 0:
        findings.forbidden(f"{TORCH.path}[Worker].replicas", "it must be at least 1")
    elastic = spec.elasticPolicy
    if elastic is None:
        return
    if workers is None:
        findings.required(f"{TORCH.path}[Worker]", "an elastic job needs workers")
    checking.check_range(f"{ELASTIC}.rdzvPort", elastic.rdzvPort, 1, checking.PORT_MAX, findings)
    for field in ("minReplicas", "maxReplicas", "nProcPerNode"):
        value = getattr(elastic, field)
        checking.check_range(f"{ELASTIC}.{field}", value, 1, checking.RANKS_MAX, findings)
    checking.check_range(
        f"{ELASTIC}.maxRestarts", elastic.maxRestarts, 0, checking.BILLION, findings
    )
    least, most = elastic.minReplicas, elastic.maxReplicas
    if least is not None and most is not None and least > most:
        findings.invalid(f"{ELASTIC}.minReplicas", f"{least} is more than maxReplicas, {most}")


def _with_limits(elastic: ElasticPolicy, workers: Role) -> ElasticPolicy:
    """Return the policy with both limits; a missing one is copied from the other.

    Without both, the number of workers is fixed.
    """
    least, most = elastic.minReplicas, elastic.maxReplicas
    fallback = workers.replicas if least is None and most is None else least or most
    return replace(
        elastic,
        minReplicas=fallback if least is None else least,
        maxReplicas=fallback if most is None else most,
    )


def _elastic(role: Role, elastic: ElasticPolicy) -> Role:
    return replace(role, min_replicas=elastic.minReplicas, max_replicas=elastic.maxReplicas)


def _done_when(roles: Sequence[Role], elastic: ElasticPolicy | None) -> DoneWhen:
    if any(role.name == "Master" for role in roles):
        return DoneWhen("Master")
    return DoneWhen("Worker", any=elastic is not None)


def _options(
    spec: PyTorchJobSpec, elastic: ElasticPolicy | None, findings: Findings
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    deprecated = elastic is not None and elastic.nProcPerNode is not None
    if deprecated:
        where = f"{ELASTIC}.nProcPerNode"
        findings.warn(f"{where} is deprecated; use spec.nprocPerNode")
        if spec.nprocPerNode is not None:
            findings.forbidden(where, "spec.nprocPerNode is given too")
    if spec.nprocPerNode is not None or not deprecated:
        options["nprocPerNode"] = _processes(spec.nprocPerNode, findings)
    if elastic is not None:
        options["elasticPolicy"] = to_builtins(elastic)
    return options


def _processes(given: str | int | None, findings: Findings) -> str:
    asked = "auto" if given is None else shown(given)
    is_number = asked.isascii() and asked.isdigit() and 1 <= int(asked) <= checking.RANKS_MAX
    if asked not in PROCESSES and not is_number:
        message = f"{asked!r} is not a number of processes, nor one of {', '.join(PROCESSES)}"
        findings.unsupported("spec.nprocPerNode", message)
        return "auto"
    return asked


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(TORCH, job)


def write_flat(job: Submission) -> dict[str, Any]:
    return kubeflow.write_flat(TORCH, job)


# ------------------------------------------------------------------ rank environments


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    if legacy.is_listed(gang):
        return legacy.environments(LISTED, gang, _env_of_2018(gang), number=_its_rank)
    spec = gang.spec
    has_master = spec.role("Master") is not None
    shared = {"PYTHONUNBUFFERED": "1"}
    if has_master:
        shared |= _meeting_at_master(gang)
    shared |= _launcher(gang)
    master = kubeflow.host_of(gang, "Master") if has_master else ""

    def environment(rank: int) -> RankEnvironment:
        # The master is rank 0, so Muster's rank is also PyTorch's.
        own = {"RANK": str(rank), "PET_NODE_RANK": str(rank)} if has_master else {}
        is_worker = spec.role_of(rank)[0].name == "Worker"
        return RankEnvironment(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env={**shared, **own},
            waits_for_host=master if is_worker else "",
        )

    return environment


def _meeting_at_master(gang: GangContext) -> dict[str, str]:
    spec = gang.spec
    port = str(kubeflow.port_of(TORCH, gang, "Master"))
    processes = spec.options.get("nprocPerNode", "")
    each = int(processes) if processes.isdigit() else 1
    host = kubeflow.host_of(gang, "Master")
    return {
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": host,
        "PET_MASTER_ADDR": host,
        "WORLD_SIZE": str(spec.size * each),
    }


def _launcher(gang: GangContext) -> dict[str, str]:
    """Return the variables that torchrun reads."""
    spec = gang.spec
    elastic = spec.options.get("elasticPolicy")
    processes = spec.options.get("nprocPerNode", "")
    env = {"PET_NPROC_PER_NODE": processes} if processes else {}
    if elastic is None:
        return {**env, "PET_NNODES": str(spec.size)}
    return {**env, **_rendezvous(gang, elastic)}


def _rendezvous(gang: GangContext, elastic: dict[str, Any]) -> dict[str, str]:
    workers = gang.spec.ranks_of("Worker")
    port = elastic.get("rdzvPort") or kubeflow.port(TORCH, gang.spec.role("Worker"))
    host = elastic.get("rdzvHost")
    if not host:
        host, port = kubeflow.host_of(gang, "Worker"), gang.port(workers.start, port)
    conf = ",".join(
        f"{each['key']}={each.get('value', '')}" for each in elastic.get("rdzvConf", ())
    )
    variables = {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": elastic.get("rdzvBackend") or "c10d",
        "PET_NNODES": f"{elastic.get('minReplicas')}:{elastic.get('maxReplicas')}",
        "PET_MAX_RESTARTS": _text(elastic.get("maxRestarts")),
        "PET_NPROC_PER_NODE": _text(elastic.get("nProcPerNode")),
        "PET_RDZV_ID": _text(elastic.get("rdzvId")),
        "PET_RDZV_CONF": conf,
    }
    present = {name: value for name, value in variables.items() if value}
    return {**present, "PET_STANDALONE": ""} if elastic.get("standalone") else present


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _labels(gang: GangContext, rank: int) -> dict[str, str]:
    return kubeflow.labels(TORCH, gang, rank, master=_is_master(gang.spec, rank))


def _is_master(spec: JobSpec, rank: int) -> bool:
    """Return whether a rank has the label of the master: the master, or else the first worker."""
    if spec.role("Master") is not None:
        return spec.role_of(rank)[0].name == "Master"
    return rank == 0


def services(gang: GangContext) -> Sequence[Service]:
    if legacy.is_listed(gang):
        return legacy.services(LISTED, gang, number=_its_rank)
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


# ------------------------------------------------------------------ the list style of 2018

LISTED = legacy.ListStyle(
    framework=TORCH,
    type="replicaType",
    port="masterPort",
    image="pytorchImage",
    default_image="pytorch/pytorch:v0.2",
    chief="master",
    place="replicaRank",
    default_chief="MASTER",
    single="MASTER",
    label="pytorch_job_name",
    own=("backend",),
    roles=TORCH.roles,
)


class PyTorchEntry(legacy.Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicaType: str = ""
    masterPort: int | None = None


class Master(Struct, frozen=True, forbid_unknown_fields=True):
    replicaName: str = ""
    replicaRank: int = 0


class MasterPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    master: Master | None = None


class PyTorchListSpec(legacy.Spec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicaSpecs: list[PyTorchEntry] = []
    pytorchImage: str = ""
    # The communication library of the ranks; only the program uses it.
    backend: str = ""
    # Before the first release there was one port for all entries, given as text.
    masterPort: int | str | None = None
    terminationPolicy: MasterPolicy | None = None


class PyTorchJobV1Alpha1(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1alpha1"]
    kind: Literal["PyTorchJob"]
    metadata: Metadata
    spec: PyTorchListSpec
    status: Any = UNSET


def read_list(job: PyTorchJobV1Alpha1, findings: Findings) -> Submission:
    port = _port_of_2018(job.spec.masterPort, findings)
    return legacy.read(LISTED, job.metadata, job.spec, findings, port=port)


def _port_of_2018(given: int | str | None, findings: Findings) -> int | None:
    """Return the port given in `spec` itself, as a number or as text; None if it is not valid."""
    if isinstance(given, str):
        if not (given.isascii() and given.isdigit() and len(given) <= 9):
            findings.invalid("spec.masterPort", f"{shown(given)!r} is not the number of a port")
            return None
        given = int(given)
    fits = checking.check_range("spec.masterPort", given, 1, checking.PORT_MAX, findings)
    return given if fits else None


def write_list(job: Submission) -> dict[str, Any]:
    return legacy.write(LISTED, job)


def _its_rank(rank: int) -> int:
    return rank


def _env_of_2018(gang: GangContext) -> Callable[[int], dict[str, str]]:
    spec = gang.spec
    shared = {
        "MASTER_PORT": str(kubeflow.port_of(TORCH, gang, "Master")),
        "WORLD_SIZE": str(spec.size),
    }
    master = legacy.host_of(gang, "Master", 0)
    return lambda rank: {
        **shared,
        "MASTER_ADDR": master if rank else "localhost",
        "RANK": str(rank),
    }


KIND = Kind(
    name="PyTorchJob",
    forms=(
        Form(V1, PyTorchJob, read, write),
        *(Form(version, PyTorchJob, read, write_flat) for version in OLDER),
        Form(
            legacy.VERSION,
            PyTorchJobV1Alpha1,
            read_list,
            write_list,
            legacy_status.styled("replica_type"),
            legacy.modern(LISTED),
        ),
    ),
    environments=environments,
    services=services,
    about=TORCH.about(
        "the Master; where there is none, all Workers, or any of them if the job is elastic; "
        "in v1alpha1 the replica that terminationPolicy names"
    ),
)
