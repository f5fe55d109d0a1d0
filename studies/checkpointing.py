"""Work that survives an interruption: each new attempt begins at the last checkpoint.

It stands in front of a cluster and changes what a launched gang still has to do; the control plane
knows nothing of it, as it knows nothing of the checkpoints of a real job.
"""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from controlplane.commands import Report
from controlplane.effects import Effect, LaunchGang
from controlplane.job import Job
from controlplane.ports import Cluster
from studies.recorder import Recorder
from studies.scenario_parts import Checkpoints

# Times are sums of other times; a whole number of checkpoints may miss it by so much.
HAIR = 1e-9


def wall_s(work_s: float, plan: Checkpoints) -> float:
    """How long work takes with its checkpoints, the last of which is its result."""
    if not plan.every_s:
        return work_s
    return work_s + math.ceil(work_s / plan.every_s - HAIR) * plan.write_s


def saved_s(ran_s: float, plan: Checkpoints) -> float:
    """The work that is safe after an attempt has run so long."""
    if not plan.every_s:
        return 0.0
    return math.floor(ran_s / (plan.every_s + plan.write_s) + HAIR) * plan.every_s


class Checkpointed:
    """A cluster whose jobs write checkpoints."""

    def __init__(self, cluster: Cluster, plan: Checkpoints) -> None:
        self._cluster = cluster
        self._plan = plan
        self._saved: dict[str, float] = {}
        # Set once the run has one: it knows when attempts ran.
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
        if job.spec.workload.training is not None:
            # The model of a training job writes and reads its own.
            return launch
        work_s = job.spec.workload.duration_s
        left_s = max(0.0, work_s - self._safe(job, launch.attempt))
        workload = replace(job.spec.workload, duration_s=wall_s(left_s, self._plan))
        spec = replace(job.spec, workload=workload)
        return LaunchGang(job.id, launch.attempt, launch.revision, replace(job, spec=spec))

    def _safe(self, job: Job, attempt: int) -> float:
        """What the attempts before this one have left behind, noted once for each of them."""
        if attempt == 1 or self.recorder is None:
            return 0.0
        key = f"{job.id}/{attempt}"
        if key not in self._saved:
            before = self._saved.pop(f"{job.id}/{attempt - 1}", 0.0)
            ran_s = self.recorder.ran_before_s(int(job.id))
            self._saved[key] = before + saved_s(ran_s, self._plan)
        return self._saved[key]
