"""Topology gangs on 5,000 nodes, a cycle in which nothing changed, and knavigator's packing."""

from random import Random
from time import process_time
from typing import Any, NamedTuple

from msgspec.structs import replace

from adapters.simulated_cluster.workload import workload_of
from bench.scheduling.worlds import Arrival, Bench, Ran, grid, job
from controlplane.model.policy import Policy
from controlplane.model.spec import Scheduling, TopologyAsk
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot

FIT = Policy(discipline="fit", levels=("rack",), records_reasons=False)


def topology_gangs(gangs: int, nodes: int = 5_000, racks: int = 50) -> Ran:
    bench = Bench(grid(nodes, 8, lambda i: (f"r{i % racks}",)), [], FIT)
    near = TopologyAsk(required="rack")
    bench.feed(Arrival(0.0, f"g{n:05}", job(ranks=4, gpus=1, near=near)) for n in range(gangs))
    ran = bench.run(until=1.0)
    assert ran.placed == gangs, ran.placed
    return ran


class Cycle(NamedTuple):
    first_ms: float
    again_ms: float


def unchanged_cycle(nodes: int, waiting: int = 1_000) -> Cycle:
    """Gangs of many shapes, none of which fits, on a cluster that is full but for single devices."""
    bench = Bench(grid(nodes, 8), [], FIT)
    bench.feed(Arrival(0.0, f"f{n:06}", job(gpus=7)) for n in range(nodes))
    bench.run(until=1.0)
    bench.feed(
        Arrival(0.0, f"w{n:05}", job(ranks=1 + n % 50, gpus=2 + n % 7)) for n in range(waiting)
    )
    bench.run(until=1.0)
    world = bench.engine.world
    assert len(world.waiting.keys("default")) == waiting
    took, cache = [], SchedulerCache()
    for _ in range(20):
        before = process_time()
        assert Pass(Snapshot(world, cache=cache)).run() == []
        took.append((process_time() - before) * 1000)
    return Cycle(took[0], sorted(took[1:])[len(took) // 2])


def long_line(jobs: int, discipline: str) -> Ran:
    """Run `jobs` jobs submitted at once to 160 GPUs; estimates are one to three times too long."""
    dice = Random(4)
    bench = Bench(grid(20, 8), [], Policy(discipline=discipline, records_reasons=False))
    arrivals = []
    for n in range(jobs):
        gpus = dice.choice([1, 1, 1, 2, 4, 8])
        ranks = dice.choice([1, 1, 1, 1, 2, 4]) if gpus == 8 else 1
        runs_s = dice.lognormvariate(6.0, 1.2)
        asks = Scheduling(estimate_s=runs_s * dice.uniform(1.0, 3.0))
        spec = replace(job(ranks=ranks, gpus=gpus, runs_s=runs_s), scheduling=asks)
        arrivals.append(Arrival(0.0, f"j{n:05}", spec))
    bench.feed(arrivals)
    ran = bench.run()
    assert ran.placed == jobs, ran.placed
    return ran


def gang_packing(suite: dict[str, Any]) -> tuple[Ran, float]:
    """knavigator's 53 gangs in their order, as one burst; the last number is the occupancy."""
    bench = Bench(grid(suite["nodes"], suite["gpus_per_node"]), [], FIT)
    arrivals, n = [], 0
    for count, nodes in suite["burst_in_order"]:
        for _ in range(count):
            spec = job(ranks=nodes, gpus=suite["gpus_per_node"], runs_s=suite["runtime_s"])
            arrivals.append(Arrival(0.0, f"g{n:03}", spec))
            n += 1
    bench.feed(arrivals)
    ran = bench.run()
    work = sum(a.spec.gpus * workload_of(a.spec).duration_s for a in arrivals)
    return ran, work / (ran.makespan_s * suite["nodes"] * suite["gpus_per_node"])
