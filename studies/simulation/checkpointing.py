"""Checkpoints of jobs with a fixed duration: each new attempt begins at the last checkpoint.

`Checkpointed` wraps a cluster and shortens the work of a launched gang. The control plane does not
know about these checkpoints, as it does not know about those of a real job.
"""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from adapters.simulated_cluster.workload import with_workload, workload_of
from controlplane.lifecycle.effects import Effect, LaunchGang
from controlplane.lifecycle.job import Job
from controlplane.model.commands import Report
from controlplane.ports import Cluster
from studies.simulation.recorder import Recorder
from studies.whatif.scenario_parts import Checkpoints

# Tolerance of divisions: times are sums of floats, so a quotient may miss a whole number by this.
HAIR = 1e-9


def wall_s(work_s: float, plan: Checkpoints) -> float:
    """Return the seconds that work takes with its checkpoints; the last checkpoint is the result."""
    if not plan.every_s:
        return work_s
    return work_s + math.ceil(work_s / plan.every_s - HAIR) * plan.write_s


def saved_s(ran_s: float, plan: Checkpoints) -> float:
    """Return the seconds of work that are saved after an attempt ran for `ran_s` seconds."""
    if not plan.every_s:
        return 0.0
    return math.floor(ran_s / (plan.every_s + plan.write_s) + HAIR) * plan.every_s


class Checkpointed:
    """A cluster whose jobs write checkpoints."""

    def __init__(self, cluster: Cluster, plan: Checkpoints) -> None:
        self._cluster = cluster
        self._plan = plan
        self._saved: dict[str, float] = {}
        # Set when the run has a recorder, which knows when attempts ran.
        self.recorder: Recorder | None = None

    async def connect(self, report: Callable[[Report], None]) -> None:
        await self._cluster.connect(report)

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        await self._cluster.carry_out(
            [self._resumed(each) if isinstance(each, LaunchGang) else each for each in effects]
        )

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return await self._cluster.logs(job, rank, lines_max)

    def _resumed(self, launch: LaunchGang) -> LaunchGang:
        job = launch.job
        work = workload_of(job.spec)
        if work.training is not None:
            # The model of a training job simulates its checkpoints itself.
            return launch
        left_s = max(0.0, work.duration_s - self._safe(job, launch.attempt))
        spec = with_workload(job.spec, replace(work, duration_s=wall_s(left_s, self._plan)))
        return LaunchGang(job.id, launch.attempt, launch.revision, replace(job, spec=spec))

    def _safe(self, job: Job, attempt: int) -> float:
        """Return the seconds of work saved by the attempts before this one; each is counted once."""
        if attempt == 1 or self.recorder is None:
            return 0.0
        key = f"{job.id}/{attempt}"
        if key not in self._saved:
            before = self._saved.pop(f"{job.id}/{attempt - 1}", 0.0)
            ran_s = self.recorder.ran_before_s(int(job.id))
            self._saved[key] = before + saved_s(ran_s, self._plan)
        return self._saved[key]
