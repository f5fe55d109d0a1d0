"""Errors thrown at random from every place that works for one job: only that job may suffer.

Each seed is a world: some jobs, a simulated cluster, an engine that is started again whenever it stops. The
same world runs twice, once as it is and once with errors thrown for some of the jobs (the victims). Then every
other job must have ended as it did without them, nothing may be left of any job, and the log must fold to what
was live and be decided again alike, without the errors.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster import cluster as cluster_module
from adapters.simulated_cluster import recovery
from adapters.simulated_cluster import training as training_module
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.telemetry import SimulatedTelemetry
from adapters.simulated_cluster.workload import Training, Workload, hints_of
from controlplane import engine as engine_module
from controlplane.audit.redecide import redecide
from controlplane.decisions import autonomous, reports, step
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.job import Job
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role
from controlplane.scheduling import scheduling_pass
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.gang_training import Training as MachineTraining
from simulator.machine.machine import Machine
from simulator.network.topology import ClusterModel, Delays, grid
from tests.scenarios.scenario import run_now

UNTIL_S = 6_000.0
NAME = "isolation.example/name"
ERRORS = (KeyError, ValueError, TypeError, IndexError, RuntimeError, OSError)
SEEDS = 63
SLOW_SEEDS = 2_000


class Thrower:
    """Decides who is hit, and how often."""

    def __init__(self, seed: int, victims: frozenset[str], share: float) -> None:
        self.dice = Random(f"throws/{seed}")
        self.victims = victims
        self.share = share
        # As often a bug as anything else.
        self.error = self.dice.choice((AssertionError, self.dice.choice(ERRORS)))
        self.thrown = 0

    def throw(self, job: str, *, always: bool = False) -> None:
        if job in self.victims and (always or self.dice.random() < self.share):
            self.thrown += 1
            raise self.error(f"thrown for {job}")


# Where an error is thrown: what is replaced, and how the job is read off the arguments.
Point = tuple[Any, str, Callable[..., str]]


def _of_key(machine: object, key: Any, *rest: object, **named: object) -> str:
    return str(key.job)


def _of_run(machine: object, run: Any, *rest: object, **named: object) -> str:
    return str(run.gang.key.job)


# What the cluster does for a job.
CLUSTER: dict[str, Point] = {
    "launch": (SimulatedCluster, "_launch", lambda self, job: job.id),
    "stop": (SimulatedCluster, "_stop", lambda self, job: job.id),
    "workload": (cluster_module, "desired_work", lambda job, *rest: job.id),
    # Asks the kind for its duties; the name of the job is not in a spec, so it is noted there.
    "duties": (training_module, "_by_role", lambda spec: spec.annotations.get(NAME, "")),
    "failure": (cluster_module, "planned_failure", lambda job, *rest: job.id),
    "report ranks": (SimulatedCluster, "_report_ranks", _of_key),
    "start": (Machine, "start", lambda self, gang, **named: gang.key.job),
    "come up": (Machine, "_come_up", _of_run),
    "work": (Machine, "_work", _of_run),
    "end": (Machine, "_end_parts", _of_run),
    "remove": (Machine, "_remove", _of_run),
    "train": (MachineTraining, "begin", lambda self, gang, *rest: gang.key.job),
}
# What the engine decides for a job.
CORE: dict[str, Point] = {
    "report": (
        engine_module,
        "decide",
        lambda world, command, now: command.job if isinstance(command, c.ReportRanks) else "",
    ),
    "settle": (reports, "settle", lambda draft: draft.job.id),
    "due": (autonomous, "fire_timers", lambda job, *rest: job.id),
    "newly wanted": (step, "newly_wanted", lambda before, job: job.id),
    "wanted": (engine_module, "wanted", lambda job: job.id),
}
ALWAYS: dict[str, Point] = {
    "schedule": (scheduling_pass.Pass, "_try_to_start", lambda self, gang: gang.id)
}
POINTS = {**CLUSTER, **CORE, **ALWAYS}


class PortThrower:
    """A cluster whose every method may raise for a victim."""

    def __init__(self, cluster: SimulatedCluster, thrower: Thrower | None) -> None:
        self._cluster = cluster
        self._thrower = thrower

    async def connect(self, report: Any) -> None:
        await self._cluster.connect(report)

    async def carry_out(self, effects: Any) -> None:
        for effect in effects:
            if self._thrower is not None:
                self._thrower.throw(getattr(effect, "job_id", ""))
            await self._cluster.carry_out([effect])

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return await self._cluster.logs(job, rank, lines_max)


class IsolatedWorld:
    def __init__(self, seed: int, point: str = "", monkeypatch: Any = None) -> None:
        self.seed = seed
        dice = Random(seed)
        self.names = [f"j{i}" for i in range(dice.randint(3, 7))]
        self.specs = {name: a_spec(dice, name) for name in self.names}
        self.at = {name: dice.uniform(0.0, 200.0) for name in self.names}
        self.victims = frozenset(dice.sample(self.names, dice.randint(1, 2)))
        self.thrower: Thrower | None = None
        if point:
            self.thrower = Thrower(seed, self.victims, dice.choice([0.1, 0.5, 1.0]))
            if point != "port":
                plant(monkeypatch, point, self.thrower)
        self.env = VirtualTime()
        self.simulated = SimulatedCluster(self.env, a_model())
        self.cluster = PortThrower(self.simulated, self.thrower if point == "port" else None)
        self.log = MemoryLog()
        self.deaths: list[Exception] = []
        self.engine: Engine | None = None

    def run(self) -> "IsolatedWorld":
        as_process(self.env, self._supervise())
        for name in self.names:
            self.env.call_after(self.at[name], lambda name=name: self._submit(name))
        self.env.run(until=UNTIL_S / 2)
        if self.thrower is not None:
            # What cannot be stopped or reported holds its devices, until the platform works again.
            self.thrower.victims = frozenset()
        self.env.run(until=UNTIL_S)
        return self

    async def _supervise(self) -> None:
        while True:
            options = EngineOptions(resync_s=60.0)
            self.engine = Engine(SimpyClock(self.env), self.log, self.cluster, options)
            try:
                await self.engine.run()
            except Exception as error:
                self.deaths.append(error)
                if self.engine.fault is None or len(self.deaths) > 20:
                    raise

    def _submit(self, name: str) -> None:
        command = c.SubmitJob(
            id=f"submit-{name}", job=name, namespace="default", name=name, spec=self.specs[name]
        )
        assert self.engine is not None

        def answered(answer: object) -> None:
            if answer is None:
                self.env.call_after(1.0, lambda: self._submit(name))

        self.engine.submit(command, answered)

    @property
    def world(self) -> World:
        assert self.engine is not None
        return self.engine.world

    def end_of(self, name: str) -> tuple[str, str]:
        job = self.world.jobs[name]
        return job.phase.value, job.reason

    def check(self) -> None:
        self.world.check()
        assert not self.world.devices.live, f"not gone: {list(self.world.devices.live)}"
        assert not self.simulated.running, self.simulated.running
        assert state_hash(run_now(rebuild(self.log)).world) == state_hash(self.world)
        assert run_now(redecide(self.log)) is None


def a_model() -> ClusterModel:
    return grid(2, 2, 8, delays=Delays(start_s=5.0, start_jitter_s=3.0, stop_s=2.0))


def plant(monkeypatch: Any, point: str, thrower: Thrower) -> None:
    plant_at(monkeypatch, POINTS[point], thrower, always=point in ALWAYS)


def plant_at(monkeypatch: Any, point: Point, thrower: Thrower, *, always: bool = False) -> None:
    owner, name, whose = point
    function = getattr(owner, name)

    def planted(*args: Any, **named: Any) -> Any:
        thrower.throw(whose(*args, **named), always=always)
        return function(*args, **named)

    monkeypatch.setattr(owner, name, planted)


def a_spec(dice: Random, name: str) -> JobSpec:
    trains = dice.random() < 0.3
    worker = Role(name="Worker", replicas=dice.randint(1, 3), gpus=dice.choice([1, 2, 4]))
    work = Workload(
        duration_s=dice.uniform(10.0, 200.0),
        exit_code=dice.choice([0, 0, 0, 1]),
        failing_attempts=dice.choice([None, 1]),
    )
    if trains:
        work = Workload(duration_s=60.0, training=Training(model="resnet50", steps=300))
    return JobSpec(
        roles=(worker,),
        done_when=DoneWhen("Worker"),
        restart=RestartPolicy(limit=dice.choice([0, 2]), backoff_s_max=20.0),
        hints=hints_of(work),
        annotations={NAME: name},
    )


def check_seed(seed: int, monkeypatch: pytest.MonkeyPatch) -> IsolatedWorld:
    """Of each seed one place throws; run on the same seed without it for comparison."""
    places = ["port", *POINTS]
    point = places[seed % len(places)]
    quiet = IsolatedWorld(seed).run()
    quiet.check()
    with monkeypatch.context() as patched:
        loud = IsolatedWorld(seed, point, patched).run()
    hint = f"seed {seed}: {point} threw {loud.thrower}"
    for name in loud.names:
        if name not in loud.victims:
            assert loud.end_of(name) == quiet.end_of(name), hint
    for name in loud.victims:
        phase, reason = loud.end_of(name)
        assert (phase, reason) == quiet.end_of(name) or reason in (
            "platform_error",
            "quarantined",
        ), hint
    loud.check()
    return loud


@pytest.mark.parametrize("seed", range(SEEDS))
def test_only_the_job_concerned_suffers(seed, monkeypatch):
    check_seed(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(SLOW_SEEDS // 100))
def test_only_the_job_concerned_suffers_in_many_more_worlds(block, monkeypatch):
    for seed in range(SEEDS + 100 * block, SEEDS + 100 * block + 100):
        check_seed(seed, monkeypatch)


def test_errors_are_really_thrown_and_met(monkeypatch):
    worlds = [check_seed(seed, monkeypatch) for seed in range(SEEDS // 2)]
    reasons = {job.reason for world in worlds for job in world.world.jobs.values()}
    recorded = {type(r.event) for world in worlds for r in world.log.events}

    assert sum(world.thrower.thrown > 0 for world in worlds) > len(worlds) // 2
    assert {"platform_error", "quarantined"} <= reasons
    assert {e.JobErrored, e.EngineFailed, e.JobQuarantined} <= recorded


# ------------------------------------------------------------------ what is asked about jobs


def readings_of(world: IsolatedWorld, at: float) -> dict[tuple[str, int], Any]:
    world.env.run(until=at)
    return {(each.node, each.device): each for each in run_now(world.simulated.devices())}


def begun(seed: int) -> IsolatedWorld:
    """A world that has not gone on yet."""
    world = IsolatedWorld(seed)
    as_process(world.env, world._supervise())
    for name in world.names:
        world.env.call_after(world.at[name], lambda name=name: world._submit(name))
    return world


@pytest.mark.parametrize("seed", range(5))
def test_a_device_that_cannot_be_read_hides_no_other(seed, monkeypatch):
    quiet, loud = begun(seed), begun(seed)
    thrower = Thrower(seed, loud.victims, 1.0)

    def whose(self: Any, node: Any, device: int, held: Any) -> str:
        return str(held.owner.gang.job)

    for at in (150.0, 220.0, 260.0, 300.0):
        expected = readings_of(quiet, at)
        with monkeypatch.context() as patched:
            plant_at(patched, (SimulatedTelemetry, "_used", whose), thrower)
            readings = readings_of(loud, at)
        for place, reading in expected.items():
            if reading.job in loud.victims:
                assert place not in readings, f"seed {seed}"
            else:
                assert readings[place] == reading, f"seed {seed}"


@pytest.mark.parametrize("place", ["newly_wanted", "apply_event", "agrees_with"])
@pytest.mark.parametrize("seed", range(4))
def test_a_job_whose_past_raises_leaves_the_others_theirs(seed, place, monkeypatch):
    """A process that starts on a log replays it; an error there must not cost every job its ranks."""
    live = begun(seed)
    until_s = 6.0 + max(at for name, at in live.at.items() if name not in live.victims)
    live.env.run(until=until_s)
    assert set(live.world.devices.live) - live.victims, f"seed {seed}"
    events = list(live.log.events)
    replayed = SimulatedCluster(VirtualTime(), a_model())
    points: dict[str, Point] = {
        "newly_wanted": (recovery, "newly_wanted", lambda before, job: job.id),
        "apply_event": (
            SimulatedCluster,
            "apply_event",
            lambda self, event: getattr(event, "job", ""),
        ),
        "agrees_with": (SimulatedCluster, "agrees_with", lambda self, job: job.id),
    }
    thrower = Thrower(seed, live.victims, 1.0)
    with monkeypatch.context() as patched:
        plant_at(patched, points[place], thrower)
        recovery.catch_up(replayed, World(), events)

    for job, attempt in live.simulated.running:
        if job not in live.victims:
            assert (job, attempt) in replayed.running, f"seed {seed}"
