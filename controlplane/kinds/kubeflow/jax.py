"""JAXJob: equal workers, of which the first is the coordinator."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds.kind import Form, GangContext, Kind, RankEnvironment, Service, Submission
from controlplane.kinds.kubeflow import kubeflow
from controlplane.kinds.manifest.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.manifest.pods import ReplicaSpec
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import DoneWhen, RestartRule

JAX = kubeflow.Framework(
    kind="JAXJob",
    field="jaxReplicaSpecs",
    roles=("Worker",),
    container="jax",
    port_name="jaxjob-port",
    port=6666,
    restart=RestartRule.NEVER,
    operator="jaxjob-controller",
)


class JAXJobSpec(FlatPolicy, frozen=True, forbid_unknown_fields=True, kw_only=True):
    jaxReplicaSpecs: dict[str, ReplicaSpec] = {}
    runPolicy: RunPolicy = RunPolicy()


class JAXJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1"]
    kind: Literal["JAXJob"]
    metadata: Metadata
    spec: JAXJobSpec
    status: Any = UNSET


def read(job: JAXJob, findings: Findings) -> Submission:
    roles = kubeflow.read_roles(JAX, job.spec.jaxReplicaSpecs, findings)
    policy, flat = kubeflow.run_policy(job.spec, findings)
    return kubeflow.submission(
        JAX,
        job.apiVersion,
        job.metadata,
        policy,
        roles,
        DoneWhen("Worker"),
        findings,
        flat=flat,
    )


def write(job: Submission) -> dict[str, Any]:
    return kubeflow.write(JAX, job)


def environments(gang: GangContext) -> Callable[[int], RankEnvironment]:
    shared = {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_PORT": str(kubeflow.port_of(JAX, gang, "Worker")),
        "COORDINATOR_ADDRESS": kubeflow.host_of(gang, "Worker"),
        "NUM_PROCESSES": str(gang.spec.size),
    }

    def environment(rank: int) -> RankEnvironment:
        return RankEnvironment(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env={**shared, "PROCESS_ID": str(rank)},
        )

    return environment


def _labels(gang: GangContext, rank: int) -> dict[str, str]:
    return kubeflow.labels(JAX, gang, rank, master=rank == 0)


def services(gang: GangContext) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


KIND = Kind(
    name="JAXJob",
    forms=(Form("kubeflow.org/v1", JAXJob, read, write),),
    environments=environments,
    services=services,
    about=JAX.about("all Workers"),
)
