"""The simulated cluster: what it makes of workloads, faults, and a control plane that was away."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.clocks.pacer import Pacer
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload
from controlplane.lifecycle import runs
from controlplane.lifecycle.effects import Effect, Survey
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import (
    Report,
    ReportCluster,
    ReportNode,
    ReportNodeLost,
    ReportNodeRemoved,
    ReportRanks,
)
from controlplane.model.failures import Cause, Exit
from controlplane.model.reasons import Loss, LossReason
from controlplane.model.spec import RestartScope
from simulator.faults import Fault, FaultKind, FaultModel
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.gang_training import Saved
from simulator.network.topology import ClusterModel, Delays, NodeModel, grid
from tests.gangs import launch, on, once_more, placed, running, spec, stop, then

ORIGIN = 1_700_000_000.0
NODES = (NodeModel("n0", "r0", 4, "V100", 32768, {"zone": "a"}), NodeModel("n1", "r1", 4))
MODEL = ClusterModel(NODES, Delays(start_s=5.0, stop_s=2.0))
HALF_AND_HALF = on("n0:0", "n1:0")

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration as result:
        return result.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for something")


def _info(name: str, gpus: int, rack: str) -> NodeInfo:
    """A node as the model reports it: with the usual labels."""
    labels = {"kubernetes.io/hostname": name, "topology.muster.dev/rack": rack}
    return NodeInfo(name, gpus, rack=rack, labels=labels)


class Bench:
    """A simulated cluster in virtual time, and what it reported and when."""

    def __init__(
        self, model: ClusterModel = MODEL, begin_at_s: float = 0.0, saved: Saved | None = None
    ) -> None:
        self.env = VirtualTime(begin_at_s)
        self.cluster = SimulatedCluster(self.env, model, origin=ORIGIN, saved=saved)
        self.reported: list[tuple[float, Report]] = []
        at_once(self.cluster.connect(lambda report: self.reported.append((self.env.now, report))))

    def ask(self, *effects: Effect) -> None:
        at_once(self.cluster.carry_out(effects))

    def until(self, at_s: float) -> list[tuple[float, Report]]:
        """What is reported before `at_s` and was not returned yet."""
        self.env.run(until=at_s)
        return self.news()

    def news(self) -> list[tuple[float, Report]]:
        reports, self.reported = self.reported, []
        return reports


def of_job(**news: Any) -> ReportRanks:
    return ReportRanks(job="job-1", attempt=1, **news)


# -------------------------------------------------------------------- workloads


def test_a_whole_gang_is_reported_at_once() -> None:
    bench = Bench()
    bench.ask(launch(placed(HALF_AND_HALF, spec())))
    assert bench.until(1000.0) == [
        (5.0, of_job(started=(0, 1))),
        (65.0, of_job(exited=(Exit(0, 0), Exit(1, 0)))),
    ]


def test_a_role_that_serves_runs_until_it_is_stopped() -> None:
    job = placed(on("n0:0", "n1:0", "n1"), spec(servers=1))
    bench = Bench()
    bench.ask(launch(job))
    assert bench.until(1000.0)[1:] == [(65.0, of_job(exited=(Exit(0, 0), Exit(1, 0))))]
    bench.ask(stop(job))
    assert bench.until(2000.0)[-1] == (1002.0, of_job(gone=(2,)))


def failing(exit_rank: int, attempts: int | None = None) -> Workload:
    return Workload(duration_s=60.0, exit_code=3, exit_rank=exit_rank, failing_attempts=attempts)


def codes(reports: Sequence[tuple[float, Report]]) -> dict[int, int | None]:
    return {
        end.rank: end.code
        for _, report in reports
        if isinstance(report, ReportRanks)
        for end in report.exited
    }


def test_when_one_rank_fails_the_others_hang_until_they_are_stopped() -> None:
    job = placed(HALF_AND_HALF, spec(work=failing(exit_rank=1)))
    bench = Bench()
    bench.ask(launch(job))
    assert codes(bench.until(1000.0)) == {1: 3}
    bench.ask(stop(job))
    assert bench.until(2000.0)[-1] == (1002.0, of_job(gone=(0,)))


def test_after_enough_failing_attempts_one_succeeds() -> None:
    for number, expected in ((1, {1: 3}), (2, {1: 3}), (3, {0: 0, 1: 0})):
        bench = Bench()
        work = failing(exit_rank=1, attempts=2)
        bench.ask(launch(placed(HALF_AND_HALF, spec(work=work), attempt=number)))
        assert codes(bench.until(1000.0)) == expected


def test_a_rank_that_is_replaced_repeats_the_try_that_fails() -> None:
    """The others hang until it fails: were its second try to succeed, the gang would never end."""
    job = placed(HALF_AND_HALF, spec(work=failing(exit_rank=0, attempts=1)))
    bench = Bench()
    bench.ask(launch(once_more(running(job, 5.0), rank=0)))
    assert codes(bench.until(1000.0)) == {0: 3}


def test_where_single_ranks_restart_the_others_end_well() -> None:
    bench = Bench()
    work = failing(exit_rank=0, attempts=1)
    job = placed(HALF_AND_HALF, spec(work=work, scope=RestartScope.RANK))
    bench.ask(launch(job))
    detail = "the workload says to exit with 3"
    assert bench.until(100.0)[-1] == (
        65.0,
        of_job(exited=(Exit(0, 3, detail=detail, lines=(f"error: {detail}",)), Exit(1, 0))),
    )
    bench.ask(launch(once_more(running(job, 5.0), rank=0)))
    bench.news()
    assert bench.until(1000.0) == [
        (105.0, of_job(started=(0,), incarnation=1)),
        (165.0, of_job(exited=(Exit(0, 0),), incarnation=1)),
    ]


def test_a_rank_that_never_ran_once_more_is_gone_when_the_gang_stops() -> None:
    bench = Bench()
    job = placed(HALF_AND_HALF, spec(work=failing(exit_rank=0), scope=RestartScope.RANK))
    bench.ask(launch(job))
    bench.until(100.0)
    bench.ask(stop(once_more(running(job, 5.0), rank=0)))
    assert bench.news()[-1] == (100.0, of_job(gone=(0,), incarnation=1))


def test_a_rank_beyond_the_gang_means_its_last_one() -> None:
    bench = Bench()
    bench.ask(launch(placed(HALF_AND_HALF, spec(work=failing(exit_rank=9)))))
    assert codes(bench.until(1000.0)) == {1: 3}


# -------------------------------------------------------------------- nodes and faults


def test_a_survey_reports_which_nodes_are_up_and_which_are_down() -> None:
    bench = Bench()
    bench.cluster.fail_node("n1", None)
    bench.news()
    bench.ask(Survey())
    labels = {
        "kubernetes.io/hostname": "n0",
        "topology.muster.dev/rack": "r0",
        "nvidia.com/gpu.product": "V100",
        "zone": "a",
    }
    assert [report for _, report in bench.news()] == [
        ReportCluster(
            up=(NodeInfo("n0", 4, "V100", 32768, "r0", labels),),
            down=(_info("n1", 4, "r1"),),
        )
    ]


@pytest.mark.parametrize(
    ("kind", "exit", "reason"),
    [
        (
            FaultKind.CRASH,
            Exit(1, None, Cause.NODE_LOST, loss=Loss(LossReason.CRASHED, "n1")),
            LossReason.CRASHED,
        ),
        (
            FaultKind.SPOT_RECLAIM,
            Exit(1, 137, Cause.SPOT_RECLAIM, loss=Loss(LossReason.RECLAIMED, "n1")),
            LossReason.RECLAIMED,
        ),
    ],
)
def test_a_fault_ends_the_ranks_there_and_then_the_node_is_lost(
    kind: FaultKind, exit: Exit, reason: LossReason
) -> None:
    fault = Fault(20.0, "n1", 300.0, kind)
    bench = Bench(replace(MODEL, faults=FaultModel(script=(fault,))))
    bench.ask(launch(placed(HALF_AND_HALF, spec())))
    assert bench.until(1000.0)[1:] == [
        (20.0, of_job(exited=(exit,))),
        (20.0, ReportNodeLost(node="n1", reason=reason)),
        (320.0, ReportNode(node=_info("n1", 4, "r1"))),
    ]


def test_an_unknown_node_cannot_be_made_to_fail() -> None:
    with pytest.raises(LookupError, match="n9"):
        Bench().cluster.fail_node("n9", 10.0)


def test_a_gang_sent_to_a_node_that_is_not_there_hears_so() -> None:
    bench = Bench()
    bench.ask(launch(placed(on("n0:0", "n9:0"), spec())))
    lost = Exit(1, None, Cause.NODE_LOST, loss=Loss(LossReason.NODE_REFUSED, "n9"))
    assert bench.until(1000.0) == [
        (0.0, of_job(exited=(lost,))),
        (0.0, ReportNodeRemoved(node="n9")),
        (5.0, of_job(started=(0,))),
    ]


def test_a_gang_sent_to_devices_that_are_not_there_hears_what_the_node_has() -> None:
    bench = Bench()
    bench.ask(launch(placed(on("n1:7"), spec(1))))
    exited, node = [report for _, report in bench.news()]
    assert isinstance(exited, ReportRanks)
    assert exited.exited[0].cause is Cause.NODE_LOST
    assert node == ReportNode(node=_info("n1", 4, "r1"))


# -------------------------------------------------------------------- a control plane that was away


def test_a_gang_that_kept_running_has_only_its_remaining_work_to_do() -> None:
    job = running(placed(HALF_AND_HALF, spec(), at=ORIGIN), ORIGIN + 5.0)
    bench = Bench(begin_at_s=45.0)
    bench.ask(launch(job))
    assert bench.until(1000.0) == [
        (45.0, of_job(started=(0, 1))),
        (65.0, of_job(exited=(Exit(0, 0), Exit(1, 0)))),
    ]


def test_a_gang_that_ended_meanwhile_is_reported_at_once() -> None:
    job = running(placed(HALF_AND_HALF, spec(), at=ORIGIN), ORIGIN + 5.0)
    bench = Bench(begin_at_s=5000.0)
    bench.ask(launch(job))
    assert bench.until(5001.0)[-1] == (5000.0, of_job(exited=(Exit(0, 0), Exit(1, 0))))


def test_ranks_that_had_not_started_start_now_and_the_gang_goes_on() -> None:
    job = placed(HALF_AND_HALF, spec(), at=ORIGIN)
    job = then(job, ORIGIN + 5.0, e.RanksStarted(job.id, 1, (0,)))
    bench = Bench(begin_at_s=10.0)
    bench.ask(launch(job))
    assert bench.until(1000.0) == [
        (10.0, of_job(started=(0,))),
        (15.0, of_job(started=(1,))),
        (75.0, of_job(exited=(Exit(0, 0), Exit(1, 0)))),
    ]


def test_ranks_that_had_ended_do_not_run_again() -> None:
    job = running(placed(on("n0:0", "n1:0", "n1"), spec(servers=1), at=ORIGIN), ORIGIN + 5.0)
    job = then(job, ORIGIN + 6.0, e.RanksExited(job.id, 1, (Exit(0, 0),)))
    bench = Bench(begin_at_s=10.0)
    bench.ask(launch(job))
    assert codes(bench.until(1000.0)) == {1: 0}


def test_a_single_rank_that_kept_running_is_taken_over_too() -> None:
    work = failing(exit_rank=0, attempts=1)
    job = placed(HALF_AND_HALF, spec(work=work, scope=RestartScope.RANK), at=ORIGIN)
    job = once_more(running(job, ORIGIN + 5.0), rank=0, at=ORIGIN + 20.0)
    job = then(job, ORIGIN + 30.0, e.RanksStarted(job.id, 1, (0,)))
    bench = Bench(begin_at_s=40.0)
    bench.ask(launch(job))
    assert bench.until(1000.0)[-2:] == [
        (65.0, of_job(exited=(Exit(1, 0),))),
        (90.0, of_job(exited=(Exit(0, 0),), incarnation=1)),
    ]


def test_a_rank_that_the_log_calls_lost_has_died_with_its_node() -> None:
    job = running(placed(HALF_AND_HALF, spec(), at=ORIGIN), ORIGIN + 5.0)
    job = then(job, ORIGIN + 6.0, e.RanksLost(job.id, 1, (1,), "silence"))
    bench = Bench(begin_at_s=10.0)
    bench.ask(launch(job))
    assert bench.news()[-1][1] == of_job(exited=(Exit(1, None, Cause.NODE_LOST, "silence"),))


def test_attempts_that_are_over_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "OVER_KEPT", 2)
    bench = Bench()
    jobs = [placed(HALF_AND_HALF, spec(), id=f"job-{i}") for i in range(4)]
    for job in jobs:
        bench.ask(launch(job))
        bench.until(bench.env.now + 100.0)
    assert list(bench.cluster._tracker.attempts) == ["job-2", "job-3"]
    bench.ask(launch(running(jobs[0], ORIGIN + 5.0)))
    assert codes(bench.until(bench.env.now + 1.0)) == {0: 0, 1: 0}


# -------------------------------------------------------------------- logs


def test_logs_show_where_a_rank_runs_its_progress_and_its_end() -> None:
    job = running(placed(on("n0:0,1", "n1:0"), spec(gpus=2), at=ORIGIN), ORIGIN + 5.0)
    bench = Bench(begin_at_s=17.0)
    lines = at_once(bench.cluster.logs(job, 0, 100))
    assert lines == [
        "2023-11-14T22:13:25.000+00:00 worker-0 of job-1, attempt 1",
        "2023-11-14T22:13:25.000+00:00 node n0, GPUs 0, 1, 2 ranks in the gang",
        "2023-11-14T22:13:25.000+00:00 training",
        "2023-11-14T22:13:31.000+00:00 progress 10 %",
    ]
    ended = then(job, ORIGIN + 65.0, e.RanksExited(job.id, 1, (Exit(0, 3, detail="oh"),)))
    lines = at_once(Bench(begin_at_s=900.0).cluster.logs(ended, 0, 2))
    assert lines == [
        "2023-11-14T22:14:19.000+00:00 progress 90 %",
        "2023-11-14T22:14:25.000+00:00 exited with code 3: oh",
    ]


def test_logs_of_ranks_that_serve_were_stopped_or_do_not_exist() -> None:
    job = running(placed(on("n0:0", "n1:0", "n1"), spec(servers=1), at=ORIGIN), ORIGIN + 5.0)
    job = then(job, ORIGIN + 9.0, e.RanksGone(job.id, 1, (2,)))
    bench = Bench(begin_at_s=17.0)
    assert [line.split(" ", 1)[1] for line in at_once(bench.cluster.logs(job, 2, 2))] == [
        "serving",
        "stopped",
    ]
    assert at_once(bench.cluster.logs(job, 3, 9)) == []
    assert at_once(bench.cluster.logs(job, 0, 0)) == []
    assert at_once(bench.cluster.logs(placed(HALF_AND_HALF, spec()), 0, 9)) == []


# -------------------------------------------------------------------- one seed, one story


def eventful(seed: int) -> tuple[ClusterModel, list[Effect]]:
    """A day with jitter, crashes, failures and gangs of many sizes."""
    chance = FaultModel(node_mtbf_s=400.0, node_repair_s=50.0)
    delays = Delays(start_s=5.0, start_jitter_s=20.0, stop_s=2.0)
    model = replace(grid(2, 4, 8), delays=delays, faults=chance, seed=seed)
    effects: list[Effect] = [Survey()]
    for i, node in enumerate(model.nodes):
        work = Workload(duration_s=40.0 + 17.0 * i, exit_code=i % 3, exit_rank=1)
        slots = [f"{node.name}:{device}" for device in range(i + 1)]
        job = placed(on(*slots), spec(i + 1, work=work), id=f"job-{i}")
        effects += [launch(job), *([stop(job)] if i % 4 == 3 else [])]
    return model, effects


def story(seed: int, until_s: float = 600.0) -> list[Report]:
    model, effects = eventful(seed)
    bench = Bench(model)
    bench.ask(*effects)
    return [report for _, report in bench.until(until_s)]


def test_the_same_seed_gives_the_same_reports_and_another_seed_others() -> None:
    assert story(1) == story(1)
    assert story(1) != story(2)


def test_the_story_does_not_hang_on_the_hash_seed() -> None:
    script = (
        "import msgspec; from tests.adapters.test_simulated_cluster import story;"
        "print(msgspec.json.encode(story(1)).decode())"
    )
    stories = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert stories == {msgspec.json.encode(story(1)).decode()}


async def test_real_time_gives_the_same_reports_as_virtual_time() -> None:
    model, effects = eventful(1)
    expected = story(1)
    env = VirtualTime()
    clock = AsyncioClock(start=ORIGIN, speed=20_000.0)
    pacer = Pacer(env, clock.twin(), origin=ORIGIN)
    # The effects come first, so that both stories begin with them at time 0.
    paced = SimulatedCluster(env, model, origin=ORIGIN)
    reports: list[Report] = []
    await paced.connect(reports.append)
    await paced.carry_out(effects)
    task = asyncio.create_task(pacer.run())
    await clock.wait(ORIGIN + 600.0)
    pacer.sync()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(expected) > 50
    assert reports[: len(expected)] == expected
