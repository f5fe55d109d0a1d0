"""KAI's scale suite and its reclaim benchmark: one queue fills the cluster, another takes back."""

from msgspec.structs import replace

from bench.scheduling.worlds import Arrival, Bench, Ran, grid, job
from controlplane.model import commands as c
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import Role, Scheduling, TopologyAsk

NODES, GPUS = 500, 8
POLICY = Policy(
    discipline="fit",
    model="deserved_plus_weight",
    levels=("zone", "block", "rack"),
    records_reasons=False,
)


def path(i: int) -> tuple[str, ...]:
    """4 zones x 8 blocks x 8 racks x 2 nodes."""
    rack = i // 2
    return f"z{rack // 64}", f"b{rack // 8}", f"r{rack}"


def cluster(nodes: int, deserved: int = 0) -> Bench:
    queues = [Queue("filler", nominal=0), Queue("owner", nominal=deserved)]
    return Bench(grid(nodes, GPUS, path), queues, POLICY)


def fill(bench: Bench, jobs: int) -> Ran:
    bench.feed(Arrival(0.0, f"f{n:06}", job("filler")) for n in range(jobs))
    return bench.run(until=1.0)


def fill_with_single_gpus(nodes: int = NODES) -> Ran:
    return fill(cluster(nodes), nodes * GPUS)


def one_gang_of_512() -> Ran:
    bench = cluster(NODES, deserved=NODES * GPUS)
    near = TopologyAsk(preferred="rack")
    bench.feed([Arrival(0.0, "gang", job("owner", ranks=512, gpus=2, near=near))])
    return bench.run(until=1.0)


def verdict_cannot() -> Ran:
    """A gang of 10 x 8 GPUs that no reclaim can help: each node has one job that cannot be evicted.

    All 3,500 others may be, so the answer takes a look at the cluster without any of them.
    """
    bench = cluster(NODES, deserved=NODES * GPUS)
    bench.engine.submit(c.DefineQueue(queue=Queue("pinned", nominal=NODES)))
    stays = Scheduling(preemptible=False)
    bench.feed(
        Arrival(0.0, f"p{n:06}", replace(job("pinned"), scheduling=stays, roles=_on(n)))
        for n in range(NODES)
    )
    bench.run(until=1.0)
    fill(bench, NODES * (GPUS - 1))
    bench.feed([Arrival(0.0, "gang", job("owner", ranks=10, gpus=8))])
    ran = bench.run(until=1.0)
    assert ran.evicted == 0
    assert ran.world.jobs["gang"].attempt is None
    return ran


def _on(n: int) -> tuple[Role, ...]:
    return (Role(name="worker", gpus=1, node=f"n{n:05}"),)


def reclaim(nodes: int, ranks: int) -> Ran:
    """Whole nodes for a gang, from a cluster full of single GPUs."""
    bench = cluster(nodes, deserved=nodes * GPUS)
    fill(bench, nodes * GPUS)
    bench.feed([Arrival(0.0, "gang", job("owner", ranks=ranks, gpus=8))])
    ran = bench.run(until=1.0)
    assert ran.evicted == ranks * GPUS, ran.evicted
    assert ran.world.jobs["gang"].attempt is not None
    return ran
