"""What every Cluster promises, whatever stands behind it.

A harness starts a cluster, collects its reports, and lets its time pass. Another adapter joins
by adding its harness to `HARNESSES`.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.clocks.pacer import Pacer
from adapters.kubernetes.api.connection import Connection, Limits
from adapters.kubernetes.api.kubeconfig import Access
from adapters.kubernetes.cluster import KubernetesCluster
from adapters.kubernetes.observe.labels import Document, run_of
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, workload_of
from controlplane.lifecycle.effects import Effect, LaunchGang, Survey
from controlplane.lifecycle.job import Job
from controlplane.model.commands import Report, ReportCluster, ReportRanks
from controlplane.model.failures import Cause, Exit
from controlplane.model.spec import RestartScope
from controlplane.ports import Cluster
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import grid
from tests.fake_kubernetes import FakeKubernetes, Fate
from tests.gangs import launch, on, once_more, placed, queued, running, spec, stop

ORIGIN = 1_700_000_000.0


class Harness(Protocol):
    """A cluster with at least two nodes, of two free devices each, and some way to wait for it."""

    cluster: Cluster
    nodes: list[str]
    # How long a workload should run that is to end while a test waits for it.
    short_s: float
    reports: list[Report]

    def now(self) -> float: ...

    async def until(self, condition: Callable[[], bool]) -> None:
        """Lets time pass until the condition holds, and fails if it never does."""

    async def quiet(self) -> None:
        """Lets enough time pass for everything under way to have been reported."""


# -------------------------------------------------------------------- harnesses


class Simulated:
    """The simulated cluster in virtual time."""

    short_s = 60.0

    def __init__(self) -> None:
        self.env = VirtualTime()
        model = grid(2, 2, 4)
        self.nodes = [node.name for node in model.nodes]
        self.reports: list[Report] = []
        self.cluster: Cluster = SimulatedCluster(
            self.env, model, origin=ORIGIN, sync=lambda: self.sync()
        )

    def sync(self) -> None:
        """Nothing: virtual time stands still during a call."""

    def now(self) -> float:
        return ORIGIN + self.env.now

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self.env.peek() < float("inf"), f"nothing more will happen: {self.reports}"
            self.env.step()

    async def quiet(self) -> None:
        self.env.run(until=self.env.now + 300.0)


class Paced(Simulated):
    """The same under asyncio, ten thousand times as fast as real time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = AsyncioClock(start=ORIGIN, speed=10_000.0)
        self.pacer = Pacer(self.env, self.clock.twin(), origin=ORIGIN)

    def sync(self) -> None:
        self.pacer.sync()

    def now(self) -> float:
        return self.clock.now()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60.0):
            while not condition():
                await self.clock.wait(self.clock.now() + 5.0)

    async def quiet(self) -> None:
        await self.clock.wait(self.clock.now() + 300.0)
        self.pacer.sync()


@asynccontextmanager
async def simulated() -> AsyncIterator[Harness]:
    yield Simulated()


@asynccontextmanager
async def paced() -> AsyncIterator[Harness]:
    harness = Paced()
    task = asyncio.create_task(harness.pacer.run())
    try:
        yield harness
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class OnKubernetes:
    """The Kubernetes adapter on an API server of our own, in real time."""

    short_s = 0.3

    def __init__(self, api: FakeKubernetes, cluster: KubernetesCluster) -> None:
        self.api = api
        self.nodes = [f"node-{i}" for i in range(4)]
        for node in self.nodes:
            api.kubelets.add_node(node, gpus=4)
        self.reports: list[Report] = []
        self.cluster: Cluster = WithFates(api, cluster)
        self._began = asyncio.get_running_loop().time()

    def now(self) -> float:
        return ORIGIN + asyncio.get_running_loop().time() - self._began

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60.0):
            while not condition():  # noqa: ASYNC110 - it may be anything
                await asyncio.sleep(0.005)

    async def quiet(self) -> None:
        await asyncio.sleep(0.5)


