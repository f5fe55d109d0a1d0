"""Patches of a TrainJob for the pods of its runtime, from people and other controllers."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, to_builtins

from controlplane.kinds.manifest.pods import EnvVar
from controlplane.kinds.manifest.structure import shown
from controlplane.kinds.manifest.validation import Findings

PATCHES_MAX = 16
# Containers whose variables must be set in the job itself, so that there is only one place for them.
OWN_ENV = ("node", "dataset-initializer", "model-initializer")
# Lists that are merged by the names of their entries; every other list is replaced.
BY_NAME = ("volumes", "imagePullSecrets", "schedulingGates", "env", "volumeMounts")


class PatchPart(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Part of a patch; a field that was not given changes nothing."""


class ContainerPatch(PatchPart, frozen=True):
    name: str
    env: list[EnvVar] = []
    volumeMounts: list[dict[str, Any]] = []
    securityContext: Any = UNSET


class PodSpecPatch(PatchPart, frozen=True):
    serviceAccountName: Any = UNSET
    volumes: list[dict[str, Any]] = []
    initContainers: list[ContainerPatch] = []
    containers: list[ContainerPatch] = []
    imagePullSecrets: list[dict[str, Any]] = []
    securityContext: Any = UNSET
    nodeSelector: dict[str, str] = {}
    affinity: Any = UNSET
    tolerations: Any = UNSET
    schedulingGates: list[dict[str, Any]] = []
    terminationGracePeriodSeconds: Any = UNSET


class MetadataPatch(PatchPart, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplatePatch(PatchPart, frozen=True):
    metadata: MetadataPatch = MetadataPatch()
    spec: PodSpecPatch = PodSpecPatch()


class JobSpecPatch(PatchPart, frozen=True):
    template: PodTemplatePatch = PodTemplatePatch()


class JobTemplatePatch(PatchPart, frozen=True):
    metadata: MetadataPatch = MetadataPatch()
    spec: JobSpecPatch = JobSpecPatch()


class ReplicatedJobPatch(PatchPart, frozen=True):
    name: str
    template: JobTemplatePatch = JobTemplatePatch()


class JobSetSpecPatch(PatchPart, frozen=True):
    replicatedJobs: list[ReplicatedJobPatch] = []


class JobSetPatch(PatchPart, frozen=True):
    metadata: MetadataPatch = MetadataPatch()
    spec: JobSetSpecPatch = JobSetSpecPatch()


class RuntimeSpecPatch(PatchPart, frozen=True):
    template: JobSetPatch = JobSetPatch()


class RuntimePatch(PatchPart, frozen=True):
    manager: str
    time: Any = UNSET
    trainingRuntimeSpec: RuntimeSpecPatch = RuntimeSpecPatch()


def check_patches(patches: Sequence[RuntimePatch], jobs: Sequence[str], findings: Findings) -> None:
    """Check the patches of a TrainJob.

    `jobs` are the names of the runtime's replicated jobs, each of which has one container, `node`.
    """
    where = "spec.runtimePatches"
    if len(patches) > PATCHES_MAX:
        findings.invalid(where, f"{len(patches)} patches are more than {PATCHES_MAX}")
    managers = [patch.manager for patch in patches]
    for index, manager in enumerate(managers[:PATCHES_MAX]):
        if not manager:
            findings.required(f"{where}[{index}].manager", "name the manager of the patch")
        elif manager in managers[:index]:
            findings.duplicate(
                f"{where}[{index}].manager", f"{shown(manager)!r} has a patch already"
            )
        inside = f"{where}[{index}].trainingRuntimeSpec.template.spec.replicatedJobs"
        for n, job in enumerate(patches[index].trainingRuntimeSpec.template.spec.replicatedJobs):
            _check_job(f"{inside}[{n}]", job, jobs, findings)


def _check_job(
    where: str, job: ReplicatedJobPatch, jobs: Sequence[str], findings: Findings
) -> None:
    if job.name not in jobs:
        message = f"the runtime has no job {shown(job.name)!r}; it has: {', '.join(jobs)}"
        findings.invalid(f"{where}.name", message)
    pod, inside = job.template.spec.template.spec, f"{where}.template.spec.template.spec"
    for index, _ in enumerate(pod.initContainers):
        message = "the runtime has no init containers"
        findings.invalid(f"{inside}.initContainers[{index}].name", message)
    for index, container in enumerate(pod.containers):
        if container.name in OWN_ENV and container.env:
            message = "set these in spec.trainer.env"
            findings.forbidden(f"{inside}.containers[{index}].env", message)
        if container.name != "node":
            message = f"the runtime has no container {shown(container.name)!r}; it has: node"
            findings.invalid(f"{inside}.containers[{index}].name", message)


def patched(template: dict[str, Any], job: str, patches: Sequence[RuntimePatch]) -> dict[str, Any]:
    """Return a pod template with all patches for `job` applied in order."""
    for patch in patches:
        for each in patch.trainingRuntimeSpec.template.spec.replicatedJobs:
            if each.name == job:
                template = _merged(template, to_builtins(each.template.spec.template))
    return template


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        old = below.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            result[name] = _merged(old, value)
        elif name in ("containers", *BY_NAME) and isinstance(old, list):
            result[name] = _by_name(old, value)
        else:
            result[name] = value
    return result


def _by_name(below: Sequence[dict[str, Any]], above: Sequence[dict[str, Any]]) -> list[Any]:
    result = {each.get("name"): each for each in below}
    for each in above:
        name = each.get("name")
        result[name] = _merged(result[name], each) if name in result else each
    return list(result.values())
