"""Jobs through the whole engine in virtual time, beside a bare SimPy program that does the same.

Many small jobs of one rank and one GPU come to one pool, first in, first out. Ours submits each of
them to the real engine on a simulated cluster: every job is admitted, placed, launched, reported up
and exited, and leaves its seven events in a log in memory. The baseline is a SimPy process a job
and one resource, which is the least that a simulation of this queue does; it knows no log, no
nodes and no state. Both must find the same ends of jobs. Counted in CPU seconds.
"""

from collections.abc import Callable, Generator
from random import Random
from time import process_time
from typing import Any

import simpy

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SubmitJob
from controlplane.model.spec import DoneWhen, JobSpec, Role
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, grid

JOBS = 20_000
JOBS_QUICK = 5_000
ROUNDS = 3
NODES, GPUS = 16, 8
# Enough work for a pool that is 90 % busy, so that a line forms and dissolves again and again.
DURATION_S = 600.0
EVERY_S = DURATION_S / (NODES * GPUS * 0.9)

# When a job comes, and how long it runs.
Arrival = tuple[float, float]
Run = Callable[[list[Arrival]], list[float]]


def run(quick: bool) -> list[dict[str, Any]]:
    arrivals = workload(JOBS_QUICK if quick else JOBS)
    our_s = their_s = float("inf")
    for _ in range(ROUNDS):
        took, ours = timed(through_the_engine, arrivals)
        our_s = min(our_s, took)
        took, theirs = timed(through_simpy, arrivals)
        their_s = min(their_s, took)
        worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        assert worst < 1e-3, f"an end differs by {worst} s"
    ours_each, theirs_each = (s / len(arrivals) * 1e6 for s in (our_s, their_s))
    return [
        {
            "name": f"virtual time, {len(arrivals):,} jobs of one rank, submit to end",
            "value": round(ours_each, 1),
            "baseline": round(theirs_each, 1),
            "ratio": round(theirs_each / ours_each, 2),
            "target": None,
            "unit": "CPU us/job",
            "note": "goal: below 100; baseline: a SimPy process a job and one Resource",
        }
    ]


def timed(run: Run, arrivals: list[Arrival]) -> tuple[float, list[float]]:
    began = process_time()
    ends = run(arrivals)
    return process_time() - began, ends


def workload(count: int) -> list[Arrival]:
    dice, at = Random(3), 0.0
    arrivals = []
    for _ in range(count):
        at += dice.expovariate(1 / EVERY_S)
        arrivals.append((at, dice.expovariate(1 / DURATION_S)))
    return arrivals


def through_the_engine(arrivals: list[Arrival]) -> list[float]:
    """When each job ended."""
    env, log = VirtualTime(), MemoryLog()
    cluster = SimulatedCluster(env, grid(1, NODES, GPUS, delays=Delays(start_s=0.0, stop_s=0.0)))
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), log, cluster, options)
    as_process(env, engine.run())

    def arrivals() -> Generator[simpy.Event, Any, None]:
        for number, (at, duration_s) in enumerate(arrivals):
            if at > env.now:
                yield env.timeout(at - env.now)
            engine.submit(command(number, duration_s))

    env.process(arrivals())
    env.run()
    ends = [job.finished_at for job in engine.world.jobs.values()]
    assert len(ends) == len(arrivals), f"{len(ends)} of {len(arrivals)} jobs"
    return [at for at in ends if at is not None]


def command(number: int, duration_s: float) -> SubmitJob:
    return SubmitJob(
        id=f"c{number}",
        actor="bench",
        job=f"j{number:08}",
        namespace="default",
        name=f"j{number}",
        spec=JobSpec(
            roles=(Role(name="Worker", gpus=1),),
            done_when=DoneWhen("Worker"),
            hints=hints_of(Workload(duration_s=duration_s)),
        ),
    )


def through_simpy(arrivals: list[Arrival]) -> list[float]:
    env = simpy.Environment()
    pool = simpy.Resource(env, NODES * GPUS)
    ends = [0.0] * len(arrivals)

    def job(number: int, duration_s: float) -> Generator[simpy.Event, Any, None]:
        with pool.request() as turn:
            yield turn
            yield env.timeout(duration_s)
        ends[number] = env.now

    def arrivals() -> Generator[simpy.Event, Any, None]:
        for number, (at, duration_s) in enumerate(arrivals):
            if at > env.now:
                yield env.timeout(at - env.now)
            env.process(job(number, duration_s))

    env.process(arrivals())
    env.run()
    return ends


if __name__ == "__main__":
    import sys

    for line in run(quick="--full" not in sys.argv):
        print(line)
