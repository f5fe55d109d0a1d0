"""TrainJob, of the Kubeflow Trainer: a runtime by its name, and what to train on so many nodes."""

import re
from typing import Any, Literal

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.errors import Problem, Rejected
from controlplane.kinds import trainer_told as told
from controlplane.kinds.checking import RANKS_MAX, SECONDS_MAX, check_choice, check_range
from controlplane.kinds.findings import Findings
from controlplane.kinds.kind import (
    About,
    Duty,
    Form,
    Kind,
    Submission,
    launched_duties,
    usual_duties,
)
from controlplane.kinds.kubeflow import check_gang
from controlplane.kinds.manifest import Metadata, RunPolicy, policy_of, written_metadata
from controlplane.kinds.mpi_jobs import SLOTS_MAX
from controlplane.kinds.pods import (
    Container,
    EnvVar,
    PodSpec,
    PodTemplate,
    ReplicaSpec,
    Resources,
    role_of,
)
from controlplane.kinds.structure import shown
from controlplane.kinds.trainer_patches import RuntimePatch, check_patches, patched
from controlplane.kinds.trainer_runtimes import LAUNCHER, NODE, PORT, RESERVED, RUNTIMES, Runtime
from controlplane.kinds.trainer_status import status
from controlplane.model import DoneWhen, JobSpec, RestartRule, Role

VERSION = "trainer.kubeflow.org/v1alpha1"
GROUP = "trainer.kubeflow.org"
RUNTIME_KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
OURS = "trainer.kubeflow.org/trainjob-controller"
MANAGERS = (OURS, "kueue.x-k8s.io/multikueue")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")


