"""PaddleJob: only workers (collective mode), or masters that serve parameters, and workers."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.kinds.kind import (
    Duty,
    Form,
    GangContext,
    Kind,
    RankEnvironment,
    Service,
    Submission,
)
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.manifest import checking
from controlplane.kinds.manifest.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import DoneWhen, JobSpec, RestartRule

PADDLE = kubeflow.Framework(
    kind="PaddleJob",
    field="paddleReplicaSpecs",
    roles=("Master", "Worker"),
    container="paddle",
    port_name="master",
    port=36543,
    restart=RestartRule.ON_FAILURE,
    operator="paddlejob-controller",
)
# A placeholder for the pod's own address, which is known only in the running pod.
OWN_ADDRESS = "POD_IP_DUMMY"
ELASTIC = "spec.elasticPolicy"


class PaddleElasticPolicy(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An elastic policy, which is defaulted and kept but not used; the operator ignores it too."""

    minReplicas: int | None = None
    maxReplicas: int | None = None
    maxRestarts: int | None = None
    metrics: list[dict[str, Any]] = []


class PaddleJobSpec(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    paddleReplicaSpecs: dict[str, ReplicaSpec] = {}
    runPolicy: RunPolicy = RunPolicy()
    elasticPolicy: PaddleElasticPolicy | None = None


class PaddleJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1"]
    kind: Literal["PaddleJob"]
    metadata: Metadata
    spec: PaddleJobSpec
    status: Any = UNSET


def read(job: PaddleJob, findings: Findings) -> Submission:
    spec = job.spec
    roles = kubeflow.read_roles(PADDLE, spec.paddleReplicaSpecs, findings)
    workers = next((role.replicas for role in roles if role.name == "Worker"), None)
    options: dict[str, Any] = {}
    if spec.elasticPolicy is not None:
        elastic = _with_limits(spec.elasticPolicy, workers, findings)
        options["elasticPolicy"] = to_builtins(elastic)
        findings.warn(f"{ELASTIC} has no effect on a PaddleJob; its size is fixed")
    policy, flat = kubeflow.run_policy(spec, findings)
    decider = "Master" if any(role.name == "Master" for role in roles) else "Worker"
    return kubeflow.submission(
        PADDLE,
        job.apiVersion,
        job.metadata,
        policy,
        roles,
        DoneWhen(decider),
        findings,
        options,
        flat=flat,
    )


def _with_limits(
    elastic: PaddleElasticPolicy, workers: int | None, findings: Findings
) -> PaddleElasticPolicy:
    for field in ("minReplicas", "maxReplicas", "maxRestarts"):
        value = getattr(elastic, field)
        checking.check_range(f"{ELASTIC}.{field}", value, 0, checking.BILLION, findings)
    least, most = elastic.minReplicas, elastic.maxReplicas
    fallback = workers if least is None and most is None else least or most
    return replace(
        elastic,
        minReplicas=fallback if least is None else least,
        maxReplicas=fallback if most is None else most,
    )


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(PADDLE, job)


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    spec = gang.spec
    # With masters the job runs in parameter server mode, without them in collective mode.
    serves = spec.role("Master") is not None
    meeting = "Master" if serves else "Worker"
    port = kubeflow.port_of(PADDLE, gang, meeting)
    shared = {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": gang.name,
        "PADDLE_NNODES": str(spec.size),
    }

    def environment(rank: int) -> RankEnvironment:
        role, index = spec.role_of(rank)
        is_meeting_point = role.name == meeting and index == 0
        host = f"$({OWN_ADDRESS})" if is_meeting_point else kubeflow.host_of(gang, meeting)
        env = {**shared, "PADDLE_MASTER": f"{host}:{port}"}
        if serves:
            env["PADDLE_SERVER_NUM" if role.name == "Master" else "PADDLE_TRAINER_NUM"] = "1"
        return RankEnvironment(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env=env,
            env_from_pod={OWN_ADDRESS: "status.podIP"} if is_meeting_point else {},
        )

    return environment


def _labels(gang: GangContext, rank: int) -> dict[str, str]:
    is_master = gang.spec.role_of(rank)[0].name == "Master"
    return kubeflow.labels(PADDLE, gang, rank, master=is_master)


def services(gang: GangContext) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


def duties(spec: JobSpec) -> dict[str, Duty]:
    """Return the duties by role: masters serve parameters if there are workers, else compute."""
    serving = bool(spec.ranks_of("Worker"))
    return {
        "Master": Duty.SERVE_PARAMETERS if serving else Duty.COMPUTE,
        "Worker": Duty.COMPUTE,
    }


KIND = Kind(
    name="PaddleJob",
    forms=(Form("kubeflow.org/v1", PaddleJob, read, write),),
    environments=environments,
    services=services,
    about=PADDLE.about("the Masters; where there are none, all Workers"),
    duties=duties,
)
