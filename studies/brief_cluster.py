"""A cluster that says only when gangs end, for futures in which nothing else matters.

A gang ends so long after it was placed as it takes to start and to do its work; one that runs already
ends when it has worked so long. That it has started is told by nobody, which halves what a run costs.
"""

from collections.abc import Callable, Sequence
from functools import partial

from controlplane import commands as c
from controlplane.attempt import HOLDING, Attempt, RankState
from controlplane.effects import Effect, LaunchGang, StopGang, Survey, Tidy
from controlplane.job import Job
from controlplane.model import Exit, NodeInfo
from simulator.virtual_time import VirtualTime


class BriefCluster:
    def __init__(
        self,
        env: VirtualTime,
        *,
        up: Sequence[NodeInfo],
        down: Sequence[NodeInfo],
        origin: float,
        start_s: float,
    ) -> None:
        self._agenda = env.agenda
        self._origin = origin
        self._start_s = start_s
        self._survey = c.ReportCluster(up=tuple(up), down=tuple(down))
        self._report: Callable[[c.Report], None] = lambda report: None
        # Jobs in the cluster, as they were last asked for.
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
                    self._tell_gone(effect.job)
                case Tidy():
                    # What is over has left nothing behind.
                    pass
                case Survey():
                    self._report(self._survey)

    def _launch(self, job: Job) -> None:
        attempt = _attempt(job)
        known = self._jobs.get(job.id)
        self._jobs[job.id] = job
        if known is not None and _attempt(known).number == attempt.number:
            self._tell_gone(job, only=RankState.LOST)
            return
        began = attempt.running_at
        began = attempt.placed_at + self._start_s if began is None else began
        left_s = began + job.spec.workload.duration_s - self._origin - self._agenda.now
        self._agenda.call_after(max(0.0, left_s), partial(self._ended, job.id, attempt.number))

    def _ended(self, job_id: str, attempt: int) -> None:
        job = self._jobs.get(job_id)
        if job is None or _attempt(job).number != attempt:
            return
        del self._jobs[job.id]
        for run, ranks in _attempt(job).runs(*HOLDING).items():
            exits = tuple([Exit(rank, 0) for rank in ranks])
            self._report(c.ReportRanks(job=job.id, attempt=attempt, exited=exits, incarnation=run))

    def _tell_gone(self, job: Job, only: RankState | None = None) -> None:
        """Whoever is told to go is gone at once."""
        attempt = _attempt(job)
        for run, ranks in attempt.runs(*HOLDING).items():
            gone = tuple([i for i in ranks if only is None or attempt.ranks[i].state is only])
            if gone:
                number = attempt.number
                self._report(c.ReportRanks(job=job.id, attempt=number, gone=gone, incarnation=run))


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, job
    return job.attempt
