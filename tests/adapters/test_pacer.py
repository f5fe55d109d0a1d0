"""The pacer: a model that asyncio runs in step with a clock."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.clocks.pacer import EVENTS_MAX, Pacer
from simulator.kernel.virtual_time import VirtualTime

ORIGIN = 1_700_000_000.0


@asynccontextmanager
async def paced(
    env: VirtualTime, speed: float = 10_000.0
) -> AsyncIterator[tuple[Pacer, AsyncioClock]]:
    clock = AsyncioClock(start=ORIGIN + env.now, speed=speed)
    pacer = Pacer(env, clock.twin(), origin=ORIGIN)
    task = asyncio.create_task(pacer.run())
    try:
        yield pacer, clock
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def after(env: VirtualTime, delay_s: float, action: Callable[[], None]) -> None:
    env.timeout(delay_s).callbacks.append(lambda _: action())


async def test_events_happen_in_their_order_and_not_before_their_time() -> None:
    env = VirtualTime()
    seen: list[tuple[float, float]] = []
    async with paced(env) as (_, clock):
        for delay_s in (30.0, 10.0, 20.0):
            after(env, delay_s, lambda: seen.append((env.now, clock.now() - ORIGIN)))
        await clock.wait(ORIGIN + 60.0)
        await asyncio.sleep(0.001)
    assert [at for at, _ in seen] == [10.0, 20.0, 30.0]
    assert all(shown >= at for at, shown in seen)


async def test_an_event_scheduled_after_a_sync_comes_at_its_time_from_now() -> None:
    env = VirtualTime()
    async with paced(env) as (pacer, clock):
        done = asyncio.Event()
        await clock.wait(ORIGIN + 50.0)
        pacer.sync()
        assert env.now >= 50.0
        began = env.now
        after(env, 5.0, done.set)
        await asyncio.wait_for(done.wait(), 5.0)
        assert env.now == began + 5.0


async def test_a_new_event_is_not_kept_waiting_by_a_later_one() -> None:
    env = VirtualTime()
    async with paced(env) as (pacer, _):
        done = asyncio.Event()
        after(env, 1e9, done.set)
        await asyncio.sleep(0.001)
        pacer.sync()
        after(env, 5.0, done.set)
        await asyncio.wait_for(done.wait(), 5.0)
        assert env.now < 1e6


async def test_a_sync_lets_all_happen_that_is_due() -> None:
    env = VirtualTime()
    clock = AsyncioClock(start=ORIGIN + 100.0)
    seen: list[float] = []
    for delay_s in (40.0, 100.0, 400.0):
        after(env, delay_s, lambda: seen.append(env.now))
    Pacer(env, clock, origin=ORIGIN).sync()
    assert seen == [40.0, 100.0]
    assert env.now >= 100.0


async def test_a_model_that_is_far_behind_lets_others_run() -> None:
    env = VirtualTime()
    for _ in range(10 * EVENTS_MAX):
        env.timeout(0.0)
    clock = AsyncioClock(start=ORIGIN)
    task = asyncio.create_task(Pacer(env, clock, origin=ORIGIN).run())
    turns = 0
    while env.peek() < float("inf"):
        await asyncio.sleep(0)
        turns += 1
    task.cancel()
    assert turns >= 10


async def test_a_failure_of_the_model_ends_the_pacer() -> None:
    env = VirtualTime()
    env.event().fail(LookupError("broken"))
    with pytest.raises(LookupError, match="broken"):
        await Pacer(env, AsyncioClock(start=ORIGIN), origin=ORIGIN).run()


async def test_rounding_at_a_far_origin_keeps_nothing_waiting() -> None:
    env = VirtualTime(0.1)
    seen: list[float] = []
    async with paced(env, speed=1e6) as (_, clock):
        for i in range(200):
            after(env, i * 0.3, lambda: seen.append(env.now))
        await clock.wait(ORIGIN + 100.0)
        await asyncio.sleep(0.001)
    assert len(seen) == 200
