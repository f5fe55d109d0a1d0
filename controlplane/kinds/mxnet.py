"""MXJob: a scheduler, servers and workers of MXNet or BytePS; or TVM's tuners."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from controlplane.kinds import kubeflow, legacy, legacy_status
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Duty, Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import CleanPods, DoneWhen, JobSpec, RestartRule, Role

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
# Whose success is the job's: the first of these that it has.
DECIDERS = {"MXTrain": ("Scheduler", "Worker"), "MXTune": ("Tuner",)}
# A role's annotation with the name that a tuner asks for.
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
        # Until 2022 all pods were deleted.
        clean=CleanPods.NONE if job.apiVersion == V1 else CleanPods.ALL,
    )


def _done_when(roles: Sequence[Role], mode: str, findings: Findings) -> DoneWhen:
    deciders = DECIDERS[mode]
    names = [role.name for role in roles]
    if names and not any(name in names for name in deciders):
        told = f"a {' or '.join(deciders)} is needed to decide a job of mode {mode}"
        findings.required(MX.path, told)
    return DoneWhen(next((name for name in deciders if name in names), deciders[0]))


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(MX, job)


def write_flat(job: Submission) -> dict[str, Any]:
    return kubeflow.write_flat(MX, job)


# ------------------------------------------------------------------ what ranks are told


def tell(gang: Gang) -> Callable[[int], Told]:
    if legacy.is_listed(gang):
        return legacy.telling(LISTED, gang, _env_of_2018(gang), all_containers=True)
    spec = gang.spec
    shared = _shared(spec, root=f"{gang.name}-scheduler-0")
    config = _mx_config(gang)

    def told(rank: int) -> Told:
        role, index = spec.role_of(rank)
        env = {**shared, "MX_CONFIG": config(rank), "DMLC_ROLE": role.name.lower()}
        if role.name == "Worker":
            # BytePS wants it.
            env["DMLC_WORKER_ID"] = str(index)
        return Told(name=kubeflow.rank_name(gang, rank), labels=_labels(gang, rank), env=env)

    return told


def _shared(spec: JobSpec, root: str) -> dict[str, str]:
    scheduler = spec.role("Scheduler")
    return {
        "DMLC_PS_ROOT_PORT": "0" if scheduler is None else str(kubeflow.port(MX, scheduler)),
        "DMLC_PS_ROOT_URI": "" if scheduler is None else root,
        "DMLC_NUM_SERVER": str(len(spec.ranks_of("Server"))),
        "DMLC_NUM_WORKER": str(len(spec.ranks_of("Worker"))),
        "DMLC_USE_KUBERNETES": "1",
    }


def _mx_config(gang: Gang) -> Callable[[int], str]:
    spec = gang.spec
    roles = sorted(spec.roles, key=lambda role: role.name.lower())
    # Written once for all ranks: a gang of a thousand has a thousand hosts in it.
    cluster = msgspec.Raw(
        msgspec.json.encode({role.name.lower(): _hosts(gang, role) for role in roles})
    )
    keys = {role.name.lower(): _tuner_key(role) for role in roles}

    def config(rank: int) -> str:
        role, index = spec.role_of(rank)
        task = {"type": role.name.lower(), "index": index}
        return msgspec.json.encode({"cluster": cluster, "labels": keys, "task": task}).decode()

    return config


def _hosts(gang: Gang, role: Role) -> list[dict[str, Any]]:
    port, name = kubeflow.port(MX, role), role.name.lower()
    return [{"url": f"{gang.name}-{name}-{i}", "port": port} for i in range(role.replicas)]


def _tuner_key(role: Role) -> str:
    annotations = role.template.get("metadata", {}).get("annotations") or {}
    return str(annotations.get(TUNER_KEY, "")) if isinstance(annotations, dict) else ""


def _labels(gang: Gang, rank: int) -> dict[str, str]:
    # The operator calls the servers masters, and people's tools may select by it.
    is_master = gang.spec.role_of(rank)[0].name == "Server"
    return kubeflow.labels(MX, gang, rank, master=is_master)


def services(gang: Gang) -> Sequence[Service]:
    if legacy.is_listed(gang):
        return legacy.services(LISTED, gang)
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


# ------------------------------------------------------------------ the list style of 2018

LISTED = legacy.Listed(
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


class MXChief(Struct, frozen=True, forbid_unknown_fields=True):
    replicaName: str = ""
    replicaIndex: int = 0


class MXChiefPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    chief: MXChief | None = None


class MXListSpec(legacy.Spec, frozen=True, forbid_unknown_fields=True, kw_only=True):
    replicaSpecs: list[MXEntry] = []
    mxImage: str = ""
    terminationPolicy: MXChiefPolicy | None = None
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


def _env_of_2018(gang: Gang) -> Callable[[int], dict[str, str]]:
    shared = _shared(gang.spec, root=legacy.name_of(gang, "Scheduler", 0))
    return lambda rank: {**shared, "DMLC_ROLE": gang.spec.role_of(rank)[0].name.lower()}


# The scheduler introduces workers to servers and ends with them. What tunes has its own roles.
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
    tell=tell,
    services=services,
    about=MX.about(
        "the Scheduler; where there is none, all Workers; of a tuning job the Tuner; "
        "in v1alpha1 whoever terminationPolicy names"
    ),
    duties=lambda spec: DUTIES,
)
