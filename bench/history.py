"""Long logs to measure on: many jobs' lives, made by the engine itself in virtual time."""

from collections.abc import Iterator
from random import Random

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SubmitJob
from controlplane.model.events import Recorded
from controlplane.model.spec import DoneWhen, JobSpec, RestartPolicy, Role
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid

EVENTS_PER_JOB = 7


def spec(dice: Random, *, ttl_s: float | None = None) -> JobSpec:
    """A training job as people submit them: an image, a command, some environment."""
    gpus = dice.choice([1, 1, 1, 1, 2, 4, 8, 8, 16, 32])
    return JobSpec(
        kind="PyTorchJob",
        roles=(
            Role(
                name="Worker",
                replicas=max(1, gpus // 8),
                gpus=min(gpus, 8),
                image="registry.example/team/train:2024.11",
                command=("python", "-m", "train", "--config", "configs/large.yaml"),
                env={"NCCL_DEBUG": "WARN", "EPOCHS": "90"},
            ),
        ),
        done_when=DoneWhen("Worker"),
        restart=RestartPolicy(limit=3),
        ttl_s=ttl_s,
        hints=hints_of(Workload(duration_s=dice.lognormvariate(6.0, 1.5))),
    )


def submission(number: int, dice: Random, **more: float | None) -> SubmitJob:
    return SubmitJob(
        id=f"c{number:08x}",
        actor="bench",
        job=f"j{number:012x}",
        namespace="research",
        name=f"train-{number}",
        spec=spec(dice, **more),
    )


def events(count: int, *, ttl_s: float | None = None, seed: int = 1) -> Iterator[Recorded]:
    """At least `count` events, made in blocks of jobs on one ever-growing virtual cluster day."""
    env = VirtualTime()
    log = MemoryLog()
    cluster = SimulatedCluster(env, grid(8, 16, 8, delays=Delays(start_s=5.0, stop_s=2.0)))
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env, origin=1.7e9), log, cluster, options)
    as_process(env, engine.run())
    dice = Random(seed)
    number = yielded = 0
    while yielded < count:
        for _ in range(500):
            env.run(env.now + dice.expovariate(1 / 12.0))
            engine.submit(submission(number, dice, ttl_s=ttl_s))
            number += 1
        fresh = log.events[yielded:]
        yielded += len(fresh)
        yield from fresh
