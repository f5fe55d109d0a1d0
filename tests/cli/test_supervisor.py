"""Engines come and go with the log; the API answers 503 in between."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from adapters.asyncio_clock import AsyncioClock
from adapters.memory_log import MemoryLog
from adapters.notes import Notes
from adapters.pacer import Pacer
from adapters.simulated_cluster import SimulatedCluster
from api.control import Control, Unavailable
from cli.supervisor import SNAPSHOT_EVENTS_MIN, Supervisor
from controlplane.commands import DefineQueue
from controlplane.engine import EngineOptions
from controlplane.errors import LogConflict, LogUnavailable
from controlplane.events import Recorded
from controlplane.replay import open_snapshot, rebuild, state_hash
from controlplane.sharing import Queue
from simulator.topology import grid
from simulator.virtual_time import VirtualTime


class FailingLog(MemoryLog):
    """Refuses appends while `broken`."""

    broken: Exception | None = None

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        if self.broken is not None:
            raise self.broken
        await super().append(batch, epoch=epoch)


def supervised(log: MemoryLog, notes: Notes | None = None) -> tuple[Control, Supervisor]:
    clock = AsyncioClock()
    origin = clock.now()
    env = VirtualTime()
    pacer = Pacer(env, clock.twin(), origin=origin)
    cluster = SimulatedCluster(env, grid(), origin=origin, sync=pacer.sync)
    control, options = Control(log), EngineOptions()
    return control, Supervisor(
        control, cluster, clock, options, notes=notes, again_s_first=0.01, guard_every_s=0.05
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
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


async def test_whoever_leads_begins_with_what_is_kept_beside_the_log() -> None:
    log, notes = FailingLog(), CountedNotes()
    control, supervisor = supervised(log, notes)
    running = asyncio.create_task(supervisor.run())
    await supervisor.serves.wait()
    assert notes.loads == 1, "and leads although they cannot be read"
    log.broken = LogUnavailable("away")
    with pytest.raises(Unavailable):
        await control.submit(define("one"))
    log.broken = None
    await until(lambda: notes.loads == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert notes.releases == 0, "without an election nobody else keeps them"


async def test_a_log_that_fails_is_led_again_when_it_is_back() -> None:
    log = FailingLog()
    control, supervisor = supervised(log)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: control.leads)
    await control.submit(define("before"))
    log.broken = LogUnavailable("the disk is full")
    with pytest.raises(Unavailable):
        await control.submit(define("lost"))
    await until(lambda: supervisor.restarts >= 2)
    assert not control.leads
    with pytest.raises(Unavailable):
        await control.ask(lambda world: world.position)
    log.broken = None
    await until(lambda: control.leads)
    await control.submit(define("after"))
    assert await control.ask(lambda world: sorted(world.queues)) == ["after", "before", "default"]
    running.cancel()


async def test_an_engine_that_was_fenced_out_is_not_replaced() -> None:
    log = MemoryLog()
    control, supervisor = supervised(log)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: control.leads)
    await log.lead()
    with pytest.raises(Unavailable):
        await control.submit(define("late"))
    with pytest.raises(LogConflict):
        await running


async def test_an_idle_engine_notices_too_that_another_one_leads() -> None:
    log = MemoryLog()
    control, supervisor = supervised(log)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: control.leads)
    await log.lead()
    with pytest.raises(LogConflict):
        await asyncio.wait_for(running, 5)
    assert not control.leads


async def test_what_was_stopped_is_kept_as_a_snapshot_if_that_is_worth_it() -> None:
    log = MemoryLog()
    control, supervisor = supervised(log)
    assert await supervisor.snapshot() is None
    running = asyncio.create_task(supervisor.run())
    await until(lambda: control.leads)
    few = control.engine
    assert few is not None
    queues = [f"q{number}" for number in range(SNAPSHOT_EVENTS_MIN)]
    for chunk in range(0, len(queues), 500):
        await asyncio.gather(*(control.submit(define(q)) for q in queues[chunk : chunk + 500]))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    position = await supervisor.snapshot()
    kept = await log.latest_snapshot()
    assert kept is not None
    assert kept.position == position
    whole = await rebuild(log, use_snapshot=False)
    assert state_hash(open_snapshot(kept).world) == state_hash(whole.world)
    assert await supervisor.snapshot() is None, "one is enough"