class WithFates:
    """Gives the fake kubelets the workload of each job, and passes everything on."""

    def __init__(self, api: FakeKubernetes, cluster: KubernetesCluster) -> None:
        self._cluster = cluster
        self._jobs: dict[str, Job] = {}
        api.kubelets.fate = self._fate
        self.connect, self.logs = cluster.connect, cluster.logs

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        self._jobs |= {e.job_id: e.job for e in effects if isinstance(e, LaunchGang)}
        await self._cluster.carry_out(effects)

    def _fate(self, pod: Document) -> Fate:
        mark = run_of(pod)
        assert mark is not None
        work = workload_of(self._jobs[mark.job].spec)
        failing = work.exit_code and mark.attempt + mark.incarnation <= (
            work.failing_attempts or 1_000
        )
        if failing and mark.rank == work.exit_rank:
            return Fate(work.duration_s, work.exit_code)
        alone = self._jobs[mark.job].spec.restart.scope is RestartScope.RANK
        return Fate() if failing and not alone else Fate(work.duration_s, lines=("one", "two"))


@asynccontextmanager
async def on_kubernetes() -> AsyncIterator[Harness]:
    async def instance() -> str:
        return "test"

    with tempfile.TemporaryDirectory() as folder:
        async with FakeKubernetes(Path(folder)) as api:
            access = Access(kubeconfig=api.kubeconfig)
            connection = await Connection.open(access, Limits(qps=0))
            cluster = KubernetesCluster(connection, instance)
            try:
                yield OnKubernetes(api, cluster)
            finally:
                await cluster.close()


HARNESSES: dict[str, Callable[[], AbstractAsyncContextManager[Harness]]] = {
    "simulated": simulated,
    "paced": paced,
    "kubernetes": on_kubernetes,
}


@pytest.fixture(params=HARNESSES)
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with HARNESSES[request.param]() as harness:
        await harness.cluster.connect(harness.reports.append)
        yield harness


# -------------------------------------------------------------------- what was reported


class Facts:
    """What the reports of one attempt add up to."""

    def __init__(self, harness: Harness, job: Job) -> None:
        self.harness, self.job = harness, job

    @property
    def reports(self) -> list[ReportRanks]:
        attempt = self.job.attempt
        assert attempt is not None
        return [
            report
            for report in self.harness.reports
            if isinstance(report, ReportRanks)
            if (report.job, report.attempt) == (self.job.id, attempt.number)
        ]

    def of_incarnation(self, number: int) -> list[ReportRanks]:
        return [report for report in self.reports if report.incarnation == number]

    @property
    def started(self) -> set[int]:
        return {rank for report in self.reports for rank in report.started}

    @property
    def exits(self) -> dict[int, Exit]:
        return {end.rank: end for report in self.reports for end in report.exited}

    @property
    def gone(self) -> set[int]:
        return {rank for report in self.reports for rank in report.gone}

    @property
    def over(self) -> set[int]:
        return self.exits.keys() | self.gone


def gang(harness: Harness, *, attempt: int = 1, work: Workload | None = None) -> Job:
    """Two ranks on two nodes."""
    first, second, *_ = harness.nodes
    work = work or Workload(duration_s=harness.short_s)
    placement = on(f"{first}:0", f"{second}:1")
    return placed(placement, spec(work=work), attempt=attempt, at=harness.now())


ENDLESS = Workload(duration_s=1e6)


# -------------------------------------------------------------------- the promises


async def test_a_survey_reports_every_node(harness: Harness) -> None:
    await harness.cluster.carry_out([Survey()])
    await harness.until(lambda: len(harness.reports) > 0)
    surveys = [report for report in harness.reports if isinstance(report, ReportCluster)]
    assert sorted(node.name for node in surveys[-1].up) == sorted(harness.nodes)
    assert surveys[-1].down == ()


async def test_every_rank_of_a_gang_starts_and_ends(harness: Harness) -> None:
    job = gang(harness)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.over == {0, 1})
    assert facts.exits == {0: Exit(0, 0), 1: Exit(1, 0)}
    begun = set[int]()
    for report in facts.reports:
        begun |= set(report.started)
        assert {end.rank for end in report.exited} <= begun


async def test_a_launch_asked_again_starts_nothing_and_reports_anew(harness: Harness) -> None:
    job = gang(harness, work=ENDLESS)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job), launch(job)])
    await harness.until(lambda: facts.started == {0, 1})
    harness.reports.clear()
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.started == {0, 1})
    await harness.quiet()
    assert not facts.over
    assert {report.incarnation for report in facts.reports} == {0}


async def test_a_launch_asked_again_after_the_end_reports_the_end(harness: Harness) -> None:
    job = gang(harness)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.over == {0, 1})
    harness.reports.clear()
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.over == {0, 1})
    assert facts.started <= {0, 1}
    assert {end.code for end in facts.exits.values()} == {0}


