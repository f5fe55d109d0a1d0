"""Runs of ranks: which of them should exist now, and which of them a cluster has started.

A run is one life of one rank, named (job, attempt, rank, incarnation). `desired_runs` derives from a
job's state which runs should exist. A cluster adapter compares them with what it has started, and
`RunTracker` does that comparison for every adapter that has no better record of its own:

    LaunchGang --> launch(job) --> start these runs, stop those     --> begin(runs, handle)
    StopGang   --> stop(job)   --> stop these runs
    observation: a run started, exited or is gone                   --> report(ReportRanks(...))

The rules behind it, which make a repeated or late effect harmless:

1. No run is started twice.
2. An effect for an older attempt than the latest one starts and stops nothing.
3. A stopped attempt is not launched again.
4. A repeated effect is answered by the reports so far. A rank that should be stopped and of which no
   run was started is reported as gone.

A tracker is a cache of what its adapter observed. After a restart it is empty, and effects, which
are derived from the log, fill it again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.effects import ranks_to_run
from controlplane.lifecycle.job import Job
from controlplane.model.commands import ReportRanks
from controlplane.model.phases import RankState

# The number of ended attempts whose reports are kept, in case the engine asks again. Forgetting one
# is harmless: if it is asked for, the state of the job suffices to end it once more.
OVER_KEPT = 4096
# Ranks in these states may have a process, as far as the log knows.
_UNENDED = (RankState.PENDING, RankState.RUNNING, RankState.LOST)


class RankRun(NamedTuple):
    """One run of one rank."""

    job: str
    attempt: int
    rank: int
    incarnation: int


def current_run(job: Job, rank: int) -> RankRun:
    """Return the present run of a rank of the job's latest attempt."""
    attempt = _attempt_of(job)
    return RankRun(job.id, attempt.number, rank, attempt.ranks[rank].incarnation)


def desired_runs(job: Job) -> tuple[RankRun, ...]:
    """Return the runs that should exist now, in the order of their ranks."""
    if job.attempt is None:
        return ()
    number, ranks = job.attempt.number, job.attempt.ranks
    return tuple(RankRun(job.id, number, i, ranks[i].incarnation) for i in ranks_to_run(job))


def by_report(runs: Iterable[RankRun]) -> list[tuple[ReportRanks, tuple[int, ...]]]:
    """Return the runs as reports have them: an empty report for each incarnation, and its ranks."""
    groups: dict[tuple[str, int, int], list[int]] = {}
    for job, attempt, rank, incarnation in runs:
        groups.setdefault((job, attempt, incarnation), []).append(rank)
    return [
        (ReportRanks(job=job, attempt=attempt, incarnation=incarnation), tuple(ranks))
        for (job, attempt, incarnation), ranks in groups.items()
    ]


Handle = TypeVar("Handle")


class AttemptRuns(Generic[Handle]):
    """The runs of a job's latest attempt in a cluster, and every report about them."""

    __slots__ = ("alive", "asked", "attempt", "job", "reports", "started", "stopping")

    def __init__(self, job: str, attempt: int) -> None:
        self.job = job
        self.attempt = attempt
        # Every run that was started, and by what the adapter finds it.
        self.started: dict[RankRun, Handle] = {}
        # The runs of which no end was reported, and those of them that were asked to stop.
        self.alive: set[RankRun] = set()
        self.asked: set[RankRun] = set()
        self.reports: list[ReportRanks] = []
        # Whether the whole attempt was asked to stop.
        self.stopping = False

    def handles(self) -> list[Handle]:
        """Return the handles of all runs that were started, each once."""
        return list(dict.fromkeys(self.started.values()))

    def take(self, runs: Iterable[RankRun]) -> list[RankRun]:
        """Return those of the runs that are alive and were not asked to stop before, in order."""
        fresh = [run for run in runs if run in self.alive and run not in self.asked]
        self.asked.update(fresh)
        return fresh


class Changes(NamedTuple):
    """What a cluster has to do for a launch."""

    start: list[RankRun]
    # Runs that the gang no longer needs.
    stop: list[RankRun]


