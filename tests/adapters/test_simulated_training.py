"""Jobs that train on the simulated cluster: at the pace of their place, through faults and restarts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.database.notes import DatabaseNotes
from adapters.database.opening import open_database
from adapters.simulated_cluster.workload import Training, Workload
from controlplane.lifecycle.effects import Survey
from controlplane.model.commands import ReportCluster, ReportNodeLost, ReportRanks
from controlplane.model.failures import Cause
from controlplane.model.reasons import Loss, LossReason
from simulator.faults import PRESETS, Fault, FaultKind, FaultModel
from simulator.faults.job_failures import job_failure
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.events import Ended, MachineEvent
from simulator.machine.gang import Gang, Part, Work
from simulator.machine.machine import Machine
from simulator.machine.trainer import Trainer
from simulator.network.topology import ClusterModel, parse_cluster
from simulator.training.checkpoints import Checkpointing
from simulator.training.recipes import Recipe
from tests.adapters.test_simulated_cluster import ORIGIN, Bench, at_once
from tests.gangs import launch, on, placed, running, spec, stop

START_S = 5.0
FAT: dict[str, Any] = {"model": "vgg16", "compute_s": 0.05}


def _cluster(faults: FaultModel | None = None) -> ClusterModel:
    rack = {"name": "a", "nodes": 4, "gpus": 4, "gpu_type": "P100", "link": "pcie3", "net": "25GbE"}
    parsed = parse_cluster({"racks": [rack], "start_delay_s": START_S, "stop_delay_s": 2})
    return ClusterModel(parsed.nodes, parsed.delays, faults or FaultModel(), 3, parsed.fabric)


def _work(**fields: Any) -> Workload:
    return Workload(training=Training(**({"model": "resnet50", "steps": 100} | fields)))


def _alone_s(recipe: Recipe, gpus: dict[str, int]) -> float:
    trainer = Trainer(_cluster())
    trainer.begin("x", recipe, gpus, steps=1, now=0.0)
    return trainer.step_s("x")


def _ends(bench: Bench, until_s: float = 1e7) -> dict[str, tuple[float, ReportRanks]]:
    return {
        report.job: (at, report)
        for at, report in bench.until(until_s)
        if isinstance(report, ReportRanks) and report.exited
    }


def test_a_gang_trains_at_the_pace_of_its_place() -> None:
    bench = Bench(_cluster())
    bench.ask(launch(placed(on("a-0:0,1", "a-1:0,1"), spec(gpus=2, work=_work(**FAT)))))
    at, report = _ends(bench)["job-1"]
    step_s = _alone_s(Recipe(**FAT), {"a-0": 2, "a-1": 2})
    assert at == pytest.approx(START_S + 100 * step_s)
    assert [(end.rank, end.code) for end in report.exited] == [(0, 0), (1, 0)]


def test_the_same_job_is_faster_in_one_box() -> None:
    times = []
    for slots in (on("a-0:0,1", "a-0:2,3"), on("a-0:0,1", "a-1:0,1")):
        bench = Bench(_cluster())
        bench.ask(launch(placed(slots, spec(gpus=2, work=_work(**FAT)))))
        times.append(_ends(bench)["job-1"][0])
    assert times[0] < 0.7 * times[1]


def test_neighbours_on_a_link_slow_each_other_until_one_is_done() -> None:
    bench = Bench(_cluster())
    slots = {"one": on("a-0:0,1", "a-1:0,1"), "two": on("a-0:2,3", "a-1:2,3")}
    for name, steps in (("one", 100), ("two", 300)):
        work = _work(**FAT | {"steps": steps})
        bench.ask(launch(placed(slots[name], spec(gpus=2, work=work), id=name)))
    ends = _ends(bench)
    alone = _alone_s(Recipe(**FAT), {"a-0": 2, "a-1": 2})
    assert ends["one"][0] > START_S + 1.2 * 100 * alone
    # While both ran, both were slow; afterwards the second had the link to itself.
    together_s = ends["one"][0] - START_S
    assert ends["two"][0] == pytest.approx(START_S + together_s + 200 * alone)


def test_an_attempt_after_a_fault_goes_on_at_the_last_checkpoint() -> None:
    step_s = _alone_s(Recipe("resnet50"), {"a-0": 4})
    crash_s = START_S + 250.0
    bench = Bench(_cluster(FaultModel(script=(Fault(crash_s, "a-0", 60.0, cause="HBM"),))))
    work = _work(steps=1000, checkpoint_s=100.0)
    job = placed(on("a-0:0,1,2,3"), spec(1, gpus=4, work=work))
    bench.ask(launch(job))
    lost = [r for _, r in bench.until(crash_s + 1) if isinstance(r, ReportRanks) and r.exited]
    assert lost[0].exited[0].cause is Cause.NODE_LOST
    assert lost[0].exited[0].loss == Loss(LossReason.CRASHED, "a-0", "HBM")
    again = placed(on("a-1:0,1,2,3"), spec(1, gpus=4, work=work), attempt=2, at=crash_s + 1)
    bench.ask(launch(again))
    at, _ = _ends(bench)["job-1"]
    # 250 s were done, of which two checkpoints hold 200.
    assert at == pytest.approx(crash_s + 1 + START_S + 1000 * step_s - 200.0, rel=1e-6)
    assert sum(bench.cluster.lost_s.values()) == pytest.approx(50.0)


def test_spot_notice_lets_a_gang_save_all() -> None:
    fault = Fault(START_S + 250.0, "a-0", 60.0, FaultKind.SPOT_RECLAIM, notice_s=120.0)
    bench = Bench(_cluster(FaultModel(script=(fault,))))
    work = _work(steps=100_000, checkpoint_s=100.0, checkpoint_write_s=10.0)
    bench.ask(launch(placed(on("a-0:0,1,2,3"), spec(1, gpus=4, work=work))))
    bench.until(START_S + 251.0)
    assert sum(bench.cluster.lost_s.values()) == 0.0


def test_a_spot_notice_is_reported_before_the_node_goes() -> None:
    fault = Fault(START_S + 250.0, "a-0", 60.0, FaultKind.SPOT_RECLAIM, notice_s=120.0)
    bench = Bench(_cluster(FaultModel(script=(fault,))))
    work = _work(steps=100_000, checkpoint_s=100.0, checkpoint_write_s=10.0)
    job = placed(on("a-0:0,1", "a-1:0,1"), spec(2, gpus=2, work=work))
    bench.ask(launch(job))
    reports = [(at, r) for at, r in bench.until(START_S + 131.0) if at > START_S]
    (at, leaving), (_, lost) = reports
    assert at == START_S + 130.0
    assert isinstance(leaving, ReportRanks)
    assert [(x.rank, x.cause) for x in leaving.leaving] == [(0, Cause.SPOT_RECLAIM)]
    assert lost == ReportNodeLost(node="a-0", reason=LossReason.RECLAIMED, left_s=120.0)
    # The gang is moved: it writes a checkpoint, which takes longer than to stop, and is gone.
    bench.ask(stop(running(job, ORIGIN + START_S)))
    gone = [(at, r) for at, r in bench.until(START_S + 249.0) if isinstance(r, ReportRanks)]
    assert [(at, r.gone) for at, r in gone if r.gone] == [(pytest.approx(START_S + 141.0), (0, 1))]
    assert sum(bench.cluster.lost_s.values()) == 0.0
    # A survey of the nodes meanwhile reports that this one takes no work.
    bench.ask(Survey())
    (survey,) = [r for _, r in bench.news() if isinstance(r, ReportCluster)]
    assert [node.name for node in survey.down] == ["a-0"]


def test_notice_that_is_too_short_for_a_checkpoint_saves_nothing() -> None:
    fault = Fault(START_S + 250.0, "a-0", 60.0, FaultKind.SPOT_RECLAIM, notice_s=5.0)
    bench = Bench(_cluster(FaultModel(script=(fault,))))
    work = _work(steps=100_000, checkpoint_s=100.0, checkpoint_write_s=10.0)
    job = placed(on("a-0:0,1,2,3"), spec(1, gpus=4, work=work))
    bench.ask(launch(job))
    bench.until(START_S + 246.0)
    bench.ask(stop(running(job, ORIGIN + START_S)))
    bench.until(START_S + 251.0)
    # Two checkpoints of 110 s each hold the first 220 s of 246.
    assert sum(bench.cluster.lost_s.values()) == pytest.approx(26.0)


def test_a_slow_node_is_felt_while_it_is_slow() -> None:
    step_s = _alone_s(Recipe("resnet50"), {"a-0": 4})
    slow = Fault(START_S + 10.0, "a-0", 20.0, FaultKind.SLOW, factor=0.5)
    bench = Bench(_cluster(FaultModel(script=(slow,))))
    bench.ask(launch(placed(on("a-0:0,1,2,3"), spec(1, gpus=4, work=_work(steps=200)))))
    at, _ = _ends(bench)["job-1"]
    assert at == pytest.approx(START_S + 200 * step_s + 10.0, rel=0.01)


def test_a_recipe_that_cannot_be_followed_ends_with_the_reason() -> None:
    for fields, message in (
        ({"model": "nonesuch"}, "workload.training.model: no model 'nonesuch'"),
        ({"scheme": "magic"}, "workload.training.scheme"),
        ({"tensor": 3}, "workload.training.tensor"),
        ({"steps": 0}, "workload.training.steps"),
    ):
        bench = Bench(_cluster())
        bench.ask(launch(placed(on("a-0:0"), spec(1, work=_work(**fields)))))
        _, report = _ends(bench, 100.0)["job-1"]
        assert report.exited[0].code == 2
        assert message in report.exited[0].detail


def test_on_unknown_hardware_the_given_duration_counts() -> None:
    cluster = parse_cluster({"racks": [{"name": "a", "gpu_type": "Z9000"}], "start_delay_s": 5})
    bench = Bench(cluster)
    work = Workload(duration_s=33.0, training=Training(model="resnet50"))
    bench.ask(launch(placed(on("a-0:0"), spec(1, work=work))))
    assert _ends(bench)["job-1"][0] == 38.0


def test_a_gang_that_ran_while_the_control_plane_was_away_has_done_its_steps() -> None:
    step_s = _alone_s(Recipe("resnet50"), {"a-0": 1})
    bench = Bench(_cluster(), begin_at_s=50.0)
    job = running(placed(on("a-0:0"), spec(1, work=_work(steps=1000))), at=1_700_000_010.0)
    bench.ask(launch(job))
    at, _ = _ends(bench)["job-1"]
    assert at == pytest.approx(10.0 + 1000 * step_s, abs=6.0)


def test_a_stopped_gang_frees_the_links_at_once() -> None:
    bench = Bench(_cluster())
    jobs = {
        name: placed(slots, spec(gpus=2, work=_work(**FAT | {"steps": 1000})), id=name)
        for name, slots in (
            ("one", on("a-0:0,1", "a-1:0,1")),
            ("two", on("a-0:2,3", "a-1:2,3")),
        )
    }
    bench.ask(*(launch(job) for job in jobs.values()))
    bench.until(100.0)
    bench.ask(stop(jobs["two"]))
    end = _ends(bench)["one"][0]
    alone = 1000 * _alone_s(Recipe(**FAT), {"a-0": 2, "a-1": 2})
    assert alone + START_S < end < alone + 100.0


def test_conditions_make_jobs_fail_for_published_reasons() -> None:
    cluster = _cluster(FaultModel(preset=PRESETS["acme"]))
    failing = next(
        (name, failure)
        for name in (f"job-{i}" for i in range(99))
        if (failure := job_failure(PRESETS["acme"], f"default/{name}", 1, 3))
        and failure.after_s < 1e4
    )
    name, failure = failing
    bench = Bench(cluster)
    work = Workload(duration_s=1e6)
    bench.ask(launch(placed(on("a-0:0"), spec(1, work=work), id=name)))
    at, report = _ends(bench, 2e4)[name]
    assert at == pytest.approx(START_S + failure.after_s)
    assert report.exited[0].detail == failure.reason.name
    assert report.exited[0].code == failure.reason.exit_code


def test_a_plain_duration_is_not_touched_by_the_physics() -> None:
    bench = Bench(_cluster())
    bench.ask(launch(placed(on("a-0:0", "a-1:0"), spec(work=Workload(duration_s=60.0)))))
    assert _ends(bench)["job-1"][0] == START_S + 60.0
    assert bench.cluster._machine.training._made is None


def test_telemetry_shows_what_the_model_knows() -> None:
    bench = Bench(_cluster())
    slots = {
        "net": on("a-0:0,1", "a-1:0,1"),
        "box": on("a-2:0,1,2,3"),
        "plain": on("a-3:0"),
    }
    works = {"net": _work(**FAT), "box": _work(), "plain": Workload(duration_s=1e4)}
    for name, place in slots.items():
        gpus = len(place[0].devices)
        job = placed(place, spec(len(place), gpus=gpus, work=works[name]), id=name)
        bench.ask(launch(job))
    bench.until(START_S + 1.0)
    seen = {(d.node, d.device): d for d in at_once(bench.cluster.devices())}
    assert len(seen) == 16
    assert seen["a-0", 0].job == "net"
    # Fat gradients over a thin network: the GPU waits; in one box it does not.
    assert seen["a-0", 0].duty < 0.5 < 0.9 < seen["a-2", 0].duty
    assert seen["a-3", 0].duty == 1.0
    idle, busy = seen["a-3", 1], seen["a-2", 0]
    assert (idle.job, idle.duty) == ("", 0.0)
    assert idle.power_w < busy.power_w <= 300
    assert idle.temperature_c < busy.temperature_c < 90
    assert 0 < busy.memory_used_mib <= busy.memory_total_mib
    links = {link.link: link for link in at_once(bench.cluster.links())}
    assert links["nic/a-0"].used > 0.3
    assert links["nic/a-2"].used == 0.0
    assert links["nic/a-0"].capacity_gbps == pytest.approx(20.0)


def test_telemetry_names_the_rank_that_holds_a_device() -> None:
    bench = Bench(_cluster())
    bench.ask(launch(placed(on("a-0:0,1", "a-1:2,3"), spec(2, gpus=2, work=_work()), id="net")))
    bench.until(START_S + 1.0)
    held = {(d.node, d.device): d.rank for d in at_once(bench.cluster.devices()) if d.job}
    assert held == {("a-0", 0): 0, ("a-0", 1): 0, ("a-1", 2): 1, ("a-1", 3): 1}
    assert {d.rank for d in at_once(bench.cluster.devices()) if not d.job} == {None}


# ------------------------------------------------------------- gangs that grow and shrink


def _machine() -> tuple[VirtualTime, Machine, list[tuple[float, MachineEvent]]]:
    env = VirtualTime()
    events: list[tuple[float, MachineEvent]] = []
    machine = Machine(env, _cluster(), lambda what: events.append((env.now, what)))
    return env, machine, events


def _ended(events: list[tuple[float, MachineEvent]]) -> dict[object, float]:
    return {what.key: at for at, what in events if isinstance(what, Ended)}


def test_ranks_that_join_share_the_work_and_end_with_the_others() -> None:
    work = Work(Recipe(**FAT), 1000.0, resume="job", gpus=4)
    first, second = on("a-0:0,1", "a-1:0,1"), on("a-0:0,1", "a-1:0,1", "a-2:0,1", "a-3:0,1")
    alone_s = _alone_s(Recipe(**FAT), {"a-0": 2, "a-1": 2})
    both_s = _alone_s(Recipe(**FAT), {f"a-{i}": 2 for i in range(4)})
    env, machine, events = _machine()
    machine.start(Gang("whole", first, (Part((0, 1), 0.0, work=work),)))
    joined_s = START_S + 400 * alone_s
    env.run(until=joined_s - START_S)
    machine.start(Gang("more", second, (Part((2, 3), 0.0, work=work),)))
    env.run()
    # 600 steps of four GPUs were left, which are 300 of eight.
    ends = _ended(events)
    assert ends["whole"] == pytest.approx(joined_s + 300 * both_s)
    assert ends["more"] == ends["whole"]


def test_ranks_that_leave_make_the_others_go_on_alone() -> None:
    work = Work(Recipe(**FAT), 1000.0, resume="job", gpus=4)
    both_s = _alone_s(Recipe(**FAT), {"a-0": 2, "a-1": 2})
    alone_s = _alone_s(Recipe(**FAT), {"a-0": 2})
    env, machine, events = _machine()
    machine.start(Gang("whole", on("a-0:0,1", "a-1:0,1"), (Part((0, 1), 0.0, work=work),)))
    left_s = START_S + 500 * both_s
    env.run(until=left_s - 2.0)
    machine.stop_ranks("whole", (1,))
    env.run()
    assert _ended(events)["whole"] == pytest.approx(left_s + 2 * 500 * alone_s)


def test_a_gang_that_begins_with_fewer_ranks_has_more_steps_before_it() -> None:
    env, machine, events = _machine()
    work = Work(Recipe(**FAT), 1000.0, resume="job", gpus=8)
    machine.start(Gang("few", on("a-0:0,1"), (Part((0,), 0.0, work=work),)))
    env.run()
    alone_s = _alone_s(Recipe(**FAT), {"a-0": 2})
    assert _ended(events)["few"] == pytest.approx(START_S + 4 * 1000 * alone_s)


def test_what_a_crew_saved_counts_for_another_size() -> None:
    work = Work(Recipe(**FAT, checkpoint=Checkpointing(10.0)), 1000.0, resume="job", gpus=4)
    both_s = _alone_s(work.recipe, {"a-0": 2, "a-1": 2})
    alone_s = _alone_s(work.recipe, {"a-0": 2})
    env, machine, events = _machine()
    machine.start(Gang("whole", on("a-0:0,1", "a-1:0,1"), (Part((0, 1), 0.0, work=work),)))
    env.run(until=START_S + 500 * both_s)
    machine.fail("a-1", None)
    machine.stop("whole")
    again_s = env.now + 5.0
    env.run(until=again_s)
    machine.start(Gang("again", on("a-0:0,1"), (Part((0,), 0.0, work=work),)))
    env.run()
    kept = 500 * both_s // 10.0 * 10.0 / (1000 * both_s)
    left_s = (1.0 - kept) * 2 * 1000 * alone_s
    assert _ended(events)["again"] == pytest.approx(again_s + START_S + left_s)


# ------------------------------------------------------------- checkpoints that outlive a process


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("database_url") if request.param == "postgres" else ""


async def test_a_checkpoint_outlives_the_process_that_simulates(tmp_path: Path, url: str) -> None:
    step_s = _alone_s(Recipe("resnet50"), {"a-0": 4})
    crash_s = START_S + 250.0
    model = _cluster(FaultModel(script=(Fault(crash_s, "a-0", 60.0),)))
    work = _work(steps=1000, checkpoint_s=100.0)
    job = placed(on("a-0:0,1,2,3"), spec(1, gpus=4, work=work))
    async with _saved_in(tmp_path, url) as saved:
        before = Bench(model, saved=saved)
        before.ask(launch(job))
        before.until(crash_s + 1.0)
    # Another process, which finds nothing but what was kept.
    async with _saved_in(tmp_path, url) as saved:
        after = Bench(model, crash_s + 1.0, saved=saved)
        again = placed(on("a-1:0,1,2,3"), spec(1, gpus=4, work=work), attempt=2, at=crash_s + 1)
        after.ask(launch(again))
        at, _ = _ends(after)["job-1"]
        assert at == pytest.approx(crash_s + 1 + START_S + 1000 * step_s - 200.0, rel=1e-6)
    async with _saved_in(tmp_path, url) as saved:
        assert not saved


@asynccontextmanager
async def _saved_in(folder: Path, url: str) -> AsyncIterator[Any]:
    database = await open_database(url or folder / "m.db")
    async with DatabaseNotes(database, clock=AsyncioClock()) as notes:
        saved = notes.book("checkpoints")
        await notes.load()
        yield saved
    await database.close()