async def test_after_a_stop_every_rank_is_over(harness: Harness) -> None:
    job = gang(harness, work=ENDLESS)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.started == {0, 1})
    await harness.cluster.carry_out([stop(job), stop(job)])
    await harness.until(lambda: facts.over == {0, 1})


async def test_a_stop_during_the_start_leaves_nothing_behind(harness: Harness) -> None:
    job = gang(harness, work=ENDLESS)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job), stop(job)])
    await harness.until(lambda: facts.over == {0, 1})


async def test_a_stop_asked_again_is_answered_again(harness: Harness) -> None:
    job = gang(harness, work=ENDLESS)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job), stop(job)])
    await harness.until(lambda: facts.over == {0, 1})
    harness.reports.clear()
    await harness.cluster.carry_out([stop(job)])
    await harness.until(lambda: facts.over == {0, 1})


async def test_a_stop_of_an_unknown_attempt_reports_all_of_it_gone(harness: Harness) -> None:
    job = running(gang(harness), harness.now())
    facts = Facts(harness, job)
    await harness.cluster.carry_out([stop(job)])
    await harness.until(lambda: facts.gone == {0, 1})


async def test_a_stopped_attempt_is_not_launched_again(harness: Harness) -> None:
    job = gang(harness)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job), stop(job)])
    await harness.until(lambda: facts.over == {0, 1})
    harness.reports.clear()
    await harness.cluster.carry_out([launch(job)])
    await harness.quiet()
    assert not facts.started


async def test_an_older_attempt_is_not_launched(harness: Harness) -> None:
    old, new = gang(harness, attempt=1), gang(harness, attempt=2)
    await harness.cluster.carry_out([launch(new), launch(old)])
    await harness.until(lambda: Facts(harness, new).over == {0, 1})
    await harness.quiet()
    assert not Facts(harness, old).started


async def test_the_next_attempt_runs_where_the_last_one_was(harness: Harness) -> None:
    old, new = gang(harness, attempt=1, work=ENDLESS), gang(harness, attempt=2)
    await harness.cluster.carry_out([launch(old), stop(old)])
    await harness.until(lambda: Facts(harness, old).over == {0, 1})
    await harness.cluster.carry_out([launch(new)])
    await harness.until(lambda: Facts(harness, new).exits.keys() == {0, 1})


async def test_a_failing_rank_is_reported_with_its_code(harness: Harness) -> None:
    work = Workload(duration_s=harness.short_s, exit_code=3, exit_rank=1)
    job = gang(harness, work=work)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: 1 in facts.exits)
    assert facts.exits[1].code == 3
    assert facts.exits[1].cause is Cause.EXIT


async def test_a_rank_that_is_to_run_once_more_does_so_alone(harness: Harness) -> None:
    first, second, *_ = harness.nodes
    work = Workload(duration_s=harness.short_s, exit_code=3, exit_rank=1, failing_attempts=1)
    job = placed(on(f"{first}:0", f"{second}:1"), spec(work=work, scope=RestartScope.RANK))
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.over == {0, 1})
    assert facts.exits[1].code == 3

    again = once_more(running(job, harness.now()), rank=1)
    harness.reports.clear()
    await harness.cluster.carry_out([launch(again)])
    await harness.until(lambda: any(r.exited for r in facts.of_incarnation(1)))
    # The same may be reported more than once.
    assert {r.started for r in facts.of_incarnation(1) if r.started} == {(1,)}
    assert {r.exited for r in facts.of_incarnation(1) if r.exited} == {(Exit(1, 0),)}


async def test_a_late_subscriber_receives_events_from_then_on(harness: Harness) -> None:
    job = gang(harness, work=ENDLESS)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.started == {0, 1})
    harness.reports = []
    await harness.cluster.connect(harness.reports.append)
    await harness.cluster.carry_out([stop(running(job, harness.now()))])
    await harness.until(lambda: facts.over == {0, 1})


async def test_logs_are_at_most_as_long_as_asked(harness: Harness) -> None:
    job = gang(harness, work=ENDLESS)
    facts = Facts(harness, job)
    await harness.cluster.carry_out([launch(job)])
    await harness.until(lambda: facts.started == {0, 1})
    lines = await harness.cluster.logs(running(job, harness.now()), 1, 100)
    assert len(await harness.cluster.logs(running(job, harness.now()), 1, 1)) <= 1
    assert all("\n" not in line for line in lines)


async def test_logs_of_a_job_that_was_never_placed_are_empty(harness: Harness) -> None:
    assert await harness.cluster.logs(queued(spec()), 0, 10) == []
