"""The engine in virtual time on a cluster that takes no time, fed with jobs of known lengths."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import DoneWhen, JobSpec, Role
from simulator.kernel.virtual_time import VirtualTime
from tests.instant_cluster import InstantCluster


class Arrival(NamedTuple):
    at: float
    name: str
    spec: JobSpec


def job(*, gpus: int, runs_s: float, priority: int = 0, **changes: object) -> JobSpec:
    spec = JobSpec(
        roles=(Role(name="worker", gpus=gpus),),
        done_when=DoneWhen("worker"),
        priority=priority,
        start_timeout_s=1e8,
        hints=hints_of(Workload(duration_s=runs_s)),
    )
    return replace(spec, **changes)


def run(
    nodes: Iterable[NodeInfo], policy: Policy, arrivals: list[Arrival], queues: Iterable[Queue] = ()
) -> list[e.Recorded]:
    """All that is in the log when nothing more happens."""
    env, log = VirtualTime(), MemoryLog()
    options = EngineOptions(resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), log, InstantCluster(env, nodes), options)
    as_process(env, engine.run())
    env.run(until=env.timeout(0.0))
    engine.submit(c.SetPolicy(policy=policy), _taken)
    for queue in queues:
        engine.submit(c.DefineQueue(queue=queue), _taken)

    def feed():
        for at, name, spec in sorted(arrivals, key=lambda arrival: arrival[:2]):
            yield env.timeout(max(0.0, at - env.now))
            command = c.SubmitJob(job=name, namespace="default", name=name, spec=spec)
            engine.submit(command, _taken)

    env.process(feed())
    env.run()
    return log.events


def _taken(answer: object) -> None:
    assert not isinstance(answer, Exception), answer
