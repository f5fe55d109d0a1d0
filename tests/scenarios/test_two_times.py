"""One engine, two times: under SimPy alone, and under asyncio with a paced SimPy, on a real log."""

import asyncio
from contextlib import suppress
from random import Random

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.clocks.pacer import Pacer
from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.database.event_log import DatabaseLog
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.log.codec import from_row
from controlplane.model.commands import SubmitJob
from controlplane.model.events import JobEvent
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid

ORIGIN = 1_000.0
SPEED = 500.0
OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


def jobs() -> list[SubmitJob]:
    """More than fit at once, some of which fail before they succeed."""
    dice = Random(3)
    return [
        SubmitJob(
            id=f"c{n}",
            job=f"j{n}",
            namespace="default",
            name=f"job-{n}",
            spec=JobSpec(
                roles=(Role(name="Worker", replicas=dice.randint(1, 3), gpus=8),),
                done_when=DoneWhen("Worker"),
                restart=RestartPolicy(backoff_s_first=20.0 + n),
                hints=hints_of(
                    Workload(
                        duration_s=100.0 + 37 * n, exit_code=n % 2, exit_rank=0, failing_attempts=1
                    )
                ),
            ),
        )
        for n in range(8)
    ]


def model():
    return grid(1, 4, 8, delays=Delays(start_s=5.0, stop_s=2.0))


def in_virtual_time() -> list:
    env, log = VirtualTime(), MemoryLog()
    cluster = SimulatedCluster(env, model(), origin=ORIGIN)
    engine = Engine(SimpyClock(env, origin=ORIGIN), log, cluster, OPTIONS)
    as_process(env, engine.run())
    env.run(1.0)
    for command in jobs():
        engine.submit(command)
    env.run(10_000.0)
    return list(log.events)


async def in_paced_time(path) -> list:
    log = await DatabaseLog.open(path)
    clock = AsyncioClock(start=ORIGIN, speed=SPEED)
    env = VirtualTime()
    pacer = Pacer(env, clock.twin(), origin=ORIGIN)
    cluster = SimulatedCluster(env, model(), origin=ORIGIN, sync=pacer.sync)
    surveyed, finished = asyncio.Event(), asyncio.Event()

    def look(batch) -> None:
        if engine.world.surveyed:
            surveyed.set()
        if engine.world.jobs and all(job.finished for job in engine.world.jobs.values()):
            finished.set()

    engine = Engine(clock, log, cluster, OPTIONS, look)
    running = [asyncio.ensure_future(pacer.run()), asyncio.ensure_future(engine.run())]
    await surveyed.wait()
    for command in jobs():
        engine.submit(command)
    await finished.wait()
    for task in running:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    rows = await log.read(0, 10_000)
    await log.close()
    return [from_row(row) for row in rows]


def stories(events: list) -> dict[str, list[str]]:
    """What happened to each job, in order."""
    by_job: dict[str, list[str]] = {}
    for recorded in events:
        if isinstance(recorded.event, JobEvent):
            name = type(recorded.event).__name__
            by_job.setdefault(recorded.event.job, []).append(name)
    # The last attempt's ranks may still be going when the last job has its verdict.
    ends = ("RanksGone", "AttemptEnded")
    return {job: [name for name in names if name not in ends] for job, names in by_job.items()}


async def test_every_job_has_the_same_story_in_both_times(tmp_path):
    virtual, paced = in_virtual_time(), await in_paced_time(tmp_path / "m.db")

    assert stories(paced) == stories(virtual)
    assert any("JobRestarting" in story for story in stories(virtual).values())
