"""XGBoostJob: a master that tracks the workers; LightGBM jobs come in the same form."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds import conditions, kubeflow
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import CleanPods, DoneWhen, RestartRule

XGB = kubeflow.Framework(
    kind="XGBoostJob",
    field="xgbReplicaSpecs",
    roles=("Master", "Worker"),
    container="xgboost",
    port_name="xgboostjob-port",
    port=9999,
    restart=RestartRule.NEVER,
    operator="xgboostjob-controller",
)
V1 = "kubeflow.org/v1"
# Its own operator had a group of its own, and the run policy in `spec` itself.
OLDER = ("xgboostjob.kubeflow.org/v1", "xgboostjob.kubeflow.org/v1alpha1")


class XGBoostJobSpec(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    xgbReplicaSpecs: dict[str, ReplicaSpec] | None = None
    runPolicy: RunPolicy = RunPolicy()


class XGBoostJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal[
        "kubeflow.org/v1", "xgboostjob.kubeflow.org/v1", "xgboostjob.kubeflow.org/v1alpha1"
    ]
    kind: Literal["XGBoostJob"]
    metadata: Metadata
    spec: XGBoostJobSpec
    status: Any = UNSET


def read(job: XGBoostJob, findings: Findings) -> Submission:
    given = job.spec.xgbReplicaSpecs
    # An empty map lacks its Master only; a map that is missing is named as well.
    roles = kubeflow.read_roles(XGB, given, findings) if given != {} else ()
    if not any(key.lower() == "master" for key in given or ()):
        findings.required(f"{XGB.path}[Master]", "a master is needed to decide the job")
    kubeflow.require_one(XGB, "Master", given, findings)
    policy, flat = kubeflow.run_policy(job.spec, findings)
    return kubeflow.submission(
        XGB,
        job.apiVersion,
        job.metadata,
        policy,
        roles,
        DoneWhen("Master"),
        findings,
        flat=flat,
        # Until 2022 all pods were deleted.
        clean=CleanPods.NONE if job.apiVersion == V1 else CleanPods.ALL,
    )


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(XGB, job)


def write_flat(job: Submission) -> dict[str, Any]:
    return kubeflow.write_flat(XGB, job)


def tell(gang: Gang) -> Callable[[int], Told]:
    spec = gang.spec
    workers = spec.role("Worker")
    shared = {
        "MASTER_PORT": str(kubeflow.port(XGB, spec.role("Master"))),
        "MASTER_ADDR": f"{gang.name}-master-0",
        "WORLD_SIZE": str(spec.size),
        "PYTHONUNBUFFERED": "1",
    }
    if spec.size > 1 and workers is not None:
        # LightGBM wants to know all workers.
        shared["WORKER_PORT"] = str(kubeflow.port(XGB, workers))
        names = (f"{gang.name}-worker-{i}" for i in range(workers.replicas))
        shared["WORKER_ADDRS"] = ",".join(names)

    def told(rank: int) -> Told:
        return Told(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            # The master counts first, so a rank's number is its rank.
            env={**shared, "RANK": str(rank)},
        )

    return told


def _labels(gang: Gang, rank: int) -> dict[str, str]:
    is_master = gang.spec.role_of(rank)[0].name == "Master"
    return kubeflow.labels(XGB, gang, rank, master=is_master)


def services(gang: Gang) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


# The operator says that a job ran even if it ended before anybody saw it run.
_status = conditions.styled(conditions.Style(runs_first=True))

KIND = Kind(
    name="XGBoostJob",
    forms=(
        Form(V1, XGBoostJob, read, write, _status),
        *(Form(version, XGBoostJob, read, write_flat, _status) for version in OLDER),
    ),
    tell=tell,
    services=services,
    about=XGB.about("the Master"),
)
