"""`muster submit tfjob ...`: a manifest from flags, with the flag names that arena's users know.

The manifest is the one a person would write by hand; `--dry-run -o yaml` shows it.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from controlplane.kinds.manifest.annotations import QUEUE_ANNOTATION
from controlplane.kinds.manifest.manifest import PRIORITY_ANNOTATION, PRIORITY_CLASSES
from controlplane.model.resources import SUPPLIES_ANNOTATION

API_VERSION = "kubeflow.org/v1"
GPU = "nvidia.com/gpu"
SHARED_MEMORY = "dshm"

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resources:
    gpus: int = 0
    cpu: str = ""
    memory: str = ""

    def limits(self) -> dict[str, Any]:
        asked = {"cpu": self.cpu, "memory": self.memory, GPU: self.gpus}
        return {name: value for name, value in asked.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags that all three kinds take."""

    name: str
    namespace: str
    image: str
    workers: int
    command: tuple[str, ...]
    worker: Resources
    queue: str = ""
    priority: str = ""
    retry: int = 0
    running_timeout_s: int | None = None
    ttl_s: int | None = None
    clean_task_policy: str = ""
    suspend: bool = False
    working_dir: str = ""
    share_memory: str = ""
    image_pull_policy: str = ""
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    selector: dict[str, str] = field(default_factory=dict)
    # Volume claim -> mount path.
    data: dict[str, str] = field(default_factory=dict)
    # Settings that have no field in these manifests, as in the native form.
    supplies: Manifest = field(default_factory=dict)

    @property
    def claims(self) -> dict[str, str]:
        """The claims that the pod template mounts itself."""
        return {} if "data" in self.supplies else self.data


def tfjob(
    flags: Flags,
    *,
    ps: int = 0,
    ps_image: str = "",
    ps_resources: Resources | None = None,
    chief: bool = False,
    evaluator: bool = False,
    all_workers: bool = False,
) -> Manifest:
    worker = _role(flags, "tensorflow", flags.workers, flags.worker)
    roles = {"Worker": worker} if flags.workers else {}
    if chief:
        roles = {"Chief": _role(flags, "tensorflow", 1, flags.worker), **roles}
    if ps:
        asked = ps_resources or Resources()
        roles["PS"] = _role(flags, "tensorflow", ps, asked, image=ps_image)
    if evaluator:
        roles["Evaluator"] = _role(flags, "tensorflow", 1, Resources())
    spec: Manifest = {"runPolicy": _run_policy(flags), "tfReplicaSpecs": roles}
    if all_workers:
        spec["successPolicy"] = "AllWorkers"
    return _manifest("TFJob", flags, spec)


def pytorchjob(flags: Flags, *, nproc_per_node: str = "") -> Manifest:
    """Return a PyTorchJob; as with arena, the number of workers includes the master."""
    roles = {"Master": _role(flags, "pytorch", 1, flags.worker)}
    if flags.workers > 1:
        roles["Worker"] = _role(flags, "pytorch", flags.workers - 1, flags.worker)
    spec: Manifest = {"runPolicy": _run_policy(flags), "pytorchReplicaSpecs": roles}
    if nproc_per_node:
        spec["nprocPerNode"] = nproc_per_node
    return _manifest("PyTorchJob", flags, spec)


def mpijob(flags: Flags) -> Manifest:
    """Return an MPIJob: the launcher runs the command and starts processes on the workers."""
    launcher = _role(flags, "mpi", 1, Resources())
    worker = _role(flags, "mpi", flags.workers, flags.worker, command=())
    return _manifest(
        "MPIJob",
        flags,
        {
            "slotsPerWorker": max(1, flags.worker.gpus),
            "runPolicy": _run_policy(flags),
            "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker},
        },
    )


def _manifest(kind: str, flags: Flags, spec: Manifest) -> Manifest:
    annotations = dict(flags.annotations)
    if flags.queue:
        annotations.setdefault(QUEUE_ANNOTATION, flags.queue)
    if flags.priority and flags.priority not in PRIORITY_CLASSES:
        annotations.setdefault(PRIORITY_ANNOTATION, flags.priority)
    if flags.supplies:
        annotations.setdefault(SUPPLIES_ANNOTATION, json.dumps(flags.supplies, sort_keys=True))
    metadata = {"name": flags.name, "namespace": flags.namespace}
    extra = {"labels": flags.labels, "annotations": annotations}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {**metadata, **{name: value for name, value in extra.items() if value}},
        "spec": spec,
    }


def _run_policy(flags: Flags) -> Manifest:
    policy: Manifest = {
        "cleanPodPolicy": flags.clean_task_policy or None,
        "backoffLimit": flags.retry,
        "activeDeadlineSeconds": flags.running_timeout_s,
        "ttlSecondsAfterFinished": flags.ttl_s,
        "suspend": flags.suspend or None,
    }
    if flags.priority in PRIORITY_CLASSES and flags.priority:
        policy["schedulingPolicy"] = {"priorityClass": flags.priority}
    return {name: value for name, value in policy.items() if value is not None}


def _role(
    flags: Flags,
    container: str,
    replicas: int,
    resources: Resources,
    *,
    image: str = "",
    command: tuple[str, ...] | None = None,
) -> Manifest:
    main: Manifest = {
        "name": container,
        "image": image or flags.image,
        "imagePullPolicy": flags.image_pull_policy,
        "workingDir": flags.working_dir,
        "command": list(flags.command if command is None else command),
        "env": [{"name": name, "value": value} for name, value in flags.env.items()],
        "resources": {"limits": limits} if (limits := resources.limits()) else {},
        "volumeMounts": _mounts(flags),
    }
    pod: Manifest = {
        "containers": [{name: value for name, value in main.items() if value}],
        "nodeSelector": flags.selector,
        "volumes": _volumes(flags),
    }
    # With Never a job would fail when its node fails; OnFailure without retries does not do that.
    return {
        "replicas": replicas,
        "restartPolicy": "OnFailure",
        "template": {"spec": {name: value for name, value in pod.items() if value}},
    }


def _mounts(flags: Flags) -> list[Manifest]:
    mounts = [{"name": claim, "mountPath": path} for claim, path in flags.claims.items()]
    shared = [{"name": SHARED_MEMORY, "mountPath": "/dev/shm"}] if flags.share_memory else []
    return mounts + shared


def _volumes(flags: Flags) -> list[Manifest]:
    volumes: list[Manifest] = [
        {"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in flags.claims
    ]
    if flags.share_memory:
        memory = {"medium": "Memory", "sizeLimit": flags.share_memory}
        volumes.append({"name": SHARED_MEMORY, "emptyDir": memory})
    return volumes
