"""A cluster that reports only the ends of gangs, for forecasts in which nothing else matters.

A gang that is placed ends after its start delay and its work; a gang that runs already ends when
its work is done. Starts are not reported, which halves the cost of a run.
"""

from collections.abc import Callable, Sequence
from functools import partial

from adapters.simulated_cluster.workload import workload_of
from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.effects import Effect, LaunchGang, StopGang, Survey, Tidy
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Exit
from controlplane.model.phases import WITH_DEVICES, RankState
from simulator.kernel.virtual_time import VirtualTime


class CompletionCluster:
    """A Cluster port for one forecast run; `origin` is the UTC time of the environment's 0."""

    def __init__(
        self,
        env: VirtualTime,
        *,
        up: Sequence[NodeInfo],
        down: Sequence[NodeInfo],
        origin: float,
        start_s: float,
    ) -> None:
        self._env = env
        self._origin = origin
        self._start_s = start_s
        self._survey = c.ReportCluster(up=tuple(up), down=tuple(down))
        self._report: Callable[[c.Report], None] = lambda report: None
        # Jobs in the cluster, as in the last effect for each.
        self._jobs: dict[str, Job] = {}

    async def connect(self, report: Callable[[c.Report], None]) -> None:
        self._report = report

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return []

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case LaunchGang():
                    self._launch(effect.job)
                case StopGang():
                    self._jobs.pop(effect.job.id, None)
                    self._report_gone(effect.job)
                case Tidy():
                    # A finished job leaves nothing behind here.
                    pass
                case Survey():
                    self._report(self._survey)

    def _launch(self, job: Job) -> None:
        attempt = _attempt(job)
        known = self._jobs.get(job.id)
        self._jobs[job.id] = job
        if known is not None and _attempt(known).number == attempt.number:
            self._report_gone(job, only=RankState.LOST)
            return
        began = attempt.running_at
        began = attempt.placed_at + self._start_s if began is None else began
        left_s = began + workload_of(job.spec).duration_s - self._origin - self._env.now
        self._env.call_after(max(0.0, left_s), partial(self._ended, job.id, attempt.number))

    def _ended(self, job_id: str, attempt: int) -> None:
        job = self._jobs.get(job_id)
        if job is None or _attempt(job).number != attempt:
            return
        del self._jobs[job.id]
        for run, ranks in _attempt(job).runs(*WITH_DEVICES).items():
            exits = tuple(Exit(rank, 0) for rank in ranks)
            self._report(c.ReportRanks(job=job.id, attempt=attempt, exited=exits, incarnation=run))

    def _report_gone(self, job: Job, only: RankState | None = None) -> None:
        """Report the ranks of a job as gone at once; with `only`, the ranks in that state."""
        attempt = _attempt(job)
        for run, ranks in attempt.runs(*WITH_DEVICES).items():
            gone = tuple(i for i in ranks if only is None or attempt.ranks[i].state is only)
            if gone:
                number = attempt.number
                self._report(c.ReportRanks(job=job.id, attempt=number, gone=gone, incarnation=run))


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, job
    return job.attempt
