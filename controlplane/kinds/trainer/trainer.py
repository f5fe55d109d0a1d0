"""TrainJob of the Kubeflow Trainer: the name of a runtime, a number of nodes, and what they run."""

import re
from typing import Any, Literal

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import replace

from controlplane.kinds.kind import (
    About,
    Duty,
    Form,
    Kind,
    Submission,
    launched_duties,
    usual_duties,
)
from controlplane.kinds.kubeflow.kubeflow import check_gang
from controlplane.kinds.manifest.checking import RANKS_MAX, SECONDS_MAX, check_choice, check_range
from controlplane.kinds.manifest.manifest import Metadata, RunPolicy, policy_of, written_metadata
from controlplane.kinds.manifest.pods import (
    Container,
    EnvVar,
    PodSpec,
    PodTemplate,
    ReplicaSpec,
    Resources,
    role_of,
)
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.mpi.mpi_jobs import SLOTS_MAX
from controlplane.kinds.trainer import environment
from controlplane.kinds.trainer.patches import RuntimePatch, check_patches, patched
from controlplane.kinds.trainer.runtimes import LAUNCHER, NODE, PORT, RESERVED, RUNTIMES, Runtime
from controlplane.kinds.trainer.status import status
from controlplane.model.errors import Problem, Rejected
from controlplane.model.spec import DoneWhen, JobSpec, RestartRule, Role

VERSION = "trainer.kubeflow.org/v1alpha1"
GROUP = "trainer.kubeflow.org"
RUNTIME_KINDS = ("ClusterTrainingRuntime", "TrainingRuntime")
OURS = "trainer.kubeflow.org/trainjob-controller"
MANAGERS = (OURS, "kueue.x-k8s.io/multikueue")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")


class TrainJobPart(
    Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """Part of a manifest; a field that was not given is not written back."""


class RuntimeRef(TrainJobPart, frozen=True):
    name: str
    apiGroup: str = GROUP
    kind: str = RUNTIME_KINDS[0]


class Source(TrainJobPart, frozen=True):
    storageUri: str = ""
    env: list[EnvVar] = []
    secretRef: Any = UNSET


class Initializer(TrainJobPart, frozen=True):
    dataset: Source | None = None
    model: Source | None = None


class Trainer(TrainJobPart, frozen=True):
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    numNodes: int = 1
    resourcesPerNode: Resources = Resources()
    # Until version 2.1 a word was allowed too.
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
    # A TrainJob has no run policy; only the annotations are read.
    understood = policy_of(job.metadata, RunPolicy(), findings)
    understood.fields["active_deadline_s"] = spec.activeDeadlineSeconds
    # Muster runs the jobs that the operator itself would run.
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
    """Return the fields that only this kind understands, without the number of nodes.

    The roles have that number.
    """
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


# ------------------------------------------------------------------ validation


def _runtime(reference: RuntimeRef, findings: Findings) -> Runtime | None:
    where = "spec.runtimeRef"
    if reference.apiGroup != GROUP or reference.kind not in RUNTIME_KINDS:
        known = " or ".join(f"{kind}.{GROUP}" for kind in RUNTIME_KINDS)
        message = f"{shown(reference.kind)}.{shown(reference.apiGroup)} is no runtime; use {known}"
        findings.unsupported(f"{where}.kind", message)
    runtime = RUNTIMES.get(reference.name)
    if runtime is None:
        known = ", ".join(RUNTIMES)
        message = f"{shown(reference.name)!r} is no runtime that Muster can run; these are: {known}"
        findings.unsupported(f"{where}.name", message)
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
        message = f"{processes!r} is understood by torchrun only; use a number"
        findings.invalid("spec.trainer.numProcPerNode", message)
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
            message = f"{shown(source.storageUri)!r} is no address such as s3://bucket/path"
            findings.invalid(f"spec.initializer.{name}.storageUri", message)
    findings.warn("spec.initializer is kept, but this runtime has no step that would fetch it")


# ------------------------------------------------------------------ roles


def _job_names(runtime: Runtime) -> tuple[str, ...]:
    """Return the names of the runtime's replicated jobs, in the order of the ranks."""
    return (NODE, LAUNCHER) if runtime.policy == "mpi" else (NODE,)


def _roles(trainer: Trainer, runtime: Runtime, findings: Findings) -> tuple[Role, ...]:
    if runtime.policy != "mpi":
        return (_role(NODE, trainer, runtime, trainer.numNodes, findings),)
    others = trainer.numNodes - runtime.launcher_works
    waiting = replace(trainer, command=list(runtime.node_command), args=[])
    node = _role(NODE, waiting, runtime, others, findings)
    # A launcher that does not compute gets no resources.
    if not runtime.launcher_works:
        trainer = replace(trainer, resourcesPerNode=Resources())
    launcher = _role(LAUNCHER, trainer, runtime, 1, Findings())
    return (
        replace(node, is_server=True),
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
        # A missing image is already reported with the field of this kind.
        if field != problem.field:
            findings.problems.append(Problem(problem.sort, field, problem.message))
    return role


_PORT = environment.port(PORT)


# ------------------------------------------------------------------ writing


def write(job: Submission) -> dict[str, Any]:
    spec = job.spec
    trainer = spec.options.get("trainer")
    if not isinstance(trainer, dict) or not environment.is_known(spec):
        shape = "a TrainJob has a trainer and a runtimeRef that names a runtime of Muster"
        raise Rejected("cannot_convert", shape, field="spec.options")
    written: dict[str, Any] = {
        **spec.options,
        "trainer": {**trainer, "numNodes": environment.nodes(spec)},
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
    """Return the duties by role.

    With MPI the launcher starts the program, and computes too if its runtime has `launcher_works`.
    """
    runtime = environment.runtime_of(spec) if environment.is_known(spec) else None
    if runtime is None or runtime.policy != "mpi":
        return usual_duties(spec)
    return launched_duties(spec, LAUNCHER, NODE, launcher_works=runtime.launcher_works)


KIND = Kind(
    name="TrainJob",
    forms=(Form(VERSION, TrainJob, read, write, status),),
    environments=environment.environments,
    services=environment.services,
    files=environment.files,
    about=About(
        roles=(NODE, LAUNCHER),
        container=NODE,
        port=str(PORT),
        restart=RestartRule.ON_FAILURE.value,
        decides="all nodes; with MPI the launcher",
    ),
    duties=duties,
)
