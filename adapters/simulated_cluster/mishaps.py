"""What a gang's own rank will do wrong: a recipe that cannot be followed, or bad luck. Pure."""

from collections.abc import Mapping

from adapters.simulated_cluster.training import problem_of
from adapters.simulated_cluster.vetting import too_small
from controlplane.attempt import Attempt
from controlplane.job import Job
from simulator.faults import Preset
from simulator.faults.job_failures import job_failure
from simulator.gangs import Mishap, Part
from simulator.topology import NodeModel

# The exit code of a rank whose training the simulator does not know, and of one without memory.
UNUSABLE = 2
OUT_OF_MEMORY = 1


def mishap_of(
    job: Job,
    attempt: Attempt,
    ranks: tuple[int, ...],
    parts: tuple[Part, ...],
    preset: Preset | None,
    seed: int,
    nodes: Mapping[str, NodeModel],
) -> Mishap | None:
    """It counts from the beginning of the work, some of which may be done already."""
    mishap = _from_the_beginning(job, attempt, ranks, preset, seed, nodes)
    if mishap is None:
        return None
    done_s = max((part.elapsed_s or 0.0 for part in parts), default=0.0)
    return mishap._replace(after_s=max(0.0, mishap.after_s - done_s)) if done_s else mishap


def _from_the_beginning(
    job: Job,
    attempt: Attempt,
    ranks: tuple[int, ...],
    preset: Preset | None,
    seed: int,
    nodes: Mapping[str, NodeModel],
) -> Mishap | None:
    """A recipe that cannot be followed ends at once; the cluster's conditions may do the rest."""
    wrong = problem_of(job.spec)
    if wrong is not None:
        told = f"workload.training.{wrong}"
        return Mishap(ranks[0], 0.0, UNUSABLE, told, permanent=True) if ranks else None
    if job.spec.workload.training is not None and not job.spec.workload.exit_code:
        small = too_small(job.spec, attempt.placement, ranks, nodes)
        if small is not None:
            return Mishap(small[0], 0.0, OUT_OF_MEMORY, small[1], permanent=True)
    if preset is None or not ranks or job.spec.workload.exit_code:
        return None
    failure = job_failure(preset, f"{job.namespace}/{job.name}", attempt.number, seed)
    if failure is None:
        return None
    return Mishap(ranks[0], failure.after_s, failure.reason.exit_code, failure.reason.name)
