"""Runs of ranks: which should exist, and the tracker that adapters share."""

import pytest
from msgspec.structs import replace

from controlplane.lifecycle import runs as module
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import Changes, RankRun, RunTracker, current_run, desired_runs
from controlplane.model import events as e
from controlplane.model.commands import ReportRanks
from controlplane.model.failures import Exit
from controlplane.model.spec import DoneWhen, JobSpec, RestartScope, Role
from tests.gangs import on, once_more, placed, queued, running, spec, then

PAIR = on("n0:0", "n1:0")


class Bench:
    def __init__(self) -> None:
        self.sent: list[ReportRanks] = []
        self.tracker = RunTracker[str](self.sent.append)

    def launch(self, job: Job) -> Changes:
        """Launches a gang, and starts every run that is missing."""
        changes = self.tracker.launch(job)
        for run in changes.start:
            self.tracker.begin([run], f"process {run.rank}.{run.incarnation}")
        return changes

    def news(self) -> list[ReportRanks]:
        sent, self.sent[:] = self.sent[:], []
        return sent


@pytest.fixture
def bench() -> Bench:
    return Bench()


def runs(job: Job, *ranks: int) -> list[RankRun]:
    return [current_run(job, rank) for rank in ranks]


def stopped(job: Job) -> Job:
    return then(job, 50.0, e.JobCancelled(job.id))


# ------------------------------------------------------------------ desired runs


def test_a_placed_gang_should_run_all_its_ranks() -> None:
    assert desired_runs(placed(PAIR, spec())) == (
        RankRun("job-1", 1, 0, 0),
        RankRun("job-1", 1, 1, 0),
    )


def test_nothing_should_run_for_a_job_without_a_live_attempt() -> None:
    assert desired_runs(queued(spec())) == ()
    assert desired_runs(stopped(running(placed(PAIR, spec()), 5.0))) == ()


def test_a_rank_that_runs_once_more_is_another_run() -> None:
    job = once_more(running(placed(PAIR, spec(scope=RestartScope.RANK)), 5.0), rank=0, at=20.0)
    assert desired_runs(job) == (RankRun("job-1", 1, 0, 1), RankRun("job-1", 1, 1, 0))


def test_ranks_that_wait_for_others_are_not_desired_yet() -> None:
    after = JobSpec(
        roles=(Role(name="Worker", gpus=1), Role(name="Launcher", gpus=1, starts_after="Worker")),
        done_when=DoneWhen("Launcher"),
    )
    job = placed(PAIR, after)
    assert desired_runs(job) == (RankRun("job-1", 1, 0, 0),)
    job = then(job, 5.0, e.RanksStarted(job.id, 1, (0,)))
    assert desired_runs(job) == (RankRun("job-1", 1, 0, 0), RankRun("job-1", 1, 1, 0))


# ------------------------------------------------------------------ the tracker


def test_a_run_is_started_once_and_its_reports_are_repeated(bench: Bench) -> None:
    job = placed(PAIR, spec())
    assert bench.launch(job) == (runs(job, 0, 1), [])
    up = ReportRanks(job=job.id, attempt=1, started=(0, 1))
    bench.tracker.report(up)
    assert bench.news() == [up]
    assert bench.launch(job) == ([], [])
    assert bench.news() == [up]


def test_a_run_that_could_not_be_started_is_asked_for_again(bench: Bench) -> None:
    job = placed(PAIR, spec())
    start = bench.tracker.launch(job).start
    bench.tracker.begin(start[:1], "process")
    assert bench.tracker.launch(job).start == runs(job, 1)


def test_a_stop_returns_what_is_alive_once(bench: Bench) -> None:
    job = placed(PAIR, spec())
    bench.launch(job)
    over = ReportRanks(job=job.id, attempt=1, exited=(Exit(0, 0),))
    bench.tracker.report(over)
    bench.news()
    job = stopped(then(running(job, 5.0), 6.0, e.RanksExited(job.id, 1, over.exited)))
    assert bench.tracker.stop(job) == runs(job, 1)
    assert bench.tracker.handle(runs(job, 1)[0]) == "process 1.0"
    assert bench.tracker.stop(job) == []
    assert bench.news() == [over, over]


def test_of_an_attempt_that_was_never_started_a_stop_reports_all_ranks_gone(bench: Bench) -> None:
    job = stopped(placed(PAIR, spec()))
    for _ in range(2):
        assert bench.tracker.stop(job) == []
        assert bench.news() == [ReportRanks(job=job.id, attempt=1, gone=(0, 1))]


def test_a_stopped_attempt_is_not_launched_again(bench: Bench) -> None:
    job = placed(PAIR, spec())
    bench.tracker.stop(stopped(job))
    bench.news()
    assert bench.launch(job) == ([], [])
    assert bench.news() == []


def test_an_older_attempt_starts_and_stops_nothing(bench: Bench) -> None:
    first, second = (placed(PAIR, spec(), attempt=number) for number in (1, 2))
    bench.launch(second)
    assert bench.launch(first) == ([], [])
    assert bench.tracker.stop(stopped(first)) == []
    assert bench.tracker.stop(stopped(second)) == runs(second, 0, 1)


def test_only_a_single_rank_runs_once_more(bench: Bench) -> None:
    job = running(placed(PAIR, spec(scope=RestartScope.RANK)), 5.0)
    bench.launch(job)
    assert bench.launch(once_more(job, rank=0, at=20.0)) == ([RankRun("job-1", 1, 0, 1)], [])


def test_a_released_rank_is_stopped_once_or_reported_gone(bench: Bench) -> None:
    job = running(placed(PAIR, spec()), 5.0)
    bench.tracker.begin(bench.tracker.launch(job).start[:1], "process")
    attempt = job.attempt
    assert attempt is not None
    ranks = (_released(attempt.ranks[0]), _released(attempt.ranks[1]))
    smaller = replace(job, attempt=replace(attempt, ranks=ranks))
    assert bench.launch(smaller) == ([], runs(job, 0))
    assert bench.news() == [ReportRanks(job=job.id, attempt=1, gone=(1,))]
    assert bench.launch(smaller) == ([], [])


def _released(rank):  # type: ignore[no-untyped-def]
    return replace(rank, state=module.RankState.LOST, released=True)


def test_ended_attempts_are_forgotten_in_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OVER_KEPT", 2)
    for number in range(4):
        job = placed(PAIR, spec(), id=f"job-{number}")
        bench.launch(job)
        bench.tracker.report(ReportRanks(job=job.id, attempt=1, gone=(0, 1)))
    assert list(bench.tracker.attempts) == ["job-2", "job-3"]
