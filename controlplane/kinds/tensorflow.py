"""TFJob: chief, master, workers, parameter servers, evaluator."""

from typing import Any, Literal

from msgspec import UNSET, Struct

from controlplane.kinds.kubeflow import Roles, submission
from controlplane.kinds.manifest import Metadata, RunPolicy, Submission, parse, refuse
from controlplane.kinds.pods import ReplicaSpec
from controlplane.model import DoneWhen, RestartRule


class TFJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    tfReplicaSpecs: dict[str, ReplicaSpec]
    runPolicy: RunPolicy = RunPolicy()
    successPolicy: Literal["", "AllWorkers"] = ""
    enableDynamicWorker: bool = False


class TFJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["kubeflow.org/v1"]
    kind: Literal["TFJob"]
    metadata: Metadata
    spec: TFJobSpec
    status: Any = UNSET


# Parameter servers and evaluators serve the others until the job is over.
ROLES = Roles(
    field="spec.tfReplicaSpecs",
    names=("Chief", "Master", "Worker", "PS", "Evaluator"),
    serving=("PS", "Evaluator"),
    container="tensorflow",
    restart=RestartRule.NEVER,
)


def read(document: object) -> Submission:
    job = parse(document, TFJob)
    roles = ROLES.read(job.spec.tfReplicaSpecs)
    names = [role.name for role in roles]
    if "Chief" in names and "Master" in names:
        raise refuse(ROLES.field, "Chief and Master are the same role; give one of them")
    return submission("TFJob", job.metadata, job.spec.runPolicy, roles, _done_when(job.spec, names))


def _done_when(spec: TFJobSpec, names: list[str]) -> DoneWhen:
    for chief in ("Chief", "Master"):
        if chief in names:
            return DoneWhen(chief)
    if "Worker" not in names:
        raise refuse(ROLES.field, "a Chief, Master or Worker is needed to decide the job")
    return DoneWhen("Worker", first=spec.successPolicy != "AllWorkers")
