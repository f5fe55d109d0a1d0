"""Writes this release's golden log of jobs set aside: `python -m tests.golden.make_unschedulable`.

Two nodes, jobs that cannot start on them for several reasons, and what changes that: a node that comes,
one that is cordoned for a while, a quota, the rest of a group. Decision by an engine in virtual time.
Never run for an old release.
"""

from collections.abc import Generator
from importlib.metadata import version
from typing import Any

import simpy

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import Queue
from simulator.kernel.virtual_time import VirtualTime
from tests.controlplane.instant_world import job
from tests.controlplane.test_unschedulable import gang
from tests.golden.make import keep
from tests.instant_cluster import InstantCluster

NODES = (NodeInfo("n1", 4, rack="a"), NodeInfo("n2", 4, rack="b", labels={"zone": "y"}))


def submit(name: str, spec: Any) -> c.SubmitJob:
    return c.SubmitJob(id=f"submit-{name}", job=name, namespace="lab", name=name, spec=spec)


def story() -> list[c.AnyCommand]:
    return [
        submit("zone", gang(1, 4, selector={"zone": "z"})),
        submit("busy", job(gpus=4, runs_s=100.0)),
        submit("pair-a", gang(1, 2, group="pair", group_size=2)),
        submit("whole", gang(2, 4)),
        c.CordonNode(id="cordon", node="n2"),
        submit("pair-b", gang(1, 2, group="pair", group_size=2)),
        c.DefineQueue(id="small", queue=Queue("small", gpus_max=4)),
        submit("limited", gang(1, 4, queue="small")),
        c.DefineQueue(id="smaller", queue=Queue("small", gpus_max=2)),
        c.UncordonNode(id="uncordon", node="n2"),
        c.ReportNode(node=NodeInfo("n3", 8, labels={"zone": "z"})),
        c.DefineQueue(id="larger", queue=Queue("small")),
        submit("pinned", gang(1, 1, node="n9")),
        c.CancelJob(id="cancel", namespace="lab", name="pinned"),
    ]


def main() -> None:
    env, log = VirtualTime(), MemoryLog()
    options = EngineOptions(release=version("muster"), resync_s=None, snapshot_every=None)
    engine = Engine(SimpyClock(env), log, InstantCluster(env, NODES), options)
    as_process(env, engine.run())

    def report() -> Generator[simpy.Event, Any, None]:
        for command in story():
            yield env.timeout(10.0)
            engine.submit(command)

    env.process(report())
    env.run()
    keep(f"{version('muster')}-unschedulable", log.events, engine.world, decided=True)


if __name__ == "__main__":
    main()
