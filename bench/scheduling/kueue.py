"""Kueue's three suites: workloads in many queues of cohorts; gangs on a topology.

Kueue's quota is CPU; ours counts GPUs, so a CPU becomes a GPU, and half a CPU half a device. The
quota-only suites get one node that has room for all quota, as Kueue's have no nodes either.
"""

from typing import Any

from msgspec.structs import replace

from adapters.simulated_cluster.workload import workload_of
from bench.scheduling.worlds import Arrival, Bench, Ran, job
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Policy, Preempt, Queue, Reclaim, WithinQueue
from controlplane.model.spec import TopologyAsk

POLICY = Policy(discipline="fit", levels=("block", "rack"), records_reasons=False)
# The same suite under other rules: what eager eviction costs, and what a plain protection gives.
OTHER_POLICIES = {
    "evicting eagerly as Kueue does (second_chance_s_max=0)": replace(
        POLICY, second_chance_s_max=0.0
    ),
    "everyone's first second protected (protected_s=1)": replace(POLICY, protected_s=1.0),
}
PREEMPT = Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY)


def run(suite: dict[str, Any], quick: bool, policy: Policy = POLICY) -> tuple[Ran, float]:
    """The run, and the shortest time in which this quota can do this work."""
    few = 5 if quick else 1
    cohorts, per_cohort = suite["cohorts"], suite["queues_per_cohort"]
    names = [(f"co{i}", f"q{i}-{j}") for i in range(cohorts) for j in range(per_cohort)]
    queues = [Queue(f"co{i}") for i in range(cohorts)]
    queues += [
        Queue(name, parent=cohort, nominal=suite["nominal"], borrow_max=suite["borrow_limit"],
              preempt=PREEMPT)
        for cohort, name in names
    ]  # fmt: skip
    bench = Bench(_nodes(suite), queues, policy)
    arrivals = []
    for _, queue in names:
        for part in suite["sets_per_queue"]:
            count = max(1, part["count"] // few)
            for n in range(count):
                spec = _spec(queue, part)
                at = n * part["interval_ms"] / 1000
                arrivals.append(Arrival(at, f"{queue}-{part['class']}-{n}", spec))
    bench.feed(arrivals)
    work = sum(workload_of(a.spec).duration_s * _gpus(a) for a in arrivals)
    bound = work / (suite["nominal"] * len(names))
    return bench.run(), bound


def _gpus(arrival: Arrival) -> float:
    return sum(r.replicas * (r.gpus + r.gpu_share / 1000) for r in arrival.spec.roles)


def _nodes(suite: dict[str, Any]) -> list[NodeInfo]:
    shape = suite.get("topology")
    if shape is None:
        total = suite["nominal"] * suite["cohorts"] * suite["queues_per_cohort"]
        return [NodeInfo("room", total)]
    return [
        NodeInfo(f"n{r}-{n}", shape["cpu_per_node"], path=("b0", f"r{r}"))
        for r in range(shape["racks_per_block"])
        for n in range(shape["nodes_per_rack"])
    ]


def _spec(queue: str, part: dict[str, Any]) -> Any:
    runs_s, priority = part["runtime_ms"] / 1000, part["priority"]
    if "pods" not in part:
        return job(queue, gpus=part["cpu"], runs_s=runs_s, priority=priority)
    # Halves and quarters of a CPU are rounded up to whole ones here: a topology of whole devices.
    gpus = max(1, round(part["cpu_per_pod"]))
    rack = part["rack"]
    if rack == "required":
        near = TopologyAsk(required="rack")
    elif rack == "preferred":
        near = TopologyAsk(preferred="rack")
    else:
        near = TopologyAsk(slice_level="rack", slice_size=int(rack.rpartition(" ")[2]))
    return job(queue, ranks=part["pods"], gpus=gpus, runs_s=runs_s, priority=priority, near=near)
