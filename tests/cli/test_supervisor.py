"""Engines come and go with the log; the API answers 503 in between."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.clocks.pacer import Pacer
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from api.engine.engine_client import EngineClient, Unavailable
from cli.server.supervisor import SNAPSHOT_EVENTS_MIN, Notes, Supervisor
from controlplane.engine import EngineOptions
from controlplane.log.replay import open_snapshot, rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model.commands import DefineQueue
from controlplane.model.errors import LogConflict, LogUnavailable
from controlplane.model.events import Recorded
from controlplane.model.policy import Queue
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import grid


class FailingLog(MemoryLog):
    """Refuses appends while `broken`."""

    broken: Exception | None = None

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if self.broken is not None:
            raise self.broken
        await super().append(batch, epoch=epoch)


def supervised(log: MemoryLog, notes: Notes | None = None) -> tuple[EngineClient, Supervisor]:
    clock = AsyncioClock()
    origin = clock.now()
    env = VirtualTime()
    pacer = Pacer(env, clock.twin(), origin=origin)
    cluster = SimulatedCluster(env, grid(), origin=origin, sync=pacer.sync)
    engine_client, options = EngineClient(log), EngineOptions()
    return engine_client, Supervisor(
        engine_client, cluster, clock, options, notes=notes, again_s_first=0.01, guard_every_s=0.05
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition gives no signal
            await asyncio.sleep(0.005)


def define(name: str) -> DefineQueue:
    return DefineQueue(id=name, actor="test", queue=Queue(name))


class CountedNotes:
    def __init__(self) -> None:
        self.loads = self.releases = 0

    def book(self, name: str) -> dict[str, float]:
        return {}

    async def load(self) -> None:
        self.loads += 1
        if self.loads == 1:
            raise LogUnavailable("not yet")

    def release(self) -> None:
        self.releases += 1


async def test_a_leader_begins_with_the_stored_notes() -> None:
    log, notes = FailingLog(), CountedNotes()
    engine_client, supervisor = supervised(log, notes)
    running = asyncio.create_task(supervisor.run())
    await supervisor.serves.wait()
    assert notes.loads == 1, "and leads although they cannot be read"
    log.broken = LogUnavailable("away")
    with pytest.raises(Unavailable):
        await engine_client.submit(define("one"))
    log.broken = None
    await until(lambda: notes.loads == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert notes.releases == 0, "without an election no other process keeps them"


async def test_a_log_that_fails_is_led_again_when_it_is_back() -> None:
    log = FailingLog()
    engine_client, supervisor = supervised(log)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: engine_client.leads)
    await engine_client.submit(define("before"))
    log.broken = LogUnavailable("the disk is full")
    with pytest.raises(Unavailable):
        await engine_client.submit(define("lost"))
    await until(lambda: supervisor.restarts >= 2)
    assert not engine_client.leads
    with pytest.raises(Unavailable):
        await engine_client.ask(lambda world: world.position)
    log.broken = None
    await until(lambda: engine_client.leads)
    await engine_client.submit(define("after"))
    assert await engine_client.ask(lambda world: sorted(world.queues)) == [
        "after",
        "before",
        "default",
    ]
    running.cancel()


async def test_an_engine_that_was_fenced_out_is_not_replaced() -> None:
    log = MemoryLog()
    engine_client, supervisor = supervised(log)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: engine_client.leads)
    await log.lead()
    with pytest.raises(Unavailable):
        await engine_client.submit(define("late"))
    with pytest.raises(LogConflict):
        await running


async def test_an_idle_engine_notices_too_that_another_one_leads() -> None:
    log = MemoryLog()
    engine_client, supervisor = supervised(log)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: engine_client.leads)
    await log.lead()
    with pytest.raises(LogConflict):
        await asyncio.wait_for(running, 5)
    assert not engine_client.leads


async def test_what_was_stopped_is_kept_as_a_snapshot_if_that_is_worth_it() -> None:
    log = MemoryLog()
    engine_client, supervisor = supervised(log)
    assert await supervisor.snapshot() is None
    running = asyncio.create_task(supervisor.run())
    await until(lambda: engine_client.leads)
    few = engine_client.engine
    assert few is not None
    queues = [f"q{number}" for number in range(SNAPSHOT_EVENTS_MIN)]
    for chunk in range(0, len(queues), 500):
        await asyncio.gather(
            *(engine_client.submit(define(q)) for q in queues[chunk : chunk + 500])
        )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    position = await supervisor.snapshot()
    kept = await log.latest_snapshot()
    assert kept is not None
    assert kept.position == position
    whole = await rebuild(log, use_snapshot=False)
    assert state_hash(open_snapshot(kept).world) == state_hash(whole.world)
    assert await supervisor.snapshot() is None, "one is enough"
