"""The engine in memory and in virtual time, fed and measured.

No API server, no disk, no kubelet: what is measured is deciding. Published figures beside ours are of
systems that also write every decision to a Kubernetes API server.
"""

import gc
import resource
from collections.abc import Callable, Generator, Iterable
from time import process_time
from typing import Any, NamedTuple

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling, TopologyAsk
from simulator.kernel.virtual_time import VirtualTime
from tests.instant_cluster import InstantCluster


class Arrival(NamedTuple):
    at: float
    name: str
    spec: JobSpec


class Ran(NamedTuple):
    """What a run took of this machine, and what it came to in virtual time."""

    cpu_s: float
    makespan_s: float
    placed: int
    events: int
    evicted: int
    world: Any


def job(
    queue: str = "default",
    *,
    ranks: int = 1,
    gpus: int = 1,
    share: int = 0,
    runs_s: float = 1e8,
    priority: int = 0,
    near: TopologyAsk | None = None,
) -> JobSpec:
    role = Role(name="worker", replicas=ranks, gpus=gpus, gpu_share=share)
    asks = Scheduling() if near is None else Scheduling(topology=near)
    return JobSpec(
        roles=(role,),
        done_when=DoneWhen("worker"),
        queue=queue,
        priority=priority,
        start_timeout_s=1e8,
        hints=hints_of(Workload(duration_s=runs_s)),
        scheduling=asks,
    )


class Bench:
    """One engine on one cluster that takes no time."""

    def __init__(self, nodes: Iterable[NodeInfo], queues: Iterable[Queue], policy: Policy) -> None:
        self.env = VirtualTime()
        self.log = MemoryLog()
        self.cluster = InstantCluster(self.env, nodes)
        options = EngineOptions(resync_s=None, snapshot_every=None)
        self.engine = Engine(SimpyClock(self.env), self.log, self.cluster, options)
        as_process(self.env, self.engine.run())
        self.env.run(until=self.env.timeout(0.0))
        self.engine.submit(c.SetPolicy(policy=policy), _taken)
        for queue in queues:
            self.engine.submit(c.DefineQueue(queue=queue), _taken)
        self.env.run(until=self.env.timeout(0.001))

    def feed(self, arrivals: Iterable[Arrival]) -> None:
        self.env.process(self._feed(sorted(arrivals, key=lambda a: (a.at, a.name))))

    def _feed(self, arrivals: list[Arrival]) -> Generator[Any, Any, None]:
        start = self.env.now
        for at, name, spec in arrivals:
            if start + at > self.env.now:
                yield self.env.timeout(start + at - self.env.now)
            command = c.SubmitJob(job=name, namespace="default", name=name, spec=spec)
            self.engine.submit(command, _taken)
        yield self.env.timeout(0.0)

    def run(self, until: float | None = None) -> Ran:
        """Run until nothing more happens, or up to the virtual time `until`."""
        first, began = len(self.log.events), self.env.now
        gc.collect()
        gc.freeze()
        before = process_time()
        self.env.run() if until is None else self.env.run(until=self.env.now + until)
        cpu_s = process_time() - before
        gc.unfreeze()
        recent = self.log.events[first:]
        placed = [r for r in recent if isinstance(r.event, e.GangPlaced)]
        evicted = sum(isinstance(r.event, e.JobRestarting) for r in recent)
        ends = [r.at for r in recent if isinstance(r.event, e.JobSucceeded)]
        last = max(ends or [r.at for r in placed] or [began])
        return Ran(cpu_s, last - began, len(placed), len(recent), evicted, self.engine.world)


def _taken(answer: object) -> None:
    assert not isinstance(answer, Exception), answer


def grid(
    nodes: int, gpus: int, path: Callable[[int], tuple[str, ...]] | None = None
) -> list[NodeInfo]:
    return [NodeInfo(f"n{i:05}", gpus, path=() if path is None else path(i)) for i in range(nodes)]


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
