"""A row of a trace as the job that a person would submit."""

from collections.abc import Set
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from controlplane.commands import SubmitJob
from controlplane.model import DoneWhen, JobSpec, RestartPolicy, Role, Scheduling, Workload
from studies.clusters import StudyCluster
from studies.hardware import Recorded
from studies.scenario_parts import Checkpoints
from studies.workloads.shares import Demand, Part, demand
from studies.workloads.trace import Trace

# A rank has at most so many GPUs; a larger part of a pool is several ranks.
RANK_GPUS_MAX = 1_024
WORKER = "Worker"
REST = "Rest"
SHARING = "Sharing"
# A finished job is forgotten at once: what a study wants to know of it, it has noted by then.
FORGET = 0.0
# In a study nobody gives up: a trace says how long a job ran, so it runs until it has. What a
# restart costs is said by the cluster's delays.
PERSISTENT = RestartPolicy(limit=None, backoff_s_first=0.0, backoff_s_max=0.0)
START_TIMEOUT_S = 10 * 365 * 86_400.0


class Submissions:
    """Makes the command for a row, at the moment that it is needed.

    Commands carry no id, so the engine keeps no receipts for people who will never ask again.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: StudyCluster,
        queues: dict[str, str],
        recorded_on: Recorded | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._node_gpus = cluster.node_gpus
        self._queues = queues
        self._recorded_on = recorded_on
        self._checkpoints = checkpoints or Checkpoints()
        self._durations: list[float] = trace.duration.tolist()
        self._estimates = _estimates(trace)
        self._gpus: list[float] = trace.gpus.tolist()
        self._shares = trace.labels.get("shares", ())
        self._priorities: list[int] = [] if trace.priority is None else trace.priority.tolist()
        self._queue_of = trace.labels.get("queue", ())
        self._models = trace.labels.get("model", ())

    def of_row(self, row: int) -> SubmitJob:
        queue = self._queues[self._queue_of[row]] if self._queue_of else "default"
        priority = self._priorities[row] if self._priorities else 0
        asked = demand(self._gpus[row], self._shares[row] if self._shares else "")
        spec = _plain(self._node_gpus, asked, queue, priority)
        spec = _planned(spec, self._durations[row], self._estimates[row])
        # With whom a job shared its GPUs when it was recorded is not known, so it keeps its duration.
        if self._models and self._recorded_on is not None and not asked.parts:
            model = self._models[row]
            spec = _at_its_own_pace(spec, model, asked.whole, self._recorded_on, self._checkpoints)
        return SubmitJob(job=str(row), namespace="study", name=f"j{row}", spec=spec)


# The same for every job of a size, a queue and a priority.
@lru_cache(maxsize=65_536)
def _plain(node_gpus: int, asked: Demand, queue: str, priority: int) -> JobSpec:
    roles = _roles(asked.whole, node_gpus) if asked.whole or not asked.parts else ()
    roles += tuple(_sharing(f"{SHARING}{number}", part) for number, part in enumerate(asked.parts))
    return JobSpec(
        roles=roles,
        done_when=DoneWhen(roles[0].name),
        queue=queue,
        priority=priority,
        restart=PERSISTENT,
        ttl_s=FORGET,
        start_timeout_s=START_TIMEOUT_S,
    )


def _planned(spec: JobSpec, duration_s: float, estimate_s: float) -> JobSpec:
    """The spec with how long the job will run, and how long the scheduler believes it will."""
    asks = Scheduling(estimate_s=estimate_s)
    return replace(spec, workload=Workload(duration_s), scheduling=asks)


def _at_its_own_pace(
    spec: JobSpec, model: str, gpus: int, recorded_on: Recorded, plan: Checkpoints
) -> JobSpec:
    """The job as steps, if what it trains is known."""
    work = spec.workload
    training = recorded_on.training(model, gpus, work.duration_s, plan)
    return spec if training is None else replace(spec, workload=replace(work, training=training))


def _estimates(trace: Trace) -> list[float]:
    """What the scheduler may know; where nobody said anything, the truth."""
    said = trace.duration if trace.estimate is None else trace.estimate
    known: list[float] = np.where(np.isnan(said), trace.duration, said).tolist()
    return known


def _roles(gpus: int, node_gpus: int) -> tuple[Role, ...]:
    """The gang of a job: whole nodes, and one rank with what is left."""
    size = min(node_gpus, RANK_GPUS_MAX)
    whole, rest = divmod(gpus, size)
    if whole == 0:
        return (Role(name=WORKER, gpus=rest),)
    workers = Role(name=WORKER, replicas=whole, gpus=size)
    return (workers, Role(name=REST, gpus=rest)) if rest else (workers,)


def _sharing(name: str, part: Part) -> Role:
    """Ranks that share devices."""
    return Role(
        name=name, replicas=part.ranks, gpu_share=part.share, gpu_memory_mib=part.memory_mib
    )


def queue_names(trace: Trace) -> dict[str, str]:
    """The trace's queues with names that the control plane takes."""
    return labels_of(set(trace.labels.get("queue", ())))


def labels_of(queues: Set[str]) -> dict[str, str]:
    """For each queue a name of its own that Kubernetes would take too."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for queue in sorted(queues):
        label = _label(queue)
        unique, number = label, 2
        while unique in taken:
            unique, number = f"{label[:50]}-{number}", number + 1
        taken.add(unique)
        names[queue] = unique
    return names


def _label(text: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower()).strip("-")
    if not kept:
        return "default"
    return (kept if kept[0].isalpha() else f"q-{kept}")[:56].rstrip("-")