class RunTracker(Generic[Handle]):
    """The runs of all jobs in a cluster. `send` passes a report to the engine."""

    def __init__(self, send: Callable[[ReportRanks], None]) -> None:
        self._send = send
        # The latest attempt, by job.
        self.attempts: dict[str, AttemptRuns[Handle]] = {}
        self._over: deque[AttemptRuns[Handle]] = deque()

    def of_attempt(self, job: str, attempt: int) -> AttemptRuns[Handle] | None:
        """Return the runs of an attempt; None if it is not the latest one, or is not known."""
        runs = self.attempts.get(job)
        return runs if runs is not None and runs.attempt == attempt else None

    def open(self, job: Job) -> AttemptRuns[Handle] | None:
        """Return the runs of the job's attempt, new if need be; None if a later attempt is known."""
        number = _attempt_of(job).number
        runs = self.attempts.get(job.id)
        if runs is None or runs.attempt < number:
            runs = self.attempts[job.id] = AttemptRuns(job.id, number)
        return runs if runs.attempt == number else None

    def handle(self, run: RankRun) -> Handle:
        """Return the handle of a run of the latest attempt that was started."""
        return self.attempts[run.job].started[run]

    def launch(self, job: Job) -> Changes:
        """Accept a LaunchGang: repeat the reports so far, and return what is left to do.

        The adapter must call `begin` for the runs that it starts; the others are returned again.
        """
        runs = self.open(job)
        if runs is None or runs.stopping:
            return Changes([], [])
        self.repeat(runs)
        released = [
            RankRun(job.id, runs.attempt, i, rank.incarnation)
            for i, rank in enumerate(_attempt_of(job).ranks)
            if rank.state is RankState.LOST and rank.released
        ]
        self._send_gone(run for run in released if run not in runs.started)
        missing = [run for run in desired_runs(job) if run not in runs.started]
        return Changes(missing, runs.take(released))

    def stop(self, job: Job) -> list[RankRun]:
        """Accept a StopGang: repeat the reports so far, and return the runs to stop now."""
        runs, attempt = self.open(job), _attempt_of(job)
        if runs is not None:
            self.repeat(runs)
            if not runs.started and not runs.stopping:
                self.retire(runs)
            runs.stopping = True
        unended = [
            RankRun(job.id, attempt.number, i, incarnation)
            for incarnation, ranks in attempt.runs(*_UNENDED).items()
            for i in ranks
        ]
        self._send_gone(run for run in unended if runs is None or run not in runs.started)
        return [] if runs is None else runs.take(list(runs.started))

    def begin(self, starting: Sequence[RankRun], handle: Handle) -> None:
        """Record that runs of a job's latest attempt are being started."""
        runs = self.attempts[starting[0].job]
        assert all(run.attempt == runs.attempt for run in starting), starting
        runs.started.update(dict.fromkeys(starting, handle))
        runs.alive.update(starting)

    def report(self, report: ReportRanks) -> None:
        """Send a report, and keep it if it is about the latest attempt of its job."""
        runs = self.of_attempt(report.job, report.attempt)
        if runs is not None:
            runs.reports.append(report)
            ended = [*(end.rank for end in report.exited), *report.gone]
            if ended and runs.alive:
                at = (report.job, report.attempt)
                runs.alive.difference_update(RankRun(*at, i, report.incarnation) for i in ended)
                if not runs.alive:
                    self.retire(runs)
        self._send(report)

    def repeat(self, runs: AttemptRuns[Handle]) -> None:
        """Send every report on an attempt again."""
        for report in runs.reports:
            self._send(report)

    def retire(self, runs: AttemptRuns[Handle]) -> None:
        """Keep the record of an ended attempt among the last `OVER_KEPT`."""
        self._over.append(runs)
        if len(self._over) > OVER_KEPT:
            oldest = self._over.popleft()
            if not oldest.alive and self.attempts.get(oldest.job) is oldest:
                del self.attempts[oldest.job]

    def _send_gone(self, runs: Iterable[RankRun]) -> None:
        """Report runs that were never started, without keeping it: the state of the job has them."""
        for about, ranks in by_report(runs):
            self._send(replace(about, gone=ranks))


def _attempt_of(job: Job) -> Attempt:
    assert job.attempt is not None, f"{job.id} was never placed"
    return job.attempt
