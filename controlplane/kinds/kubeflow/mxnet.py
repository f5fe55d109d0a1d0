"""MXJob: a scheduler, servers and workers of MXNet or BytePS, or the tuners of TVM."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from controlplane.kinds.kind import (
    Duty,
    Form,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    Submission,
)
from controlplane.kinds.kubeflow import kubeflow, legacy, legacy_status
from controlplane.kinds.manifest.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import CleanPods, DoneWhen, RestartRule, Role

MX = kubeflow.Framework(
    kind="MXJob",
    field="mxReplicaSpecs",
    roles=("Scheduler", "Server", "Worker", "TunerTracker", "TunerServer", "Tuner"),
    container="mxnet",
    port_name="mxjob-port",
    port=9091,
    restart=RestartRule.NEVER,
    serving=("Server", "TunerTracker", "TunerServer"),
    operator="mxjob-controller",
)
V1 = "kubeflow.org/v1"
V1BETA1 = "kubeflow.org/v1beta1"
# The role whose success makes the job succeed, by mode: the first of these that the job has.
DECIDERS = {"MXTrain": ("Scheduler", "Worker"), "MXTune": ("Tuner",)}
# The annotation of a role with the key that a TVM tuner asks for.
TUNER_KEY = "tuner-server-key"


class MXJobSpec(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    mxReplicaSpecs: dict[str, ReplicaSpec] = {}
    runPolicy: RunPolicy = RunPolicy()
    jobMode: Literal["MXTrain", "MXTune"] = "MXTrain"


class MXJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1", "kubeflow.org/v1beta1"]
    kind: Literal["MXJob"]
    metadata: Metadata
    spec: MXJobSpec
    status: Any = UNSET


def read(job: MXJob, findings: Findings) -> Submission:
    spec = job.spec
    roles = kubeflow.read_roles(MX, spec.mxReplicaSpecs, findings)
    policy, flat = kubeflow.run_policy(spec, findings)
    for role in roles:
        if role.name == "Scheduler" and role.replicas != 1:
            findings.forbidden(
                f"{MX.path}[Scheduler].replicas", f"it must be 1, not {role.replicas}"
            )
    return kubeflow.submission(
        MX,
        job.apiVersion,
        job.metadata,
        policy,
        roles,
        _done_when(roles, spec.jobMode, findings),
        findings,
        {"jobMode": spec.jobMode},
        flat=flat,
        # The older versions (until 2022) delete all pods by default.
        clean=CleanPods.NONE if job.apiVersion == V1 else CleanPods.ALL,
    )


def _done_when(roles: Sequence[Role], mode: str, findings: Findings) -> DoneWhen:
    deciders = DECIDERS[mode]
    names = [role.name for role in roles]
    if names and not any(name in names for name in deciders):
        message = f"a {' or '.join(deciders)} is needed to decide a job of mode {mode}"
        findings.required(MX.path, message)
    return DoneWhen(next((name for name in deciders if name in names), deciders[0]))


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(MX, job)


def write_flat(job: Submission) -> dict[str, Any]:
    return kubeflow.write_flat(MX, job)


# ------------------------------------------------------------------ rank environments


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    if legacy.is_listed(gang):
        return legacy.environments(LISTED, gang, _env_of_2018(gang), all_containers=True)
    spec = gang.spec
    shared = _shared(gang, root=kubeflow.host_of(gang, "Scheduler"))
    config = _mx_config(gang)

    def environment(rank: int) -> RankEnvironment:
        role, index = spec.role_of(rank)
        env = {**shared, "MX_CONFIG": config(rank), "DMLC_ROLE": role.name.lower()}
        if role.name == "Worker":
            # BytePS needs this variable.
            env["DMLC_WORKER_ID"] = str(index)
        return RankEnvironment(
            name=kubeflow.rank_name(gang, rank), labels=_labels(gang, rank), env=env
        )

    return environment


def _shared(gang: GangContext, root: str) -> dict[str, str]:
    """Return the variables that all ranks have; `root` is the host of the scheduler."""
    spec = gang.spec
    has_scheduler = spec.role("Scheduler") is not None
    port = kubeflow.port_of(MX, gang, "Scheduler") if has_scheduler else 0
    return {
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_PS_ROOT_URI": root if has_scheduler else "",
        "DMLC_NUM_SERVER": str(len(spec.ranks_of("Server"))),
        "DMLC_NUM_WORKER": str(len(spec.ranks_of("Worker"))),
        "DMLC_USE_KUBERNETES": "1",
    }


def _mx_config(gang: GangContext) -> Callable[[int], str]:
    spec = gang.spec
    roles = sorted(spec.roles, key=lambda role: role.name.lower())
    # Encoded once for all ranks: for a gang of a thousand it has a thousand hosts.
    cluster = msgspec.Raw(
        msgspec.json.encode({role.name.lower(): _hosts(gang, role) for role in roles})
    )
    keys = {role.name.lower(): _tuner_key(role) for role in roles}

    def config(rank: int) -> str:
        role, index = spec.role_of(rank)
        task = {"type": role.name.lower(), "index": index}
        return msgspec.json.encode({"cluster": cluster, "labels": keys, "task": task}).decode()

    return config


def _hosts(gang: GangContext, role: Role) -> list[dict[str, Any]]:
    port, first = kubeflow.port(MX, role), gang.spec.ranks_of(role.name).start
    return [
        {"url": kubeflow.host_of(gang, role.name, i), "port": gang.port(first + i, port)}
        for i in range(role.replicas)
    ]


def _tuner_key(role: Role) -> str:
    annotations = role.template.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(TUNER_KEY, "")) if isinstance(annotations, dict) else ""


def _labels(gang: GangContext, rank: int) -> dict[str, str]:
    # The operator labels the servers as masters, and tools of users may select by it.
    is_master = gang.spec.role_of(rank)[0].name == "Server"
    return kubeflow.labels(MX, gang, rank, master=is_master)


def services(gang: GangContext) -> Sequence[Service]:
    if legacy.is_listed(gang):
        return legacy.services(LISTED, gang)
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


# ------------------------------------------------------------------ the list style of 2018

LISTED = legacy.ListStyle(
    framework=MX,
    type="mxReplicaType",
    port="PsRootPort",
    image="mxImage",
    default_image="mxjob/mxnet:gpu",
    chief="chief",
    place="replicaIndex",
    default_chief="WORKER",
    single="SCHEDULER",
    label="mx_job_name",
    clean="cleanupPodPolicy",
    roles=("Scheduler", "Server", "Worker"),
)


class MXEntry(legacy.Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    mxReplicaType: str = ""
    PsRootPort: int | None = None


class MXListSpec(legacy.Spec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicaSpecs: list[MXEntry] = []
    mxImage: str = ""
    terminationPolicy: legacy.ChiefPolicy | None = None
    cleanupPodPolicy: str = ""


class MXJobV1Alpha1(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1alpha1"]
    kind: Literal["MXJob"]
    metadata: Metadata
    spec: MXListSpec
    status: Any = UNSET


def read_list(job: MXJobV1Alpha1, findings: Findings) -> Submission:
    return legacy.read(LISTED, job.metadata, job.spec, findings)


def write_list(job: Submission) -> dict[str, Any]:
    return legacy.write(LISTED, job)


def _env_of_2018(gang: GangContext) -> Callable[[int], dict[str, str]]:
    shared = _shared(gang, root=legacy.host_of(gang, "Scheduler", 0))
    return lambda rank: {**shared, "DMLC_ROLE": gang.spec.role_of(rank)[0].name.lower()}


# The scheduler connects workers to servers and ends with them. Tuning jobs have roles of their own.
DUTIES = {
    "Scheduler": Duty.DRIVE,
    "Server": Duty.SERVE_PARAMETERS,
    "Worker": Duty.COMPUTE,
    "Tuner": Duty.COMPUTE,
}

KIND = Kind(
    name="MXJob",
    forms=(
        Form(V1, MXJob, read, write),
        Form(V1BETA1, MXJob, read, write_flat),
        Form(
            legacy.VERSION,
            MXJobV1Alpha1,
            read_list,
            write_list,
            legacy_status.styled("mx_replica_type"),
            legacy.modern(LISTED),
        ),
    ),
    environments=environments,
    services=services,
    about=MX.about(
        "the Scheduler; where there is none, all Workers; of a tuning job the Tuner; "
        "in v1alpha1 the replica that terminationPolicy names"
    ),
    duties=lambda spec: DUTIES,
)
