"""Forecasts: what the live state leads to, and how wrong it was."""

import json
from itertools import pairwise
from random import Random

import msgspec
import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SubmitJob
from controlplane.model.dependencies import After
from controlplane.model.events import GangPlaced, JobSucceeded, Recorded
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid
from studies.forecast.accuracy import ForecastAccuracy
from studies.forecast.forecast import Question, forecast
from studies.forecast.views import Forecast

QUIET = EngineOptions(resync_s=None, snapshot_every=None)


class Lab:
    """A live world, of which forecasts are asked."""

    def __init__(self, nodes: int = 2) -> None:
        self.env, self.log = VirtualTime(), MemoryLog()
        model = grid(1, nodes, 8, delays=Delays(start_s=5.0, stop_s=0.0))
        self.engine = Engine(
            SimpyClock(self.env), self.log, SimulatedCluster(self.env, model), QUIET
        )
        as_process(self.env, self.engine.run())
        self.env.run(1.0)

    def submit(self, name: str, gpus: int, length: float, estimate: float | None = None) -> str:
        spec = JobSpec(
            roles=(Role(name="Worker", replicas=max(1, gpus // 8), gpus=min(gpus, 8)),),
            done_when=DoneWhen("Worker"),
            hints=hints_of(Workload(length)),
            scheduling=Scheduling(estimate_s=estimate),
        )
        self.engine.submit(SubmitJob(id=name, job=name, namespace="default", name=name, spec=spec))
        return name

    def ask(self, job: str, **more) -> Forecast:
        return forecast(Question(self.engine.world.image(), job, float(self.env.now)), **more)

    def job(self, name: str):
        return self.engine.world.jobs[name]


def with_history(lab: Lab, lengths) -> None:
    """Jobs that have ended, so that there is something to learn from."""
    for number, length in enumerate(lengths):
        lab.submit(f"old-{number}", 1, length)
    lab.env.run(lab.env.now + 2 * sum(lengths))


def test_a_job_that_fits_starts_now_and_ends_as_those_before_it_did():
    lab = Lab()
    with_history(lab, [100.0] * 8)
    now = lab.env.now
    lab.submit("blocker", 16, 1_000.0)
    lab.env.run(now + 50.0)
    lab.submit("new", 8, 3.0)
    lab.env.run(now + 51.0)

    forecast = lab.ask("new")

    # What the simulated cluster knows (3 s, 1000 s) is not looked at: jobs of this kind take 100 s.
    assert forecast.start_p50 == pytest.approx(now + 105.0, abs=1.0)
    assert forecast.finish_p90 == pytest.approx(now + 210.0, abs=1.0)
    assert forecast.basis == "8 jobs that succeeded (same namespace and kind)"
    assert forecast.runs == 20


def test_a_job_waits_for_those_ahead_of_it_in_the_queue():
    lab = Lab()
    with_history(lab, [100.0] * 8)
    names = [lab.submit(f"j-{n}", 16, 100.0) for n in range(4)]
    lab.env.run(lab.env.now + 1.0)

    starts = [lab.ask(name).start_p50 for name in names]

    gaps = [b - a for a, b in pairwise(starts)]
    assert gaps == pytest.approx([105.0] * 3, abs=2.0)


def test_asking_changes_nothing_and_asking_again_gives_the_same():
    lab = Lab()
    lab.submit("a", 16, 500.0, estimate=400.0)
    lab.submit("b", 16, 500.0, estimate=400.0)
    lab.env.run(10.0)
    before = list(lab.log.events)

    one, two = lab.ask("b"), lab.ask("b")

    assert one == two
    assert list(lab.log.events) == before
    assert one.basis == "the job's own estimate"


def test_a_running_job_has_started_and_runs_longer_than_it_has():
    lab = Lab()
    with_history(lab, [50.0, 100.0, 150.0, 200.0, 400.0, 800.0])
    lab.submit("run", 8, 10_000.0)
    since = lab.env.now
    lab.env.run(since + 300.0)

    forecast = lab.ask("run")

    assert forecast.start_p50 == pytest.approx(lab.job("run").attempt.placed_at)
    # Only the two longest are left to be like.
    assert forecast.finish_p50 - since > 400.0


def test_quantiles_are_calibrated():
    """Over many worlds, about half start by p50, and nearly all by p90."""
    by_p50 = by_p90 = 0
    for seed in range(40):
        dice, lab = Random(seed), Lab(nodes=1)
        with_history(lab, [dice.lognormvariate(5.0, 0.6) for _ in range(30)])
        for n in range(3):
            lab.submit(f"j-{n}", 8, dice.lognormvariate(5.0, 0.6))
        lab.env.run(lab.env.now + 1.0)
        forecast = lab.ask("j-2")
        lab.env.run(lab.env.now + 20_000.0)
        actual = lab.job("j-2").attempt.placed_at
        by_p50 += actual <= forecast.start_p50
        by_p90 += actual <= forecast.start_p90

    assert 12 <= by_p50 <= 28
    assert by_p90 >= 31


def test_the_ledger_compares_forecasts_with_what_happened():
    ledger = ForecastAccuracy()
    forecast = Forecast(
        start_p50=100.0, start_p90=200.0, finish_p50=300.0, finish_p90=400.0,
        made_at=50.0, runs=20, basis="",
    )  # fmt: skip
    for job in ("a", "b"):
        ledger.note(job, forecast)

    ledger.record(
        [Recorded(1, 90.0, GangPlaced("a", 1, ())), Recorded(2, 150.0, GangPlaced("b", 1, ()))]
    )
    ledger.record([Recorded(3, 500.0, JobSucceeded("a"))])

    accuracy = ledger.accuracy()
    assert (accuracy.made, accuracy.starts.count, accuracy.finishes.count) == (2, 2, 1)
    assert accuracy.starts.mean_error_s == pytest.approx(30.0)
    assert accuracy.starts.mean_lateness_s == pytest.approx(20.0)
    assert (accuracy.starts.by_p50, accuracy.starts.by_p90) == (0.5, 1.0)
    assert (accuracy.finishes.by_p50, accuracy.finishes.by_p90) == (0.0, 0.0)


def test_a_ledger_that_is_kept_goes_on_where_it_was():
    forecast = Forecast(
        start_p50=100.0, start_p90=200.0, finish_p50=300.0, finish_p90=400.0,
        made_at=50.0, runs=20, basis="",
    )  # fmt: skip
    book = {}
    before = ForecastAccuracy(book)
    for job in ("a", "b", "gone"):
        before.note(job, forecast)
    before.record([Recorded(1, 90.0, GangPlaced("a", 1, ()))])

    after = ForecastAccuracy(json.loads(json.dumps(book)))
    lab = Lab(nodes=1)
    lab.submit("b", 8, 60.0)
    lab.env.run(lab.env.now + 1.0)
    placed = lab.job("b")
    # The process ended after b was placed and before that was noted; the third job is unknown.
    after.catch_up({"a": placed, "b": msgspec.structs.replace(placed, id="b")})
    after.record([Recorded(2, 500.0, JobSucceeded("b")), Recorded(3, 1e6, GangPlaced("b", 2, ()))])
    after.record([Recorded(4, 310.0, JobSucceeded("a")), Recorded(5, 9.9, JobSucceeded("gone"))])

    accuracy = after.accuracy()
    assert (accuracy.made, accuracy.starts.count, accuracy.finishes.count) == (3, 1, 2)
    assert accuracy.starts.mean_lateness_s == pytest.approx(-10.0)
    assert accuracy.finishes.mean_lateness_s == pytest.approx(105.0)


def test_a_spoilt_note_is_as_good_as_none():
    ledger = ForecastAccuracy({"sums": "what?", "a": {"start": 7}})
    ledger.record([Recorded(1, 90.0, GangPlaced("a", 1, ())), Recorded(2, 99.0, JobSucceeded("a"))])
    assert ledger.accuracy().starts.count == 0


# -------------------------------------------------------------------- arrays and dependencies


def whole_cluster(**more) -> JobSpec:
    return JobSpec(
        roles=(Role(name="Worker", replicas=2, gpus=8),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(100.0)),
        **more,
    )


def with_array(lab: Lab, array: str) -> float:
    """Submit an array whose members need the whole cluster for 100 s; return the time."""
    with_history(lab, [100.0] * 8)
    now = lab.env.now
    spec = whole_cluster(array=array)
    lab.engine.submit(SubmitJob(id="a", job="a", namespace="default", name="sweep", spec=spec))
    lab.env.run(now + 50.0)
    return now


def test_a_job_behind_the_members_of_an_array_waits_for_all_of_them():
    lab = Lab()
    now = with_array(lab, "0-3")
    lab.submit("new", 16, 1.0)
    lab.env.run(now + 51.0)
    assert lab.ask("new").start_p50 == pytest.approx(now + 4 * 105.0, abs=25.0)


@pytest.mark.parametrize(("asked_s", "ended"), [(51.0, 0), (150.0, 1), (270.0, 2), (350.0, 3)])
def test_members_that_are_not_submitted_yet_count_for_a_job_after_the_array(asked_s, ended):
    lab = Lab()
    now = with_array(lab, "0-3%1")
    spec = whole_cluster(after=(After("sweep"),))
    lab.engine.submit(SubmitJob(id="new", job="new", namespace="default", name="new", spec=spec))
    lab.env.run(now + asked_s)
    assert f"a-{ended + 1}" not in lab.engine.world.jobs
    assert sum(lab.job(f"a-{index}").finished for index in range(ended + 1)) == ended
    assert lab.ask("new").start_p50 == pytest.approx(now + 4 * 105.0, abs=25.0)


def test_a_member_has_a_forecast_of_its_own():
    lab = Lab()
    now = with_array(lab, "0-3")
    forecast = lab.ask("a-2")
    assert forecast.start_p50 == pytest.approx(now + 2 * 105.0, abs=15.0)
    assert forecast.finish_p50 == pytest.approx(now + 3 * 105.0, abs=20.0)
