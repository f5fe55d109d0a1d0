"""A gang of a thousand as Kubernetes documents, against deep copies of the template.

The baseline does what the operators do for each pod: a deep copy of its template, and the variables
appended to its containers, here with the same values handed to it for nothing. Ours reads the job,
computes the environment of each rank, and makes pods and services. Both are counted in CPU seconds.
"""

from copy import deepcopy
from statistics import median
from time import process_time
from typing import Any

from adapters.kubernetes.reconcile.plan import Plan, Ref, plan
from adapters.kubernetes.render.objects import Rendering
from controlplane.kinds.registry import kind_of, read_manifest
from controlplane.lifecycle.job import Job, begin, evolve
from controlplane.model import events as e
from controlplane.model.cluster import Slot

RANKS = 1_000
ROUNDS = 7
ROUNDS_QUICK = 3
FIELDS = {
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
}


def run(quick: bool) -> list[dict[str, Any]]:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    return [line for kind in FIELDS for line in compare(kind, rounds)]


def compare(kind: str, rounds: int) -> list[dict[str, Any]]:
    job = placed(kind)
    ours, copies, looks = [], [], []
    for _ in range(rounds + 1):
        made, seconds = timed(lambda: documents(job))
        ours.append(seconds)
        copies.append(timed(lambda: copied(job, made))[1])  # noqa: B023
        looks.append(look(job, made))
    # The first round only warms up.
    mine, theirs, quiet = (median(each[1:]) for each in (ours, copies, looks))
    ratio = median(b / a for a, b in zip(ours[1:], copies[1:], strict=True))
    return [
        line(f"render {kind}", 2 * RANKS / mine, 2 * RANKS / theirs, ratio, "documents/s", mine),
        line(
            f"look again at {kind}", RANKS / quiet, RANKS / theirs, theirs / quiet, "pods/s", quiet
        ),
    ]


def line(
    name: str, value: float, baseline: float, ratio: float, unit: str, seconds: float
) -> dict[str, Any]:
    return {
        "name": f"{name}, {RANKS} ranks",
        "value": round(value),
        "baseline": round(baseline),
        "ratio": round(ratio, 2),
        "target": None,
        "unit": unit,
        "note": f"{seconds * 1000:.0f} ms of CPU for the gang; baseline: deep copies of the template",
    }


def timed(work: Any) -> tuple[Any, float]:
    began = process_time()
    result = work()
    return result, process_time() - began


def documents(job: Job) -> list[dict[str, Any]]:
    rendering = Rendering(job, kind_of(job.spec))
    pods = [rendering.pod(rank) for rank in range(RANKS)]
    return [*rendering.services(), *pods]


def copied(job: Job, made: list[dict[str, Any]]) -> list[Any]:
    """Copy the template for each pod; the environments come from `made`, so only the copying is measured."""
    pods = []
    for document in made[RANKS:]:
        pod = deepcopy(job.spec.roles[0].template)
        for container, ours in zip(
            pod["spec"]["containers"], document["spec"]["containers"], strict=True
        ):
            container["env"] = [*container.get("env", []), *ours.get("env", [])]
        pods += [pod, deepcopy(made[0])]
    return pods


def look(job: Job, made: list[dict[str, Any]]) -> float:
    """A plan for a gang that runs and of which nothing has changed."""
    up = evolve(job, e.Recorded(3, 0.0, e.RanksStarted(job.id, 1, tuple(range(RANKS)))))
    observed = {Ref(each["kind"], each["metadata"]["name"]): each for each in made}
    planned, seconds = timed(
        lambda: plan(Rendering(up, kind_of(up.spec)), observed, lambda: ("", ""))
    )
    assert planned == Plan([], [], [], []), "nothing has changed"
    return float(seconds)


def placed(kind: str) -> Job:
    field, container = FIELDS[kind]
    env = [{"name": f"SETTING_{i}", "value": str(i)} for i in range(10)]
    resources = {"limits": {"nvidia.com/gpu": 1, "memory": "64Gi"}, "requests": {"cpu": "8"}}
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "shm", "mountPath": "/dev/shm"}]
    main = {
        "name": container,
        "image": "example.com/train:1",
        "command": ["python", "train.py"],
        "env": env,
        "resources": resources,
        "volumeMounts": mounts,
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    pod = {"containers": [main], "volumes": volumes, "nodeSelector": {"gpu": "a100"}}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "bench"},
        "spec": {field: {"Worker": {"replicas": RANKS, "template": {"spec": pod}}}},
    }
    submission = read_manifest(manifest)
    submitted = e.JobSubmitted("j1", submission.namespace, submission.name, submission.spec)
    job = begin(e.Recorded(1, 0.0, submitted))
    placement = tuple(Slot(f"node-{i // 8}", (i % 8,)) for i in range(RANKS))
    return evolve(job, e.Recorded(2, 0.0, e.GangPlaced("j1", 1, placement)))
