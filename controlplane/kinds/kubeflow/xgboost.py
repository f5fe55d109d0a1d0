"""XGBoostJob: a master with the tracker, and workers; LightGBM jobs use the same manifest."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds import conditions
from controlplane.kinds.kind import Form, GangContext, Kind, RankEnvironment, Service, Submission
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.manifest.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import CleanPods, DoneWhen, RestartRule

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
# The former XGBoost operator had its own API group, and the run policy's fields in `spec` itself.
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
    # For an empty map only the missing Master is reported; for a missing map, the map as well.
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
        # The older versions (until 2022) delete all pods by default.
        clean=CleanPods.NONE if job.apiVersion == V1 else CleanPods.ALL,
    )


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(XGB, job)


def write_flat(job: Submission) -> dict[str, Any]:
    return kubeflow.write_flat(XGB, job)


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    spec = gang.spec
    workers = spec.role("Worker")
    shared = {
        "MASTER_PORT": str(kubeflow.port_of(XGB, gang, "Master")),
        "MASTER_ADDR": kubeflow.host_of(gang, "Master"),
        "WORLD_SIZE": str(spec.size),
        "PYTHONUNBUFFERED": "1",
    }
    if spec.size > 1 and workers is not None:
        # LightGBM needs the addresses of all workers, which listen on one port.
        shared["WORKER_PORT"] = str(kubeflow.port_of(XGB, gang, "Worker"))
        hosts = (kubeflow.host_of(gang, "Worker", i) for i in range(workers.replicas))
        shared["WORKER_ADDRS"] = ",".join(hosts)

    def environment(rank: int) -> RankEnvironment:
        return RankEnvironment(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            # The master is rank 0, so Muster's rank is also XGBoost's.
            env={**shared, "RANK": str(rank)},
        )

    return environment


def _labels(gang: GangContext, rank: int) -> dict[str, str]:
    is_master = gang.spec.role_of(rank)[0].name == "Master"
    return kubeflow.labels(XGB, gang, rank, master=is_master)


def services(gang: GangContext) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


# The operator shows that a job ran even if the job ended before it was seen running.
_status = conditions.styled(conditions.Style(runs_first=True))

KIND = Kind(
    name="XGBoostJob",
    forms=(
        Form(V1, XGBoostJob, read, write, _status),
        *(Form(version, XGBoostJob, read, write_flat, _status) for version in OLDER),
    ),
    environments=environments,
    services=services,
    about=XGB.about("the Master"),
)
