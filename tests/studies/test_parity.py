"""One engine, two times: the log of a study under asyncio is that of the study under SimPy.

Under asyncio the engine is a task like any other, and its log is a real one that takes its time;
time jumps to the next event as soon as the engine has nothing left to do.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from random import Random

from adapters.database.event_log import DatabaseLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from controlplane.engine import Engine
from controlplane.log.codec import from_row
from controlplane.model.events import EngineStarted, JobRestarting, Recorded
from simulator.faults import FaultModel
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays
from studies.simulation.run import OPTIONS, run
from studies.simulation.trace_jobs import Submissions
from studies.whatif.clusters import equal_nodes
from studies.whatif.policies import beginning, policy_named
from studies.workloads.trace import make_trace


class JumpingClock:
    """The model's time, for an engine that asyncio drives. `drive` gives it its turns."""

    def __init__(self, env: VirtualTime) -> None:
        self._env = env
        self.waits, self.granted = asyncio.Event(), asyncio.Event()
        self.until: float | None = None
        self.woken = False

    def now(self) -> float:
        return float(self._env.now)

    async def wait(self, until: float | None) -> None:
        self.until = until
        self.waits.set()
        await self.granted.wait()
        self.granted.clear()

    def wake(self) -> None:
        self.woken = True


async def drive(env: VirtualTime, clock: JumpingClock, begun: asyncio.Event) -> None:
    """All that happens at one instant happens before the engine gets its turn, as under SimPy."""
    while True:
        await clock.waits.wait()
        if not clock.woken:
            await begun.wait()
        until = float("inf") if clock.until is None else clock.until
        if (clock.woken or until <= env.now) and env.peek() > env.now:
            clock.woken = False
            clock.waits.clear()
            clock.granted.set()
        elif until < env.peek():
            env.run(until)
        elif env.peek() < float("inf"):
            env.step()
        else:
            return


def workload():
    dice = Random(6)
    rows = sorted((dice.randint(0, 3_000), dice.choice((1, 4, 8, 16))) for _ in range(80))
    submit, gpus = zip(*rows, strict=True)
    lengths = [dice.randint(1, 600) for _ in rows]
    return make_trace(
        "t", [str(i) for i in range(80)], [at - submit[0] for at in submit], gpus, lengths
    )


def cluster():
    nodes = equal_nodes(3, 8, delays=Delays(start_s=4.0, start_jitter_s=2.0, stop_s=3.0))
    faults = FaultModel(node_mtbf_s=1_500.0, node_repair_s=90.0)
    return nodes.with_model(replace(nodes.model, faults=faults, seed=2))


async def under_asyncio(path, trace, policy, length: int) -> list[Recorded]:
    """The first so many events."""
    env = VirtualTime()
    clock, log = JumpingClock(env), await DatabaseLog.open(path)
    head = await log.lead()
    await log.append(beginning(policy, (), at=0.0), epoch=head.epoch)
    begun, over = asyncio.Event(), asyncio.Event()
    submission = Submissions(trace, cluster(), {}).of_row

    def arrivals():
        for row, at in enumerate(trace.submit.tolist()):
            if at > env.now:
                yield env.timeout(at - env.now)
            engine.submit(submission(row))

    def look(batch) -> None:
        if engine.world.surveyed and not begun.is_set():
            env.process(arrivals())
            begun.set()
        if engine.world.position >= length:
            over.set()

    engine = Engine(clock, log, SimulatedCluster(env, cluster().model), OPTIONS, look)
    tasks = [asyncio.ensure_future(engine.run()), asyncio.ensure_future(drive(env, clock, begun))]
    async with asyncio.timeout(60):
        await over.wait()
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    rows = await log.read(0, length)
    await log.close()
    return [from_row(row) for row in rows]


async def test_the_log_under_asyncio_is_the_log_under_simpy_event_for_event(tmp_path):
    trace, policy = workload(), policy_named("easy")
    virtual = run(trace, cluster(), policy, keep_events=True).log
    assert virtual is not None

    paced = await under_asyncio(tmp_path / "m.db", trace, policy, len(virtual))

    def seen(events):
        # The epoch counts who led the log, and the real one was led once more to be prepared.
        return [r for r in events if not isinstance(r.event, EngineStarted)]

    assert seen(paced) == seen(virtual)
    assert any(isinstance(r.event, JobRestarting) for r in virtual)