class Part(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Part of a manifest; what was not given is not written back either."""


class RuntimeRef(Part, frozen=True):
    name: str
    apiGroup: str = GROUP
    kind: str = RUNTIME_KINDS[0]


class Source(Part, frozen=True):
    storageUri: str = ""
    env: list[EnvVar] = []
    secretRef: Any = UNSET


class Initializer(Part, frozen=True):
    dataset: Source | None = None
    model: Source | None = None


class Trainer(Part, frozen=True):
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    numNodes: int = 1
    resourcesPerNode: Resources = Resources()
    # Until version 2.1 it could be a word as well.
    numProcPerNode: int | Literal["auto", "cpu", "gpu"] | None = None


class TrainJobSpec(Struct, frozen=True, forbid_unknown_fields=True):
    runtimeRef: RuntimeRef
    initializer: Initializer | None = None
    trainer: Trainer = Trainer()
    runtimePatches: list[RuntimePatch] = []
    suspend: bool = False
    activeDeadlineSeconds: int | None = None
    managedBy: str = OURS


class TrainJob(Struct, frozen=True, forbid_unknown_fields=True):
    apiVersion: Literal["trainer.kubeflow.org/v1alpha1"]
    kind: Literal["TrainJob"]
    metadata: Metadata
    spec: TrainJobSpec
    status: Any = UNSET


def read(job: TrainJob, findings: Findings) -> Submission:
    spec = job.spec
    runtime = _runtime(spec.runtimeRef, findings)
    if runtime is None:
        return Submission(job.metadata.namespace, job.metadata.name, _NO_JOB)
    _check(job, runtime, findings)
    check_patches(spec.runtimePatches, _job_names(runtime), findings)
    # Of the policy nothing but its annotations is left to check.
    understood = policy_of(job.metadata, RunPolicy(), findings)
    understood.fields["active_deadline_s"] = spec.activeDeadlineSeconds
    # A job that the operator itself would run is ours to run.
    understood.fields["managed_by"] = "" if spec.managedBy == OURS else spec.managedBy
    roles = tuple(
        replace(role, template=patched(role.template, role.name, spec.runtimePatches))
        for role in _roles(spec.trainer, runtime, findings)
    )
    read_as = JobSpec(
        kind="TrainJob",
        version=VERSION,
        roles=roles,
        done_when=DoneWhen(LAUNCHER if runtime.policy == "mpi" else NODE),
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
        options={**understood.options, **_options(spec)},
        **understood.fields,
    )
    check_gang("spec.trainer.numNodes", job.metadata, read_as, findings)
    return Submission(job.metadata.namespace, job.metadata.name, read_as, spec.suspend)


_NO_JOB = JobSpec(roles=(), done_when=DoneWhen(NODE))


def _options(spec: TrainJobSpec) -> dict[str, Any]:
    """What only this kind understands. The number of nodes is that of the ranks."""
    trainer = to_builtins(spec.trainer)
    trainer.pop("numNodes", None)
    reference = spec.runtimeRef
    options = {
        "runtimeRef": {
            "name": reference.name,
            "apiGroup": reference.apiGroup,
            "kind": reference.kind,
        },
        "trainer": trainer,
    }
    if spec.initializer is not None:
        options["initializer"] = to_builtins(spec.initializer)
    if spec.runtimePatches:
        options["runtimePatches"] = to_builtins(spec.runtimePatches)
    return options


# ------------------------------------------------------------------ what may be wrong


def _runtime(reference: RuntimeRef, findings: Findings) -> Runtime | None:
    where = "spec.runtimeRef"
    if reference.apiGroup != GROUP or reference.kind not in RUNTIME_KINDS:
        known = " or ".join(f"{kind}.{GROUP}" for kind in RUNTIME_KINDS)
        told = f"{shown(reference.kind)}.{shown(reference.apiGroup)} is no runtime; say {known}"
        findings.unsupported(f"{where}.kind", told)
    runtime = RUNTIMES.get(reference.name)
    if runtime is None:
        known = ", ".join(RUNTIMES)
        told = f"{shown(reference.name)!r} is no runtime that Muster can run; these are: {known}"
        findings.unsupported(f"{where}.name", told)
    return runtime


def _check(job: TrainJob, runtime: Runtime, findings: Findings) -> None:
    spec, trainer = job.spec, job.spec.trainer
    check_choice("spec.managedBy", spec.managedBy, MANAGERS, findings)
    deadline = spec.activeDeadlineSeconds
    check_range("spec.activeDeadlineSeconds", deadline, 1, SECONDS_MAX, findings)
    check_range("spec.trainer.numNodes", trainer.numNodes, 1, RANKS_MAX, findings)
    processes = trainer.numProcPerNode
    if isinstance(processes, int):
        check_range("spec.trainer.numProcPerNode", processes, 1, SLOTS_MAX, findings)
    elif isinstance(processes, str) and runtime.policy != "torch":
        told = f"{processes!r} means something to torchrun only; say a number"
        findings.invalid("spec.trainer.numProcPerNode", told)
    if not trainer.image and not runtime.image:
        findings.required("spec.trainer.image", "this runtime brings no image of its own")
    _check_env(trainer, runtime, findings)
    _check_sources(spec.initializer, findings)


def _check_env(trainer: Trainer, runtime: Runtime, findings: Findings) -> None:
    where, reserved = "spec.trainer.env", RESERVED[runtime.policy]
    taken = sorted({each.name for each in trainer.env if each.name in reserved})
    if runtime.policy == "xgboost":
        for index, each in enumerate(trainer.env):
            if each.name in reserved:
                findings.forbidden(f"{where}[{index}]", f"{each.name} is set by the runtime")
    elif taken:
        findings.invalid(where, f"{', '.join(taken)}: set by the runtime, and reserved")


def _check_sources(initializer: Initializer | None, findings: Findings) -> None:
    if initializer is None:
        return
    for name in ("dataset", "model"):
        source = getattr(initializer, name)
        if source is not None and source.storageUri and not _URI.fullmatch(source.storageUri):
            told = f"{shown(source.storageUri)!r} is no address such as s3://bucket/path"
            findings.invalid(f"spec.initializer.{name}.storageUri", told)
    findings.warn("spec.initializer is kept, but this runtime has no step that would fetch it")


# ------------------------------------------------------------------ roles


def _job_names(runtime: Runtime) -> tuple[str, ...]:
    """In the order of the runtime, which is also that of the ranks."""
    return (NODE, LAUNCHER) if runtime.policy == "mpi" else (NODE,)


def _roles(trainer: Trainer, runtime: Runtime, findings: Findings) -> tuple[Role, ...]:
    if runtime.policy != "mpi":
        return (_role(NODE, trainer, runtime, trainer.numNodes, findings),)
    others = trainer.numNodes - runtime.launcher_works
    waiting = replace(trainer, command=list(runtime.node_command), args=[])
    node = _role(NODE, waiting, runtime, others, findings)
    # What the launcher does not compute with, it does not hold.
    if not runtime.launcher_works:
        trainer = replace(trainer, resourcesPerNode=Resources())
    launcher = _role(LAUNCHER, trainer, runtime, 1, Findings())
    return (
        replace(node, serves=True),
        replace(launcher, starts_after=NODE if others > 0 else ""),
    )


def _role(name: str, trainer: Trainer, runtime: Runtime, replicas: int, findings: Findings) -> Role:
    fields = {**runtime.container, "ports": [] if runtime.policy == "mpi" else [_PORT]}
    container = Container(
        name=NODE,
        image=trainer.image or runtime.image,
        command=trainer.command,
        args=trainer.args,
        env=trainer.env,
        resources=trainer.resourcesPerNode,
        **{key: value for key, value in fields.items() if value},
    )
    template = PodTemplate(spec=PodSpec(containers=[container], **runtime.pod))
    scratch = Findings()
    role = role_of(
        "spec.trainer",
        name,
        ReplicaSpec(template=template, replicas=max(replicas, 0)),
        scratch,
        container=NODE,
        restart=RestartRule.ON_FAILURE,
    )
    for problem in scratch.problems:
        field = problem.field.replace(".template.spec.containers[0].resources", ".resourcesPerNode")
        # That an image is missing has been told in the words of this kind.
        if field != problem.field:
            findings.problems.append(Problem(problem.sort, field, problem.message))
    return role


_PORT = told.port(PORT)


# ------------------------------------------------------------------ back to a manifest


def write(job: Submission) -> dict[str, Any]:
    spec = job.spec
    trainer = spec.options.get("trainer")
    if not isinstance(trainer, dict) or not told.is_known(spec):
        shape = "a TrainJob has a trainer and a runtimeRef that names a runtime of Muster"
        raise Rejected("cannot_convert", shape, field="spec.options")
    written: dict[str, Any] = {
        **spec.options,
        "trainer": {**trainer, "numNodes": told.nodes(spec)},
        "suspend": job.suspended,
        "managedBy": spec.managed_by or OURS,
    }
    if spec.active_deadline_s is not None:
        written["activeDeadlineSeconds"] = int(spec.active_deadline_s)
    return {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": written_metadata(job),
        "spec": written,
    }


def duties(spec: JobSpec) -> dict[str, Duty]:
    """With MPI the launcher starts the program; it computes too unless its runtime says otherwise."""
    runtime = told.runtime_of(spec) if told.is_known(spec) else None
    if runtime is None or runtime.policy != "mpi":
        return usual_duties(spec)
    return launched_duties(spec, LAUNCHER, NODE, launcher_works=runtime.launcher_works)


KIND = Kind(
    name="TrainJob",
    forms=(Form(VERSION, TrainJob, read, write, status),),
    tell=told.tell,
    services=told.services,
    files=told.files,
    about=About(
        roles=(NODE, LAUNCHER),
        container=NODE,
        port=str(PORT),
        restart=RestartRule.ON_FAILURE.value,
        decides="all nodes; with MPI the launcher",
    ),
    duties=duties,
)
