"""Logs for tests, written as the control plane writes them."""

import asyncio
from pathlib import Path

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.database.event_log import DatabaseLog
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SubmitJob
from controlplane.model.events import Recorded
from controlplane.model.spec import DoneWhen, JobSpec, Role
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import grid

ORIGIN = 1_700_000_000.0


def recorded(jobs: int = 3, run_s: float = 300.0) -> list[Recorded]:
    """What an engine records while some jobs run on a simulated cluster."""
    env = VirtualTime()
    log = MemoryLog()
    cluster = SimulatedCluster(env, grid(), origin=ORIGIN)
    clock = SimpyClock(env, origin=ORIGIN)
    engine = Engine(clock, log, cluster, EngineOptions(resync_s=None))
    as_process(env, engine.run())
    spec = JobSpec(
        roles=(Role(name="Worker", replicas=2, gpus=8),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(duration_s=60.0)),
    )
    for number in range(jobs):
        name = f"job-{number}"
        engine.submit(
            SubmitJob(
                id=f"c{number}",
                actor="ada",
                job=f"j{number}",
                namespace="nlp",
                name=name,
                spec=spec,
            )
        )
    env.run(until=run_s)
    return list(log.events)


def sqlite_log(path: Path, events: list[Recorded]) -> Path:
    """A file that holds these events."""

    async def fill() -> None:
        log = await DatabaseLog.open(path)
        head = await log.lead()
        await log.append(events, epoch=head.epoch)
        await log.close()

    asyncio.run(fill())
    return path
