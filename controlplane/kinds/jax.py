"""JAXJob: processes that meet at the first of them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds import kubeflow
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import Form, Gang, Kind, Service, Submission, Told
from controlplane.kinds.manifest import FlatPolicy, Metadata, RunPolicy
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, RestartRule

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


def tell(gang: Gang) -> Callable[[int], Told]:
    shared = {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_PORT": str(kubeflow.port(JAX, gang.spec.role("Worker"))),
        "COORDINATOR_ADDRESS": f"{gang.name}-worker-0",
        "NUM_PROCESSES": str(gang.spec.size),
    }

    def told(rank: int) -> Told:
        return Told(
            name=kubeflow.rank_name(gang, rank),
            labels=_labels(gang, rank),
            env={**shared, "PROCESS_ID": str(rank)},
        )

    return told


def _labels(gang: Gang, rank: int) -> dict[str, str]:
    return kubeflow.labels(JAX, gang, rank, master=rank == 0)


def services(gang: Gang) -> Sequence[Service]:
    return kubeflow.one_service_each(gang, lambda rank: _labels(gang, rank))


KIND = Kind(
    name="JAXJob",
    forms=(Form("kubeflow.org/v1", JAXJob, read, write),),
    tell=tell,
    services=services,
    about=JAX.about("all Workers"),
)
