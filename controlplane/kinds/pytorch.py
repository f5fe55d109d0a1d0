"""PyTorchJob: a master and workers, or workers alone."""

from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds.kubeflow import Roles, submission
from controlplane.kinds.manifest import Metadata, RunPolicy, Submission, parse, refuse
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, RestartRule


class PyTorchJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    pytorchReplicaSpecs: dict[str, ReplicaSpec]
    runPolicy: RunPolicy = RunPolicy()
    nprocPerNode: str | int = "auto"


class PyTorchJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1"]
    kind: Literal["PyTorchJob"]
    metadata: Metadata
    spec: PyTorchJobSpec
    status: Any = UNSET


ROLES = Roles(
    field="spec.pytorchReplicaSpecs",
    names=("Master", "Worker"),
    serving=(),
    container="pytorch",
    restart=RestartRule.ON_FAILURE,
)


def read(document: object) -> Submission:
    job = parse(document, PyTorchJob)
    roles = ROLES.read(job.spec.pytorchReplicaSpecs)
    master = next((role for role in roles if role.name == "Master"), None)
    if master is not None and master.replicas != 1:
        raise refuse(f"{ROLES.field}.Master.replicas", f"must be 1, not {master.replicas}")
    done_when = DoneWhen("Worker" if master is None else "Master")
    return submission("PyTorchJob", job.metadata, job.spec.runPolicy, roles, done_when)
