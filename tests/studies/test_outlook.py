"""The near future of a whole cluster."""

from random import Random

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SubmitJob
from controlplane.model.spec import DoneWhen, JobSpec, Role
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid
from studies.forecast.outlook import outlook


def busy_world(jobs: int) -> World:
    """Four nodes of eight GPUs, all in use, and jobs that wait."""
    env = VirtualTime()
    cluster = SimulatedCluster(env, grid(1, 4, 8, delays=Delays(5.0, 0.0, 2.0)))
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), MemoryLog(), cluster, options)
    as_process(env, engine.run())
    env.run(1.0)
    dice = Random(1)
    for number in range(jobs):
        gpus = dice.choice((1, 2, 8, 16))
        spec = JobSpec(
            roles=(Role(name="Worker", replicas=max(1, gpus // 8), gpus=min(gpus, 8)),),
            done_when=DoneWhen("Worker"),
            hints=hints_of(Workload(dice.lognormvariate(7, 1.5))),
        )
        name = f"j{number}"
        engine.submit(SubmitJob(id=name, job=name, namespace="default", name=name, spec=spec))
    env.run(1_000.0)
    return engine.world


def test_every_unfinished_job_is_in_it() -> None:
    world = busy_world(40)
    image = world.image()
    result = outlook(image, world.at, world.at + 86_400, runs=3)
    assert result.runs == 3
    assert {job.id for job in result.jobs} == {job.id for job in image.jobs if not job.finished}
    for job in result.jobs:
        waits = world.jobs[job.id].live_attempt is None
        assert (job.start is not None) is waits
        times = [job.end.p10, job.end.p50, job.end.p90]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
        assert times[: len(known)] == known


def test_it_is_the_same_for_the_same_state() -> None:
    world = busy_world(20)
    one = outlook(world.image(), world.at, world.at + 3_600, runs=2)
    assert outlook(world.image(), world.at, world.at + 3_600, runs=2) == one


def test_a_run_that_takes_too_long_is_cut_off() -> None:
    world = busy_world(40)
    result = outlook(world.image(), world.at, world.at + 10_000_000, is_late=lambda: True)
    assert result.runs == 1
    assert world.at <= result.until < world.at + 10_000_000
    assert all(job.end.p50 is None or job.end.p50 <= result.until for job in result.jobs)
