"""Planned failures: a rank that exits because its recipe is invalid, or at random. Pure."""

from collections.abc import Mapping

from adapters.simulated_cluster.feasibility import too_small
from adapters.simulated_cluster.training import problem_of
from adapters.simulated_cluster.workload import Workload
from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.job import Job
from simulator.faults import Preset
from simulator.faults.job_failures import job_failure
from simulator.machine.gang import Part, PlannedFailure
from simulator.network.topology import NodeModel

# Exit codes of a rank whose training the simulator cannot model, and of one out of memory.
UNUSABLE = 2
OUT_OF_MEMORY = 1


def planned_failure(
    job: Job,
    work: Workload,
    attempt: Attempt,
    ranks: tuple[int, ...],
    parts: tuple[Part, ...],
    preset: Preset | None,
    seed: int,
    nodes: Mapping[str, NodeModel],
) -> PlannedFailure | None:
    """Return the failure of one of these ranks, in seconds from now; None if none is planned."""
    failure = _failure_from_start(job, work, attempt, ranks, preset, seed, nodes)
    if failure is None:
        return None
    done_s = max((part.elapsed_s or 0.0 for part in parts), default=0.0)
    return failure._replace(after_s=max(0.0, failure.after_s - done_s)) if done_s else failure


def _failure_from_start(
    job: Job,
    work: Workload,
    attempt: Attempt,
    ranks: tuple[int, ...],
    preset: Preset | None,
    seed: int,
    nodes: Mapping[str, NodeModel],
) -> PlannedFailure | None:
    """Return the failure, in seconds from the start of the work.

    An invalid recipe fails at once; otherwise the fault preset of the cluster may plan a failure.
    """
    wrong = problem_of(job.spec, work.training)
    if wrong is not None:
        message = f"workload.training.{wrong}"
        return PlannedFailure(ranks[0], 0.0, UNUSABLE, message, permanent=True) if ranks else None
    if work.training is not None and not work.exit_code:
        small = too_small(job.spec, work.training, attempt.placement, ranks, nodes)
        if small is not None:
            return PlannedFailure(small[0], 0.0, OUT_OF_MEMORY, small[1], permanent=True)
    if preset is None or not ranks or work.exit_code:
        return None
    failure = job_failure(preset, f"{job.namespace}/{job.name}", attempt.number, seed)
    if failure is None:
        return None
    why = failure.reason
    return PlannedFailure(
        ranks[0], failure.after_s, why.exit_code, why.name, out_of_memory=why.out_of_memory
    )
