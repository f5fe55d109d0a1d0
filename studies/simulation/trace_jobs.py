"""A row of a trace as a job submission."""

from collections.abc import Set
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.model.commands import SubmitJob
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role, Scheduling
from studies.simulation.hardware import TraceHardware
from studies.whatif.clusters import StudyCluster
from studies.whatif.scenario_parts import Checkpoints
from studies.workloads.shares import Demand, Part, demand
from studies.workloads.trace import Trace

# The most GPUs of a rank; a larger part of a pool becomes several ranks.
RANK_GPUS_MAX = 1_024
WORKER = "Worker"
REST = "Rest"
SHARING = "Sharing"
# A finished job is removed at once: the recorder has its figures by then.
FORGET = 0.0
# Jobs of a study restart without limit: a trace records how long a job ran, so it runs until it
# has. The delays of the cluster define what a restart costs.
PERSISTENT = RestartPolicy(limit=None, backoff_s_first=0.0, backoff_s_max=0.0)
START_TIMEOUT_S = 10 * 365 * 86_400.0


class Submissions:
    """Build the command for a row when it is needed.

    Commands have no id, so the engine keeps no receipts for retries that never come.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: StudyCluster,
        queues: dict[str, str],
        recorded_on: TraceHardware | None = None,
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
        """Return the command that submits the job of a row."""
        queue = self._queues[self._queue_of[row]] if self._queue_of else "default"
        priority = self._priorities[row] if self._priorities else 0
        asked = demand(self._gpus[row], self._shares[row] if self._shares else "")
        spec = _plain(self._node_gpus, asked, queue, priority)
        asks = Scheduling(estimate_s=self._estimates[row])
        spec = replace(spec, hints=hints_of(self._workload(row, asked)), scheduling=asks)
        return SubmitJob(job=str(row), namespace="study", name=f"j{row}", spec=spec)

    def _workload(self, row: int, asked: Demand) -> Workload:
        """Return the recorded duration of a job, or its training if the model is known."""
        duration_s = self._durations[row]
        # The jobs that shared its GPUs are not recorded, so such a job keeps its recorded duration.
        if not self._models or self._recorded_on is None or asked.parts:
            return Workload(duration_s)
        model, plan = self._models[row], self._checkpoints
        training = self._recorded_on.training(model, asked.whole, duration_s, plan)
        return Workload(duration_s, training=training)


# Cached: the result is the same for every job of one size, queue and priority.
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


def _estimates(trace: Trace) -> list[float]:
    """Return the estimates for the scheduler; the true duration where there is none."""
    estimates = trace.duration if trace.estimate is None else trace.estimate
    known: list[float] = np.where(np.isnan(estimates), trace.duration, estimates).tolist()
    return known


def _roles(gpus: int, node_gpus: int) -> tuple[Role, ...]:
    """Return the roles of a gang: whole nodes, and one rank with the remaining GPUs."""
    size = min(node_gpus, RANK_GPUS_MAX)
    whole, rest = divmod(gpus, size)
    if whole == 0:
        return (Role(name=WORKER, gpus=rest),)
    workers = Role(name=WORKER, replicas=whole, gpus=size)
    return (workers, Role(name=REST, gpus=rest)) if rest else (workers,)


def _sharing(name: str, part: Part) -> Role:
    """Return the role of ranks that share devices."""
    return Role(
        name=name, replicas=part.ranks, gpu_share=part.share, gpu_memory_mib=part.memory_mib
    )


def queue_names(trace: Trace) -> dict[str, str]:
    """Return the trace's queues with names that the control plane accepts."""
    return labels_of(set(trace.labels.get("queue", ())))


def labels_of(queues: Set[str]) -> dict[str, str]:
    """Return for each queue a unique name that is a valid Kubernetes label."""
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
