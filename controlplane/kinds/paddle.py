"""PaddleJob: workers alone (collective), or masters that serve parameters and workers."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.kinds import checking, kubeflow
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Duty, Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, JobSpec, RestartRule

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
# The address of a pod is known only to the pod itself, when it runs.
OWN_ADDRESS = "POD_IP_DUMMY"
ELASTIC = "spec.elasticPolicy"


class PaddleElasticPolicy(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Taken, defaulted and kept; the operator never did anything with it either."""

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


def tell(gang: Gang) -> Callable[[int], Told]:
    spec = gang.spec
    # With masters there is a parameter server; without, the ranks are equals.
    serves = spec.role("Master") is not None
    meeting = "Master" if serves else "Worker"
    port = kubeflow.port(PADDLE, spec.role(meeting))
    shared = {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": gang.name,
        "PADDLE_NNODES": str(spec.size),
    }

    def told(rank: int) -> Told:
        role, index = spec.role_of(rank)
        is_meeting_point = role.name == meeting and index == 0
        host = f"$({OWN_ADDRESS})" if is_meeting_point else f"{gang.name}-{meeting.lower()}-0"
        env = {**shared, "PADDLE_MASTER": f"{host}:{port}"}
        if serves:
            env["PADDLE_SERVER_NUM" if role.name == "Master" else "PADDLE_TRAINER_NUM"] = "1"
        return Told(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env=env,
            env_from_pod={OWN_ADDRESS: "status.podIP"} if is_meeting_point else {},
        )

    return told


def _labels(gang: Gang, rank: int) -> dict[str, str]:
    is_master = gang.spec.role_of(rank)[0].name == "Master"
    return kubeflow.labels(PADDLE, gang, rank, master=is_master)


def services(gang: Gang) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


def duties(spec: JobSpec) -> dict[str, Duty]:
    """Masters hold the parameters for the workers, where there are workers."""
    serving = bool(spec.ranks_of("Worker"))
    return {
        "Master": Duty.SERVE_PARAMETERS if serving else Duty.COMPUTE,
        "Worker": Duty.COMPUTE,
    }


KIND = Kind(
    name="PaddleJob",
    forms=(Form("kubeflow.org/v1", PaddleJob, read, write),),
    tell=tell,
    services=services,
    about=PADDLE.about("the Masters; where there are none, all Workers"),
    duties=duties,
)
